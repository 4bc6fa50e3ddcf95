"""A conjunct of the inductive invariant, what never changes, and what is assumed."""

from dataclasses import dataclass

from invariants.proofs.transition_system.formula import (
    Equal,
    Formula,
    every,
    forall,
    implies,
)
from invariants.proofs.transition_system.vocabulary import (
    b,
    before,
    due,
    free,
    hit,
    p,
    page,
    q,
    queued,
    s,
    t,
    to_pin,
    to_touch,
)


@dataclass(frozen=True, slots=True)
class Conjunct:
    name: str
    rule: str
    sentence: str
    formula: Formula


AXIOMS = every(
    forall(s)(~before(s, s)),
    forall(s, t)(~(before(s, t) & before(t, s))),
    forall(s, p, q)(implies(page(s, p) & page(s, q), Equal(p, q))),
)
"""What never changes: rows are ordered, and a slot has at most one page."""

COUNTING = every(
    forall(b)(implies(queued(b), (free >= 1))),
    forall(b)(implies(queued(b) & hit(b), (to_touch >= 1))),
    forall(b)(implies(due(b), (to_pin >= 1))),
)
"""The one assumption that is not first-order: the counter of a set is at least 1 when the set has
a member. The counter obligations justify it: each counter moves exactly with its (finite) set."""

ASSUMPTION = (
    "the counter of a finite set that has a member is at least 1 (in the queue => free >= 1; "
    "likewise for hit blocks still to touch and copies still to pin); the counter obligations "
    "show that each counter moves exactly with its set"
)
