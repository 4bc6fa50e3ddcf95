"""Faults put into the arithmetic of admission: each must be refuted where it is named.

A mutant is the source of ``model.admission`` with one line changed. The obligations are then
stated over its functions.
"""

import inspect
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from invariants.proofs.obligation import Formulas
from model import admission


@dataclass(frozen=True, slots=True)
class Mutant:
    fault: str
    original: str
    changed: str
    refuted_at: str
    """Id of the obligation that names the fault."""


MUTANTS: tuple[Mutant, ...] = (
    Mutant("the hit's free blocks are not charged",
           "held, 0) + hit_free", "held, 0)", "hits-pay"),
    Mutant("the pages of the hit are charged again",
           "a.maximum(pages - hit_pages - held, 0)", "a.maximum(pages - held, 0)",
           "deferred-optimal-in-tokens"),
    Mutant("resident pages are charged as if computed ones were to be fetched",
           "a.maximum(held, computed_pages)", "a.minimum(held, computed_pages)", "running-pays"),
    Mutant("one resident group is charged for all",
           "need += resident_groups * resident_need", "need += resident_need", "groups-add-up"),
    Mutant("a hot region that is held is charged anew",
           "a.maximum(region - held, 0)", "region", "running-pays"),
    Mutant("copies that a hit pins are not charged",
           "return need + d.copies_free if charge_copies else need", "return need",
           "charged-begins"),
    Mutant("the sentinel is the size of the shortage",
           "num_blocks + 1, 0", "need - host_free, 0", "host-sentinel"),
    Mutant("one host block too many is taken for free",
           "need > host_free", "need > host_free + 1", "host-sound"),
    Mutant("the watermark is forgotten",
           "need + watermark <= free", "need <= free", "margin-saves"),
    Mutant("the last free block is kept back",
           "need + watermark <= free", "need + watermark < free", "deferred-optimal"),
    Mutant("one block too many is taken for free",
           "need + watermark <= free", "need + watermark <= free + 1", "deferred-begins"),
    Mutant("the window widens what the full-sequence gate asks for",
           "a.minimum(d.pages, resident_cap)", "a.maximum(d.pages, resident_cap)",
           "window-monotone"),
    Mutant("blocks behind the copies are taken to be popped last",
           "free - taken - behind", "free - taken", "kept-behind"),
)  # fmt: skip


def formulas_of(mutant: Mutant) -> Formulas:
    """The functions with the fault in. Raises ValueError if its line is not there exactly once."""
    source = inspect.getsource(admission)
    if source.count(mutant.original) != 1:
        raise ValueError(f"{mutant.original!r} is not exactly once in model/admission.py")
    module = ModuleType(admission.__name__)
    exec(source.replace(mutant.original, mutant.changed), module.__dict__)
    return cast("Formulas", module)
