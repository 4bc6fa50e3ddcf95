"""An action of the transition system, taken on a finite structure: no solver, no guessing.

The guard is evaluated part by part, and every relation that the action changes is computed from
its update, in the state before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from invariants.proofs.transition_system.actions.action import (
    CHOICES,
    CHOSEN_COUNTERS,
    Action,
    last,
)
from invariants.proofs.transition_system.evaluate import (
    Refutation,
    counterexample,
    members,
    refutations,
    value,
)
from invariants.proofs.transition_system.formula import (
    Formula,
    Integer,
    Term,
    flattened,
    mentioned,
    normal,
)
from invariants.proofs.transition_system.structure import Element, Row, Structure
from invariants.proofs.transition_system.vocabulary import (
    BLOCK_TAKEN,
    PAGE_TAKEN,
    SLOT_TAKEN,
    STATE,
)

SET: frozenset[Row] = frozenset({()})
"""A flag that is set."""
EMPTY: frozenset[Row] = frozenset()
UNCHOSEN = {relation.name: EMPTY for relation in CHOICES}
NOTHING_COUNTED = {counter.name: 0 for counter in CHOSEN_COUNTERS}


@dataclass(frozen=True, slots=True)
class Witness:
    """What an action is about, and what it chooses. Nothing chosen is empty, or 0."""

    slot: Element | None = None
    block: Element | None = None
    page: Element | None = None
    relations: Mapping[str, frozenset[Row]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def constants(self) -> dict[str, Element]:
        named = ((SLOT_TAKEN, self.slot), (BLOCK_TAKEN, self.block), (PAGE_TAKEN, self.page))
        return {term.name: element for term, element in named if element is not None}


@dataclass(frozen=True, slots=True)
class Executable:
    """An action, prepared to be taken on many structures."""

    name: str
    guard: tuple[tuple[str, tuple[Refutation, ...]], ...]
    """What each part of the guard is about, and the ways in which it can fail."""
    updates: Mapping[str, tuple[tuple[Term, ...], Formula]]
    counters: Mapping[str, Integer]
    decides_last: bool
    """Whether its guard says which reference is a block's last."""


def executable(action: Action) -> Executable:
    parts = list(flattened(action.guard))
    sorts = {relation.name: relation.sorts for relation in STATE}
    updates = {}
    for name, update in action.relations.items():
        variables = tuple(Term(f"x{n}", sort) for n, sort in enumerate(sorts[name]))
        updates[name] = (variables, normal(update(*variables)))
    return Executable(
        action.name,
        tuple((", ".join(sorted(mentioned(part))), refutations(part)) for part in parts),
        updates,
        action.counters,
        last.name in mentioned(action.guard),
    )


def chosen(action: Executable, structure: Structure, witness: Witness) -> Structure:
    """The structure as the action sees it: with what it is about, and what it chooses.

    Whether a reference is a block's last follows from the state, so it is not left to the witness.
    """
    choices = {**UNCHOSEN, **witness.relations}
    counters = {**NOTHING_COUNTED, **witness.counters}
    seen = structure.changed(choices, counters, witness.constants)
    if action.decides_last and refused(action, seen) is not None:
        it_is = structure.changed({**choices, last.name: SET}, counters, witness.constants)
        return it_is if refused(action, it_is) is None else seen
    return seen


def refused(action: Executable, seen: Structure) -> str | None:
    """The part of the guard that fails, or None if the action can be taken."""
    for about, ways in action.guard:
        found = counterexample(ways, seen)
        if found is not None:
            where = ", ".join(f"{name} = {element}" for name, element in found.items())
            return f"its guard on {about} fails" + (f" at {where}" if where else "")
    return None


def execute(action: Executable, seen: Structure) -> Structure:
    """The state after the action, whatever its guard says."""
    relations = {
        name: members(formula, variables, seen)
        for name, (variables, formula) in action.updates.items()
    }
    counters = {name: value(integer, seen) for name, integer in action.counters.items()}
    return seen.changed({**relations, **UNCHOSEN}, {**counters, **NOTHING_COUNTED})
