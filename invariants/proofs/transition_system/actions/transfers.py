"""Actions of host writes and imports."""

from invariants.proofs.transition_system.actions.action import (
    Action,
    B,
    P,
    S,
    action,
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
    every,
    forall,
)
from invariants.proofs.transition_system.vocabulary import (
    c,
    durable,
    fresh,
    importing,
    leased,
    live,
    page,
    pins,
    reads,
    resident,
    restoring,
    transfer,
    valid,
)


def start_write() -> Action:
    return action(
        "start_write",
        "a host write of a page that the request computed begins",
        every(quiet, live(S), resident(S), fresh(S, B), forall(c)(~transfer(S, c))),
        plus(transfer, S, B),
    )


def complete_write() -> Action:
    return action(
        "complete_write",
        "the host write of a living request's page is done",
        every(quiet, live(S), transfer(S, B), ~restoring(S), page(S, P)),
        minus(transfer, S, B),
        minus(fresh, S, B),
        plus(reads, S, B),
        plus(valid, S),
        plus(durable, P),
    )


def complete_orphan() -> Action:
    """The request is gone: only of an ended one (not a preempted one) is the page published."""
    relations, counters = entering_queue(B, last(), to_head())
    return action(
        "complete_orphan",
        "a transfer ends whose request is gone",
        every(quiet, ~live(S), transfer(S, B), page(S, P), only_holder(S, B, transfer, pins)),
        relations,
        minus(transfer, S, B),
        minus(restoring, S),
        {
            fresh: lambda x, y: fresh(x, y) & ~every(Equal(x, S), Equal(y, B), ~pins(S, B)),
            valid: lambda x: valid(x) | Equal(x, S) & leased(S) & ~restoring(S),
            durable: lambda x: durable(x) | Equal(x, P) & leased(S) & ~restoring(S),
        },
        counters=counters,
    )


def import_page() -> Action:
    return action(
        "import_page",
        "an external load has filled a host page",
        every(quiet, importing(S), page(S, P)),
        minus(importing, S),
        plus(valid, S),
        plus(durable, P),
    )


def import_tail() -> Action:
    return action(
        "import_tail",
        "an external load has filled the last page; it is restored into its reserved block",
        every(quiet, live(S), resident(S), fresh(S, B), page(S, P), forall(c)(~transfer(S, c))),
        plus(transfer, S, B),
        plus(restoring, S),
        plus(valid, S),
        plus(durable, P),
    )


def complete_restore() -> Action:
    return action(
        "complete_restore",
        "the restored last page can be read",
        every(quiet, live(S), transfer(S, B), restoring(S)),
        minus(transfer, S, B),
        minus(restoring, S),
        minus(fresh, S, B),
        plus(reads, S, B),
    )
