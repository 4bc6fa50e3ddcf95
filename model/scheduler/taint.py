"""Taint: what follows from a failed load before anybody can know of it.

Who reads what such a load left is tainted, and so is what it writes, and who reads that. All else
that is misread is not explained by it.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from model.scheduler.ghost_worker import FIRST_LOST, GhostWorker, Misread
from model.scheduler.life import Life
from model.scheduler.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Explained:
    """What the misreads of one step come to."""

    tainted: frozenset[int]
    unexplained: tuple[tuple[Misread, ...], ...]
    """By request, in the order in which it showed."""


def explain(
    worker: GhostWorker,
    plan: StepPlan,
    lives: Mapping[int, Life],
    misread: list[Misread],
    unreported: Set[int],
) -> Explained:
    """Follow failed loads of the ``unreported`` requests through a step that was carried out.

    What tainted requests wrote is spoilt in the worker's blocks.
    """
    tainted: set[int] = set()
    unexplained: list[tuple[Misread, ...]] = []
    seen: set[int] = set()
    while True:
        news = {m.request for m in misread} - seen
        seen |= news
        for number in sorted(news):
            found = tuple([m for m in misread if m.request == number])
            origins = {FIRST_LOST - m.found for m in found}
            if origins <= unreported:
                tainted.add(number)
                share = next(s for s in plan.scheduled if s.request == number)
                worker.spoil(share, FIRST_LOST - min(origins))
            else:
                unexplained.append(found)
        if not news & tainted:
            return Explained(frozenset(tainted), tuple(unexplained))
        misread = [
            found
            for share in plan.scheduled
            if share.request not in tainted
            for found in worker.read(share, lives[share.request].text)
        ]
