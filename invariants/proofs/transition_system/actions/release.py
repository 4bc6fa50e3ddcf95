"""Actions of release: a request leaves, and gives its blocks back."""

from collections.abc import Callable

from invariants.proofs.transition_system.actions.action import (
    Action,
    B,
    S,
    action,
    chosen_cut,
    chosen_slots,
    ended,
    last,
    to_head,
)
from invariants.proofs.transition_system.actions.updates import (
    entering_queue,
    minus,
    only_holder,
    plus,
    quiet,
)
from invariants.proofs.transition_system.formula import (
    Equal,
    Formula,
    Term,
    every,
    forall,
    implies,
)
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
    b,
    before,
    c,
    cut,
    fresh,
    importing,
    leased,
    left,
    live,
    owner,
    parting,
    pins,
    reads,
    resident,
    restoring,
    s,
    t,
    transfer,
    valid,
    wanting,
    watched,
)


def release() -> Action:
    """A request ends or is preempted: whole rows, at any time, also while writes are pending."""
    row = every(
        forall(s)(implies(chosen_slots(s), live(s))),
        forall(s, t)(implies(every(chosen_slots(s), before(s, t), live(t)), chosen_slots(t))),
        forall(s, t)(implies(every(chosen_slots(s), before(t, s), live(t)), chosen_slots(t))),
    )
    cancelled = every(
        forall(s)(implies(chosen_cut(s), chosen_slots(s) & ~valid(s) & ~ended())),
        forall(s, b)(
            implies(every(chosen_slots(s), transfer(s, b), ~restoring(s), ~ended()), chosen_cut(s))
        ),
    )
    return action(
        "release",
        "a request ends or is preempted, maybe with writes pending; its rows are given up",
        every(quiet, row, cancelled),
        {
            live: lambda x: live(x) & ~chosen_slots(x),
            wanting: lambda x: wanting(x) & ~chosen_slots(x),
            importing: lambda x: importing(x) & ~chosen_slots(x),
            reads: lambda x, y: reads(x, y) & ~chosen_slots(x),
            owner: lambda x, y: owner(x, y) & ~chosen_slots(y),
            parting: lambda x: (
                parting(x) | every(chosen_slots(x), resident(x), valid(x), ~restoring(x))
            ),
            leased: lambda x: leased(x) | chosen_slots(x) & ended(),
            cut: lambda x: cut(x) | chosen_cut(x),
        },
    )


def part(policy: Policy) -> Action:
    """Unpin a clean page of a released request, tail first or head first."""
    relations, counters = entering_queue(B, last())
    behind: Callable[[Term, Term], Formula] = (
        before if policy.tail_first else (lambda x, y: before(y, x))
    )
    return action(
        "part",
        "a released request unpins a clean page, which stays as a copy",
        every(
            quiet,
            parting(S),
            pins(S, B),
            forall(t, c)(implies(behind(S, t) & parting(t), ~pins(t, c))),
            only_holder(S, B, pins, transfer),
        ),
        relations,
        minus(pins, S, B),
        plus(watched, B),
        {left: lambda x, y: left(x, y) | every(last(), Equal(x, B), Equal(y, S))},
        counters=counters,
    )


def give_back() -> Action:
    relations, counters = entering_queue(B, last(), to_head())
    return action(
        "give_back",
        "a released request gives back a block that is no clean page",
        every(quiet, ~live(S), ~parting(S), pins(S, B), only_holder(S, B, pins, transfer)),
        relations,
        minus(pins, S, B),
        {fresh: lambda x, y: fresh(x, y) & ~every(Equal(x, S), Equal(y, B), ~transfer(S, B))},
        counters=counters,
    )
