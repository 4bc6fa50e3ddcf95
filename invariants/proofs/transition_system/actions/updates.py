"""Small updates, from which the actions are made."""

from invariants.proofs.transition_system.actions.action import (
    B,
    S,
    Updates,
    chosen_due,
    chosen_wanting,
    last,
)
from invariants.proofs.transition_system.formula import (
    FALSE,
    Counter,
    Equal,
    Formula,
    Integer,
    Relation,
    Term,
    every,
    forall,
    iff,
    implies,
    one_if,
    some,
)
from invariants.proofs.transition_system.vocabulary import (
    ahead,
    b,
    before,
    c,
    copy,
    due,
    free,
    hit,
    left,
    live,
    p,
    page,
    queued,
    s,
    t,
    to_pin,
    to_touch,
    touching,
    used,
    valid,
    wanting,
)


def plus(relation: Relation, *members: Term) -> Updates:
    """The relation, and one member more."""
    return {relation: lambda *terms: relation(*terms) | _same(terms, members)}


def minus(relation: Relation, *members: Term) -> Updates:
    return {relation: lambda *terms: relation(*terms) & ~_same(terms, members)}


def without(relation: Relation, position: int, member: Term) -> Updates:
    """The relation without all that has the member at that position."""
    return {relation: lambda *terms: relation(*terms) & ~Equal(terms[position], member)}


def becomes(relation: Relation, value: Formula) -> Updates:
    return {relation: lambda *terms: value}


def _same(terms: tuple[Term, ...], members: tuple[Term, ...]) -> Formula:
    return every(*(Equal(one, other) for one, other in zip(terms, members, strict=True)))


def leaving_queue(block: Term) -> tuple[Updates, dict[Counter, Integer]]:
    """The block leaves the queue, if it is there."""
    relations: Updates = {
        **minus(queued, block),
        **minus(due, block),
        **without(left, 0, block),
        ahead: lambda x, y: ahead(x, y) & ~Equal(x, block) & ~Equal(y, block),
    }
    counters: dict[Counter, Integer] = {
        free: free - one_if(queued(block)),
        to_touch: to_touch - one_if(queued(block) & hit(block)),
        to_pin: to_pin - one_if(due(block)),
    }
    return relations, counters


def entering_queue(
    block: Term, entering: Formula, at_head: Formula = FALSE
) -> tuple[Updates, dict[Counter, Integer]]:
    """The block enters the queue, at its tail or at its head."""
    relations: Updates = {
        queued: lambda x: queued(x) | Equal(x, block) & entering,
        ahead: lambda x, y: some(
            ahead(x, y),
            every(entering, ~at_head, queued(x), Equal(y, block)),
            every(entering, at_head, queued(y), Equal(x, block)),
        ),
    }
    return relations, {free: free + one_if(entering)}


def only_holder(slot: Term, block: Term, held_by: Relation, other: Relation) -> Formula:
    """``last`` says whether the slot's reference, of one kind, is the block's only one."""
    return iff(
        last(),
        every(
            ~other(slot, block),
            forall(t)(implies(~Equal(t, slot), ~held_by(t, block) & ~other(t, block))),
        ),
    )


quiet = ~touching()
"""No hit is being touched."""
head_of_queue = every(queued(B), forall(c)(implies(queued(c), Equal(c, B) | ahead(B, c))))
prefix_complete = forall(t)(implies(before(t, S), valid(t)))
every_copy_counted = forall(s, b, p)(
    implies(every(chosen_wanting(s) | wanting(s), page(s, p), copy(b, p), queued(b)), chosen_due(b))
)
"""The predictor counts every free copy that the hit can pin."""
row_goes_on = every(~used(S), forall(t)(implies(before(t, S), live(t))))
"""The slot is new, and the next one in a row that lives."""
