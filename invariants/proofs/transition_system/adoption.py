"""When copies may be adopted: the theorem that tells the dialects apart.

Adoption at the end of the own allocation and after all allocations of a step are
both moments at which no admitted allocation still has blocks to touch or to pop. At any other
moment it takes a block that was promised, unless more blocks are free than were promised.
"""

from dataclasses import dataclass

from invariants.proofs.transition_system.actions.action import Action, B
from invariants.proofs.transition_system.actions.allocation import adopt
from invariants.proofs.transition_system.consecution import kept
from invariants.proofs.transition_system.formula import Formula, every, some
from invariants.proofs.transition_system.invariant.conjuncts import capacity
from invariants.proofs.transition_system.policy import ANYWHERE
from invariants.proofs.transition_system.vocabulary import (
    free,
    hit,
    popping,
    queued,
    to_pop,
    to_touch,
    touching,
)

AT_ANY_TIME: Action = adopt(ANYWHERE)

promised = to_touch + to_pop
open_ = some(touching(), popping())
free_copy = every(queued(B), ~hit(B))
"""The adopted copy is free, and no block of a hit that is still to be touched itself."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A claim about adoption at some moment: ``never`` cannot be satisfied."""

    name: str
    sentence: str
    never: Formula
    twin: Formula
    """The same without its condition: it can be satisfied."""


def _adopting(*conditions: Formula) -> Formula:
    return every(AT_ANY_TIME.guard, *conditions)


SAFE, BROKEN = kept(AT_ANY_TIME, capacity(ANYWHERE)), ~kept(AT_ANY_TIME, capacity(ANYWHERE))

MOMENTS = (
    Moment(
        "when_nothing_is_promised",
        "adoption keeps capacity when no admitted allocation has blocks to touch or pop",
        _adopting(promised.equals(0), BROKEN),
        _adopting(BROKEN),
    ),
    Moment(
        "between_anothers_pops",
        "adopting a free copy while just the promised blocks are free always breaks capacity",
        _adopting(open_, promised >= 1, free.equals(promised), free_copy, SAFE),
        _adopting(open_, promised >= 1, free_copy, SAFE),
    ),
    Moment(
        "with_a_block_to_spare",
        "adoption keeps capacity at any moment at which more blocks are free than promised",
        _adopting(free >= promised + 1, BROKEN),
        _adopting(free >= promised, BROKEN),
    ),
)

BETWEEN_POPS = _adopting(popping(), to_pop >= 1, free.equals(promised), free_copy)
"""The moment of the second claim is one that the invariant allows."""
