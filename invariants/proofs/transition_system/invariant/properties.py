"""What the invariant is for: rules in the words of the transition system."""

from dataclasses import dataclass

from invariants.proofs.transition_system.formula import (
    Equal,
    Formula,
    every,
    exists,
    forall,
    iff,
    implies,
    some,
)
from invariants.proofs.transition_system.vocabulary import (
    b,
    copy,
    durable,
    free,
    fresh,
    keyed,
    owner,
    p,
    page,
    pins,
    popping,
    q,
    queued,
    reads,
    s,
    t,
    to_pop,
    to_touch,
    touching,
    transfer,
    valid,
    watched,
)


@dataclass(frozen=True, slots=True)
class Property:
    """What the invariant is for: a rule in the words of the transition system."""

    name: str
    rule: str
    sentence: str
    formula: Formula


PROPERTIES = (
    Property(
        "a_pop_finds_a_block",
        "I4",
        "While an admitted allocation has blocks to pop, the free queue has one: it never raises.",
        implies(every(some(touching(), popping()), to_touch.equals(0), to_pop >= 1), free >= 1),
    ),
    Property(
        "a_touch_leaves_the_rest",
        "I4",
        "The free blocks suffice for the touches and the pops that are still to come.",
        implies(some(touching(), popping()), free >= to_touch + to_pop),
    ),
    Property(
        "no_sharing",
        "I3",
        "A block that is written belongs to one slot, is read by none, is no copy and has no key.",
        forall(s, t, b)(
            implies(
                fresh(s, b) & ~Equal(s, t),
                ~some(fresh(t, b), pins(t, b), transfer(t, b), reads(t, b)),
            )
        )
        & forall(s, b, p)(implies(fresh(s, b), ~some(reads(s, b), copy(b, p), keyed(b, p)))),
    ),
    Property(
        "readers_and_copies_agree",
        "I7",
        "Whoever reads a block, or would adopt it as a copy, means the same page.",
        forall(s, t, b, p, q)(
            implies(
                every(reads(s, b), page(s, p), reads(t, b) & page(t, q) | copy(b, q)),
                Equal(p, q),
            )
        ),
    ),
    Property(
        "unpinned_only_when_complete",
        "I8",
        "A page that is read from a block it does not hold has its complete host page.",
        forall(s, b, p)(
            implies(every(reads(s, b), ~pins(s, b), page(s, p)), every(valid(s), durable(p)))
        ),
    ),
    Property(
        "watched_until_reused",
        "I9",
        "A free block that is read or recorded as a copy is watched, and all its readers known.",
        forall(s, b, p)(
            implies(
                queued(b),
                every(
                    implies(reads(s, b), watched(b) & owner(b, s)),
                    implies(copy(b, p), watched(b)),
                ),
            )
        ),
    ),
    Property(
        "free_or_held",
        "I1",
        "A block is free or held, never both and never neither.",
        forall(b)(iff(queued(b), ~exists(s)(pins(s, b) | transfer(s, b)))),
    ),
)
"""All follow from the invariant; ``fresh_after_pop`` in ``obligations`` is about a step."""
