"""Actions of an allocation: it begins, touches its hit, pops, adopts copies and ends."""

from invariants.proofs.transition_system.actions.action import (
    Action,
    B,
    P,
    S,
    Updates,
    action,
    chosen_due,
    chosen_hits,
    chosen_imports,
    chosen_pins,
    chosen_pops,
    chosen_touches,
    chosen_wanting,
)
from invariants.proofs.transition_system.actions.updates import (
    becomes,
    every_copy_counted,
    head_of_queue,
    leaving_queue,
    minus,
    plus,
    quiet,
    row_goes_on,
    without,
)
from invariants.proofs.transition_system.formula import (
    FALSE,
    TRUE,
    Equal,
    Formula,
    Number,
    Term,
    every,
    forall,
    implies,
    some,
)
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
    b,
    before,
    copy,
    due,
    free,
    fresh,
    gone,
    hit,
    importing,
    keyed,
    left,
    live,
    owner,
    p,
    page,
    pins,
    popping,
    published,
    queued,
    reads,
    resident,
    s,
    t,
    to_pin,
    to_pop,
    to_touch,
    touching,
    used,
    valid,
    wanting,
    watched,
)


def begin(policy: Policy) -> Action:
    """Admission: the gate, and what the predictor counted."""
    need = chosen_touches + chosen_pops
    if policy.charge_copies:
        need = need + chosen_pins
    new = chosen_wanting(s) | chosen_imports(s)
    return action(
        "begin",
        "admission lets an allocation begin",
        every(
            ~touching(),
            ~popping(),
            free >= need,
            chosen_touches >= 0,
            chosen_pops >= 0,
            chosen_pins >= 0,
            forall(s)(implies(new, ~used(s) & resident(s))),
            forall(s)(~(chosen_wanting(s) & chosen_imports(s))),
            forall(s, t)(
                implies(new & before(t, s), live(t) | chosen_wanting(t) | chosen_imports(t))
            ),
            forall(s, p)(implies(chosen_wanting(s) & page(s, p), published(p))),
            forall(b)(implies(chosen_due(b), queued(b))),
            every_copy_counted,
        ),
        becomes(touching, TRUE),
        {
            hit: chosen_hits,
            due: chosen_due,
            wanting: lambda x: wanting(x) | chosen_wanting(x),
            importing: lambda x: importing(x) | chosen_imports(x),
            valid: lambda x: valid(x) | chosen_wanting(x),
            live: lambda x: some(live(x), chosen_wanting(x), chosen_imports(x)),
            used: lambda x: some(used(x), chosen_wanting(x), chosen_imports(x)),
        },
        counters={to_touch: chosen_touches, to_pop: chosen_pops, to_pin: chosen_pins},
    )


def touch() -> Action:
    relations, counters = leaving_queue(B)
    return action(
        "touch",
        "the request takes a block of its hit",
        every(touching(), hit(B), keyed(B, P), page(S, P), ~resident(S), row_goes_on),
        relations,
        minus(hit, B),
        plus(pins, S, B),
        plus(reads, S, B),
        plus(used, S),
        plus(live, S),
        counters=counters,
    )


def pop() -> Action:
    """Hand out the head of the queue; the watcher fires: its readers stop, the copy is dropped."""
    relations, counters = leaving_queue(B)
    return action(
        "pop",
        "the next free block is handed out to the slot",
        every(
            touching() | popping(),
            to_touch.equals(0),
            to_pop >= 1,
            head_of_queue,
            row_goes_on,
        ),
        relations,
        fire_watcher(B),
        without(keyed, 0, B),
        becomes(touching, FALSE),
        becomes(popping, TRUE),
        becomes(hit, FALSE),
        {gone: lambda x: gone(x) | left(B, x)},
        plus(pins, S, B),
        plus(fresh, S, B),
        plus(used, S),
        plus(live, S),
        counters={**counters, to_pop: to_pop - 1},
    )


def fire_watcher(block: Term) -> Updates:
    """If the block is watched, its registered readers stop, and it is no copy any more."""
    return {
        reads: lambda x, y: reads(x, y) & ~every(Equal(y, block), watched(block), owner(block, x)),
        copy: lambda x, y: copy(x, y) & ~(Equal(x, block) & watched(block)),
        owner: lambda x, y: owner(x, y) & ~(Equal(x, block) & watched(block)),
        watched: lambda x: watched(x) & ~Equal(x, block),
    }


def finish(policy: Policy) -> Action:
    keeps = policy.adopt_at in ("end_of_step", "anywhere")
    return action(
        "finish",
        "the allocation is done",
        every(touching() | popping(), to_touch.equals(0), to_pop.equals(0)),
        becomes(touching, FALSE),
        becomes(popping, FALSE),
        becomes(hit, FALSE),
        becomes(due, FALSE),
        {} if keeps else becomes(wanting, FALSE),
        counters={to_pin: Number(0)},
    )


def moment(policy: Policy) -> Formula:
    """When a copy may be adopted."""
    done = every(to_touch.equals(0), to_pop.equals(0))
    return {
        "commit": every(touching(), to_touch.equals(0)),
        "own_end": every(touching() | popping(), done),
        "end_of_step": every(~touching(), ~popping()),
        "anywhere": TRUE,
    }[policy.adopt_at]


def adopt(policy: Policy) -> Action:
    relations, counters = leaving_queue(B)
    return action(
        "adopt",
        "a page of a hit is pinned where a GPU copy of it is",
        every(moment(policy), wanting(S), page(S, P), copy(B, P)),
        relations,
        plus(pins, S, B),
        plus(reads, S, B),
        minus(wanting, S),
        counters=counters,
    )


def forgo() -> Action:
    return action(
        "forgo",
        "a page of a hit is left to be read from the host, since there is no copy of it",
        every(quiet, wanting(S), page(S, P), forall(b)(~copy(b, P))),
        minus(wanting, S),
    )
