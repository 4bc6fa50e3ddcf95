"""Actions of publication: keys, published pages and recorded copies."""

from invariants.proofs.transition_system.actions.action import Action, B, P, S, action
from invariants.proofs.transition_system.actions.updates import minus, plus, prefix_complete, quiet
from invariants.proofs.transition_system.formula import (
    Equal,
    every,
)
from invariants.proofs.transition_system.vocabulary import (
    copy,
    fresh,
    keyed,
    leased,
    live,
    offered,
    page,
    pins,
    published,
    reads,
    resident,
    valid,
)


def publish() -> Action:
    return action(
        "publish",
        "a host page gets its key, after all pages before it",
        every(
            quiet,
            live(S) | leased(S),
            valid(S),
            page(S, P),
            prefix_complete,
        ),
        plus(published, P),
        plus(offered, S),
    )


def withdraw() -> Action:
    return action(
        "withdraw",
        "a host page loses its key",
        quiet,
        minus(published, P),
    )


def record_copy() -> Action:
    return action(
        "record_copy",
        "the block of a published page is recorded as its copy, instead of an older one",
        every(quiet, live(S), resident(S), valid(S), reads(S, B), page(S, P), published(P)),
        {copy: lambda x, y: copy(x, y) & ~Equal(y, P) | Equal(x, B) & Equal(y, P)},
    )


def forget_copy() -> Action:
    return action(
        "forget_copy",
        "a recorded copy is dropped, with the copy in another group",
        every(copy(B, P)),
        minus(copy, B, P),
    )


def give_key() -> Action:
    return action(
        "give_key",
        "an indexer page that the step completes gets its key",
        every(quiet, live(S), ~resident(S), fresh(S, B), pins(S, B), page(S, P)),
        minus(fresh, S, B),
        plus(reads, S, B),
        plus(keyed, B, P),
    )


def take_key() -> Action:
    return action(
        "take_key",
        "a block is made unfindable",
        every(quiet, keyed(B, P)),
        minus(keyed, B, P),
    )
