"""A counterexample to induction, made small and told in sentences."""

from collections.abc import Iterator
from dataclasses import dataclass

from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.consecution import kept
from invariants.proofs.transition_system.evaluate import holds, value
from invariants.proofs.transition_system.formula import (
    Equal,
    Formula,
    Sort,
    Term,
    exists,
    forall,
    integer_after,
    some,
)
from invariants.proofs.transition_system.invariant.conjunct import AXIOMS, COUNTING, Conjunct
from invariants.proofs.transition_system.solver import Solver
from invariants.proofs.transition_system.structure import Structure
from invariants.proofs.transition_system.vocabulary import COUNTERS, SORTS, STATE, STATIC

SIZES = ((1, 1, 1), (1, 2, 1), (2, 2, 1), (2, 3, 2), (3, 4, 3))
"""Blocks, slots and pages that a counterexample may have, smallest first."""
LARGEST_COUNT = 4


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A state of the invariant from which an action breaks a conjunct. It need not be reachable."""

    state: Structure
    action: Action
    conjunct: Conjunct

    def confirmed(self, invariant: tuple[Conjunct, ...]) -> bool:
        """Whether direct evaluation, without the solver, agrees that it is one."""
        before = (AXIOMS, COUNTING, *(each.formula for each in invariant), self.action.guard)
        broken = not holds(kept(self.action, self.conjunct.formula), self.state)
        return broken and all(holds(formula, self.state) for formula in before)

    def sentences(self) -> Iterator[str]:
        yield f"Before: {', '.join(_counts(self.state))}."
        yield from facts(self.state)
        names = ", ".join(f"{self.state.constants[key]}" for key in sorted(self.state.constants))
        about = f" ({names})" if names else ""
        yield f"Then `{self.action.name}`{about}: {self.action.sentence}."
        yield f"After: {', '.join(self._counts_after())}."
        yield f"Broken: {self.conjunct.name} ({self.conjunct.rule}). {self.conjunct.sentence}"

    def _counts_after(self) -> list[str]:
        changed = [
            (
                counter.name,
                value(
                    integer_after(counter, self.action.relations, self.action.counters), self.state
                ),
            )
            for counter in COUNTERS
        ]
        return [f"{COUNTER_WORDS[name]} {count}" for name, count in changed]


def find(
    action: Action, conjunct: Conjunct, invariant: tuple[Conjunct, ...], solver: Solver
) -> Counterexample | None:
    """The smallest counterexample that is found: few elements, few facts, small counters."""
    solver.push()
    solver.add(AXIOMS, COUNTING, *(each.formula for each in invariant), action.guard)
    solver.add(~kept(action, conjunct.formula))
    state = None
    for sizes in SIZES:
        bounds = [at_most(size, sort) for size, sort in zip(sizes, SORTS, strict=True)]
        if solver.check(*bounds) == "satisfiable":
            solver.add(*bounds)
            _keep_what_is_possible(solver)
            state = solver.find()
            break
    solver.pop()
    return Counterexample(state, action, conjunct) if state else None


def at_most(size: int, sort: Sort) -> Formula:
    """The sort has at most so many elements."""
    names = tuple(Term(f"element_{n}", sort) for n in range(size))
    each = Term("each", sort)
    return exists(*names)(forall(each)(some(*(Equal(each, name) for name in names))))


def _keep_what_is_possible(solver: Solver) -> None:
    """Empty the relations and lower the counters, one by one, where the failure allows it."""
    for relation in (*STATE, *STATIC):
        terms = tuple(Term(f"x{n}", sort) for n, sort in enumerate(relation.sorts))
        empty = forall(*terms)(~relation(*terms)) if terms else ~relation()
        if solver.check(empty) == "satisfiable":
            solver.add(empty)
    for counter in reversed(COUNTERS):
        for count in range(LARGEST_COUNT + 1):
            if solver.check(counter.equals(count)) == "satisfiable":
                solver.add(counter.equals(count))
                break


COUNTER_WORDS = {
    "free": "free blocks",
    "to_touch": "still to touch",
    "to_pop": "still to pop",
    "to_pin": "free copies to pin",
}

FACT_WORDS = {
    "pins": "{0} holds {1}",
    "transfer": "a transfer of {0} holds {1}",
    "restoring": "the transfer of {0} comes from the host",
    "fresh": "{0} writes {1}",
    "reads": "{0} reads {1}",
    "queued": "{0} is in the free queue",
    "ahead": "{0} is handed out before {1}",
    "keyed": "{0} is found by the key of {1}",
    "watched": "{0} is watched",
    "owner": "the watcher of {0} knows {1}",
    "copy": "{0} is the recorded copy of {1}",
    "page": "{0} is a slot of page {1}",
    "resident": "{0} is a resident page",
    "before": "{0} is before {1} in its row",
    "live": "the request of {0} is admitted",
    "wanting": "{0} waits to adopt a copy",
    "importing": "{0} waits for an import",
    "valid": "the host page of {0} is complete",
    "parting": "{0} was released and is to be unpinned",
    "leased": "the request of {0} ended and left a lease",
    "cut": "{0} was preempted with its write pending",
    "durable": "{0} was completely written to the host",
    "published": "{0} is found on the host",
    "offered": "{0} was published",
    "left": "{0} is what the release of {1} left",
    "gone": "what the release of {0} left was handed out",
    "touching": "an allocation is touching its hit",
    "popping": "an allocation is popping",
    "hit": "{0} is a block of the hit",
    "due": "{0} is a free copy of the hit",
}


def _counts(state: Structure) -> list[str]:
    return [f"{COUNTER_WORDS[counter.name]} {state.counters[counter.name]}" for counter in COUNTERS]


def facts(state: Structure) -> Iterator[str]:
    """The state as sentences, flags and blocks first."""
    for relation in (*reversed(STATE), *STATIC):
        words = FACT_WORDS.get(relation.name)
        for row in sorted(state.rows(relation.name), key=str):
            if words:
                sentence = words.format(*row)
                yield f"{sentence[0].upper()}{sentence[1:]}."
