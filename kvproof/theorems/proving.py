"""Proofs: decide the obligations, and say whether they come out as they must.

What is asked is cut into tasks that do not depend on each other, which processes share: solver
terms cannot be handed from one to another, names and verdicts can.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any

from invariants.proofs.catalogue import OBLIGATIONS
from invariants.proofs.obligation import Result as ArithmeticResult
from invariants.proofs.obligation import prove_all
from invariants.proofs.transition_system import obligations
from invariants.proofs.transition_system.invariant.conjunct import ASSUMPTION
from invariants.proofs.transition_system.obligations import Found
from invariants.proofs.transition_system.result import Result as SystemResult
from kvproof.errors import CouldNotRun
from kvproof.theorems.process import begin
from kvproof.theorems.proofs import Proofs, Proved

SYSTEM = "system"
"""Ids that begin so are obligations of the transition system, which are decided together."""
MAX_PROCESSES = 4
"""More would wait for the longest task."""
TOGETHER = 8
"""Obligations on arithmetic that one task decides: starting a process for fewer does not pay."""


def run_proofs(only: Sequence[str] = (), processes: int | None = None) -> Proofs:
    """Prove all obligations, or those named; several processes share what is worth sharing.

    Raises CouldNotRun if an obligation does not exist, or if a process died.
    """
    started = time.perf_counter()
    names = [obligation.id for obligation in OBLIGATIONS]
    system = [name for name in only if name.startswith(SYSTEM)]
    arithmetic = [name for name in only if not name.startswith(SYSTEM)]
    _check(arithmetic, names)
    wanted = [name for name in names if name in arithmetic] if only else names
    tasks = list(obligations.TASKS) if system or not only else []
    proved, found = _decide(wanted, tasks, processes or _processes())
    results = [_of_arithmetic(result) for result in proved]
    if tasks:
        of_system = obligations.assemble(found)
        _check([name for name in system if name != SYSTEM], [result.id for result in of_system])
        everything = not only or SYSTEM in only
        results += [_of_system(r) for r in of_system if everything or r.id in only]
    return Proofs(tuple(results), time.perf_counter() - started, ASSUMPTION)


def _check(only: Sequence[str], known: Sequence[str]) -> None:
    for name in only:
        if name not in known:
            raise CouldNotRun(
                f"there is no obligation {name!r}; run kvproof prove to see all, "
                f"or name {SYSTEM} for the transition system"
            )


# Sharing the work.


def _decide(
    wanted: Sequence[str], tasks: Sequence[str], processes: int
) -> tuple[list[ArithmeticResult], dict[str, Found]]:
    """The obligations on arithmetic, and the tasks of the transition system; longest first."""
    parts = [wanted[n : n + TOGETHER] for n in range(0, len(wanted), TOGETHER)]
    with sharing(min(processes, len(parts) + len(tasks))) as mapping:
        found = mapping(obligations.decide, tasks)
        proved = mapping(_prove_part, parts)
        return [result for part in proved for result in part], dict(zip(tasks, found, strict=True))


def _prove_part(names: Sequence[str]) -> list[ArithmeticResult]:
    return prove_all([obligation for obligation in OBLIGATIONS if obligation.id in names])


@contextmanager
def sharing(processes: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """As ``map``, in so many processes; its answers come in the order of what was asked."""
    if processes < 2:
        yield map
        return
    # Solvers have threads, which do not survive a fork: each process starts anew.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=begin)
    try:
        yield pool.map
    except KeyboardInterrupt:
        for child in active_children():  # a solver may not look up for many seconds
            child.kill()
        raise
    except BrokenProcessPool as error:
        raise CouldNotRun(
            "a process that was proving died: it was killed, or there was no memory for it; "
            "nothing is proved, run it again"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _processes() -> int:
    """As many as there are processors to use."""
    if sys.platform == "linux":
        return min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    return min(os.cpu_count() or 1, MAX_PROCESSES)


# One kind of result for both.


def _of_arithmetic(r: ArithmeticResult) -> Proved:
    sentence = next(each.sentence for each in OBLIGATIONS if each.id == r.id)
    return Proved(
        r.id, sentence, r.rule, r.verdict, r.expected, r.ms, r.twin, r.witness,
        r.as_expected, r.undecided,
    )  # fmt: skip


def _of_system(r: SystemResult) -> Proved:
    return Proved(
        r.id, "", r.rule, r.verdict, r.expected, r.ms, r.twin, r.witness,
        r.as_expected, "unknown" in (r.verdict, r.twin),
    )  # fmt: skip
