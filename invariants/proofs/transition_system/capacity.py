"""The actions as they look to the counters alone, for a solver that infers an invariant.

Quantified parts of a guard are dropped, facts about the block at hand become free flags, and only
ground instances of the counting assumption, of ``due_is_queued`` and of ``due_is_complete`` (proved
on their own) are kept. So the projection can do more than the system can; what it never does, the
system never does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.system import actions
from invariants.proofs.transition_system.formula import (
    And,
    Atom,
    Choose,
    Compare,
    Counter,
    Formula,
    Integer,
    Not,
    Number,
    Or,
    Quantified,
    Relation,
    Sum,
    Term,
    every,
    flattened,
    some,
)
from invariants.proofs.transition_system.invariant.conjunct import COUNTING
from invariants.proofs.transition_system.invariant.conjuncts import CONJUNCTS
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
    BLOCK_TAKEN,
    COUNTERS,
    PAGE_TAKEN,
    SLOT_TAKEN,
    free,
    popping,
    to_pin,
    to_pop,
    to_touch,
    touching,
)

FLAGS = (touching, popping)
"""Relations without blocks that are part of the projected state."""

START = every(
    free >= 0,
    *(counter.equals(0) for counter in (to_touch, to_pop, to_pin)),
    *(~flag() for flag in FLAGS),
)
"""A pool of any size, nothing going on."""

RAISES = every(some(touching(), popping()), to_touch.equals(0), to_pop >= 1, ~(free >= 1))
"""An admitted allocation pops from an empty queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action on the projected state."""

    name: str
    guard: Formula
    counters: Mapping[str, Integer]
    flags: Mapping[str, Formula]


def steps(policy: Policy) -> tuple[Step, ...]:
    return tuple(_project(action) for action in actions(policy))


def _project(action: Action) -> Step:
    known = [
        each.formula for each in CONJUNCTS if each.name in ("due_is_queued", "due_is_complete")
    ]
    instances = [_ground(part) for formula in (COUNTING, *known) for part in flattened(formula)]
    guard = [_ground(part) for part in flattened(action.guard) if not _has_quantifier(part)]
    counters = {
        counter.name: _ground_integer(action.counters.get(counter.name, counter))
        for counter in COUNTERS
    }
    flags = {
        flag.name: _ground(action.relations[flag.name]())
        if flag.name in action.relations
        else flag()
        for flag in FLAGS
    }
    return Step(action.name, every(*guard, *instances), counters, flags)


def _has_quantifier(formula: Formula) -> bool:
    match formula:
        case Quantified():
            return True
        case Not(body):
            return _has_quantifier(body)
        case And(parts) | Or(parts):
            return any(_has_quantifier(part) for part in parts)
    return False


def _ground(formula: Formula) -> Formula:
    """Universal formulas at the block, slot and page at hand; each fact a flag of its own."""
    match formula:
        case Quantified(True, _, body):
            return _ground(body)
        case Atom(relation, terms) if terms:
            names = ", ".join(_at_hand(term).name for term in terms)
            return Relation(f"{relation.name}({names})", ())()
        case Not(body):
            return Not(_ground(body))
        case And(parts) | Or(parts):
            grounded = tuple(_ground(part) for part in parts)
            return And(grounded) if isinstance(formula, And) else Or(grounded)
        case Compare(operator, left, right):
            return Compare(operator, _ground_integer(left), _ground_integer(right))
        case Atom():
            return formula
    raise TypeError(f"no ground instance stands for {formula}")


def _at_hand(term: Term) -> Term:
    return next(each for each in (BLOCK_TAKEN, SLOT_TAKEN, PAGE_TAKEN) if each.sort == term.sort)


def _ground_integer(integer: Integer) -> Integer:
    match integer:
        case Sum(parts, signs):
            return Sum(tuple(_ground_integer(part) for part in parts), signs)
        case Choose(condition, then, otherwise):
            return Choose(_ground(condition), _ground_integer(then), _ground_integer(otherwise))
        case Counter() | Number():
            return integer
    raise TypeError(integer)
