"""Actions of residency: a page is unpinned, lost or read no more."""

from invariants.proofs.transition_system.actions.action import Action, B, S, action, last
from invariants.proofs.transition_system.actions.allocation import fire_watcher
from invariants.proofs.transition_system.actions.updates import (
    entering_queue,
    minus,
    only_holder,
    plus,
    quiet,
)
from invariants.proofs.transition_system.formula import (
    every,
)
from invariants.proofs.transition_system.vocabulary import (
    live,
    owner,
    pins,
    queued,
    reads,
    resident,
    transfer,
    valid,
    watched,
)


def unpin() -> Action:
    relations, counters = entering_queue(B, last())
    return action(
        "unpin",
        "a request that can read from the host unpins a clean page, and goes on reading it",
        every(
            quiet,
            live(S),
            resident(S),
            valid(S),
            pins(S, B),
            reads(S, B),
            only_holder(S, B, pins, transfer),
        ),
        relations,
        minus(pins, S, B),
        plus(watched, B),
        plus(owner, B, S),
        counters=counters,
    )


def lose_page() -> Action:
    return action(
        "lose_page",
        "a slot stops reading an unpinned block, since the page was lost in another group",
        every(reads(S, B), ~pins(S, B)),
        minus(reads, S, B),
        minus(owner, B, S),
    )


def stop_reading() -> Action:
    return action(
        "stop_reading",
        "the prefix cache is reset: the watcher fires though the block stays",
        every(quiet, watched(B), queued(B)),
        fire_watcher(B),
    )
