"""The actions of the transition system: guards over the state before, and updates.

Every action is about at most one slot, one block and one page (``the_slot`` and so on); what the
engine does to several, in a loop, is several actions. Actions that are no part of an allocation may
run whenever no hit is being touched, which is more than any engine does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from invariants.proofs.transition_system.formula import (
    FALSE,
    TRUE,
    Counter,
    Equal,
    Formula,
    Integer,
    Number,
    Relation,
    Term,
    Update,
    every,
    forall,
    iff,
    implies,
    one_if,
    some,
)
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
    BLOCK,
    BLOCK_TAKEN,
    PAGE_TAKEN,
    SLOT,
    SLOT_TAKEN,
    ahead,
    b,
    before,
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
    page,
    parting,
    pins,
    popping,
    published,
    queued,
    reads,
    resident,
    restoring,
    s,
    t,
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

Updates = Mapping[Relation, Update]


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    sentence: str
    guard: Formula
    relations: Mapping[str, Update] = field(default_factory=dict)
    counters: Mapping[str, Integer] = field(default_factory=dict)


B, S, P = BLOCK_TAKEN, SLOT_TAKEN, PAGE_TAKEN

# What an action chooses beside the slot, the block and the page.
last = Relation("is_last_reference", ())
to_head = Relation("goes_to_head", ())
ended = Relation("request_ended", ())
chosen_hits = Relation("chosen_hits", (BLOCK,))
chosen_due = Relation("chosen_due", (BLOCK,))
chosen_wanting = Relation("chosen_wanting", (SLOT,))
chosen_imports = Relation("chosen_imports", (SLOT,))
chosen_slots = Relation("chosen_slots", (SLOT,))
chosen_cut = Relation("chosen_cut", (SLOT,))
chosen_touches, chosen_pops, chosen_pins = (
    Counter(f"chosen_{name}") for name in ("touches", "pops", "pins")
)
CHOICES = (
    last, to_head, ended, chosen_hits, chosen_due, chosen_wanting, chosen_imports, chosen_slots,
    chosen_cut,
)  # fmt: skip
CHOSEN_COUNTERS = (chosen_touches, chosen_pops, chosen_pins)


def action(
    name: str,
    sentence: str,
    guard: Formula,
    *relations: Updates,
    counters: Mapping[Counter, Integer] | None = None,
) -> Action:
    """Later updates of a relation replace earlier ones."""
    merged = {relation.name: update for each in relations for relation, update in each.items()}
    moved = {counter.name: value for counter, value in (counters or {}).items()}
    return Action(name, sentence, guard, merged, moved)


# Small updates, from which the actions are made.


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


# An allocation.


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


# Host writes and imports.


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


# Publication.


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


# Residency.


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


# Release.


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
