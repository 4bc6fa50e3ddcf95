"""All actions of a policy, and the state in which they begin."""

from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.allocation import (
    adopt,
    begin,
    finish,
    forgo,
    pop,
    touch,
)
from invariants.proofs.transition_system.actions.publication import (
    forget_copy,
    give_key,
    publish,
    record_copy,
    take_key,
    withdraw,
)
from invariants.proofs.transition_system.actions.release import give_back, part, release
from invariants.proofs.transition_system.actions.residency import lose_page, stop_reading, unpin
from invariants.proofs.transition_system.actions.transfers import (
    complete_orphan,
    complete_restore,
    complete_write,
    import_page,
    import_tail,
    start_write,
)
from invariants.proofs.transition_system.formula import (
    Formula,
    every,
    forall,
)
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
    ahead,
    b,
    c,
    copy,
    cut,
    due,
    durable,
    free,
    fresh,
    gone,
    hit,
    importing,
    keyed,
    leased,
    left,
    live,
    offered,
    owner,
    p,
    parting,
    pins,
    popping,
    published,
    queued,
    reads,
    restoring,
    s,
    to_pin,
    to_pop,
    to_touch,
    touching,
    transfer,
    used,
    valid,
    wanting,
    watched,
)


def actions(policy: Policy) -> tuple[Action, ...]:
    return (*policy_actions(policy), *SHARED_ACTIONS)


def policy_actions(policy: Policy) -> tuple[Action, ...]:
    """The actions that differ between policies."""
    return begin(policy), adopt(policy), finish(policy), part(policy)


SHARED_ACTIONS = (
    touch(),
    pop(),
    forgo(),
    start_write(),
    complete_write(),
    complete_orphan(),
    import_page(),
    import_tail(),
    complete_restore(),
    publish(),
    withdraw(),
    record_copy(),
    forget_copy(),
    give_key(),
    take_key(),
    unpin(),
    lose_page(),
    stop_reading(),
    release(),
    give_back(),
)


def initial() -> Formula:
    """All blocks are free, and nothing has happened."""
    nothing = (
        pins, transfer, fresh, reads, keyed, owner, copy, left, restoring, watched, used, live,
        wanting, importing, valid, parting, leased, cut, durable, published, offered, gone, hit,
        due, touching, popping,
    )  # fmt: skip
    variables = {"Block": b, "Slot": s, "Page": p}
    empty = [
        forall(*dict.fromkeys(terms))(~relation(*terms))
        if (terms := tuple(variables[sort.name] for sort in relation.sorts))
        else ~relation()
        for relation in nothing
    ]
    return every(
        *empty,
        forall(b)(queued(b)),
        forall(b, c)(~(ahead(b, c) & ahead(c, b))),
        free >= 0,
        *(counter.equals(0) for counter in (to_touch, to_pop, to_pin)),
    )
