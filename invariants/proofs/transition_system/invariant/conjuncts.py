"""The inductive invariant: named conjuncts, each with the rule that it covers."""

from invariants.proofs.transition_system.formula import (
    TRUE,
    Equal,
    Formula,
    every,
    exists,
    forall,
    iff,
    implies,
    some,
)
from invariants.proofs.transition_system.invariant.conjunct import Conjunct
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.vocabulary import (
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
    q,
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

OF_A_SLOT = (live, wanting, importing, valid, parting, leased, cut, offered, gone, restoring)

CONJUNCTS = (
    Conjunct(
        "queued_iff_unheld",
        "I1",
        "A block is in the free queue exactly when no row and no transfer holds it.",
        forall(b)(iff(queued(b), ~exists(s)(pins(s, b) | transfer(s, b)))),
    ),
    Conjunct(
        "slot_holds_one_block",
        "I2",
        "A slot holds, writes, reads and transfers one block at most.",
        forall(s, b, c)(
            implies(
                some(pins(s, b), transfer(s, b), fresh(s, b), reads(s, b))
                & some(pins(s, c), transfer(s, c), fresh(s, c), reads(s, c)),
                Equal(b, c),
            )
        ),
    ),
    Conjunct(
        "holder_is_used",
        "I2",
        "Nothing is left of, or known about, a slot that was never used.",
        forall(s, b)(
            implies(
                some(
                    *(relation(s, b) for relation in (pins, transfer, fresh, reads)),
                    owner(b, s),
                    left(b, s),
                    *(relation(s) for relation in OF_A_SLOT),
                ),
                used(s),
            )
        ),
    ),
    Conjunct(
        "one_writer",
        "I3",
        "A block is written through one slot at most.",
        forall(s, t, b)(implies(fresh(s, b) & fresh(t, b), Equal(s, t))),
    ),
    Conjunct(
        "writer_holds",
        "I3",
        "Who writes a block holds it, through its row or through a transfer.",
        forall(s, b)(implies(fresh(s, b), (pins(s, b) | transfer(s, b)))),
    ),
    Conjunct(
        "writer_holds_alone",
        "I3",
        "A block that is written has no other holder.",
        forall(s, t, b)(implies(fresh(s, b) & (pins(t, b) | transfer(t, b)), Equal(s, t))),
    ),
    Conjunct(
        "fresh_is_not_read",
        "I3",
        "A block that is written is not read as a complete page.",
        forall(s, t, b)(~(fresh(s, b) & reads(t, b))),
    ),
    Conjunct(
        "fresh_is_no_copy",
        "I3",
        "A block that is written is no recorded copy.",
        forall(s, b, p)(~(fresh(s, b) & copy(b, p))),
    ),
    Conjunct(
        "fresh_has_no_key",
        "I10",
        "A block that is written is not found by a key.",
        forall(s, b, p)(~(fresh(s, b) & keyed(b, p))),
    ),
    Conjunct(
        "readers_agree",
        "I7",
        "All readers of a block read the same page in it.",
        forall(s, t, b, p, q)(
            implies(reads(s, b) & reads(t, b) & page(s, p) & page(t, q), Equal(p, q))
        ),
    ),
    Conjunct(
        "copy_is_what_is_read",
        "I7",
        "A recorded copy is of the page that its readers read.",
        forall(s, b, p, q)(implies(reads(s, b) & copy(b, p) & page(s, q), Equal(p, q))),
    ),
    Conjunct(
        "one_page_a_copy",
        "I3",
        "A block is the copy of one page, and a page has one copy in a group.",
        forall(b, p, q)(implies(copy(b, p) & copy(b, q), Equal(p, q)))
        & forall(b, c, p)(implies(copy(b, p) & copy(c, p), Equal(b, c))),
    ),
    Conjunct(
        "key_is_what_is_read",
        "I10",
        "The key of a block is of the page that its readers read, and it is the only one.",
        forall(s, b, p, q)(implies(reads(s, b) & keyed(b, p) & page(s, q), Equal(p, q)))
        & forall(b, p, q)(implies(keyed(b, p) & keyed(b, q), Equal(p, q))),
    ),
    Conjunct(
        "key_is_of_the_indexer",
        "I3",
        "A block with a key is no resident page and no copy.",
        forall(s, b, p)(implies(keyed(b, p) & reads(s, b), ~resident(s)))
        & forall(b, p, q)(~(keyed(b, p) & copy(b, q))),
    ),
    Conjunct(
        "reader_is_live",
        "I2",
        "Only slots of admitted requests read; a live slot that holds a block writes or reads it.",
        forall(s, b)(implies(reads(s, b), live(s)))
        & forall(s, b)(implies(live(s) & pins(s, b), (fresh(s, b) | reads(s, b)))),
    ),
    Conjunct(
        "watcher_armed",
        "I9",
        "A reader that does not hold its block is a resident page that an armed watcher knows.",
        forall(s, b)(
            implies(reads(s, b) & ~pins(s, b), every(watched(b), owner(b, s), resident(s)))
        ),
    ),
    Conjunct(
        "copy_watched_or_held",
        "I9",
        "A recorded copy is watched, or still held by a clean page that will be unpinned.",
        forall(b)(
            some(
                ~exists(p)(copy(b, p)),
                watched(b),
                exists(s)(pins(s, b) & resident(s) & (reads(s, b) | parting(s))),
            )
        ),
    ),
    Conjunct(
        "read_from_gpu_only_if_on_host",
        "I8",
        "A complete resident page, and so every unpinned one, has its complete host page.",
        forall(s, b)(implies(reads(s, b) & resident(s), valid(s) & ~restoring(s))),
    ),
    Conjunct(
        "transfer_is_of_a_written_page",
        "I8",
        "A page in transfer is not yet read on the GPU; if its host page is complete, it is "
        "being restored; a live one is held by its row too.",
        forall(s, b)(
            implies(
                transfer(s, b),
                every(
                    fresh(s, b),
                    resident(s),
                    implies(valid(s), restoring(s)),
                    implies(live(s), pins(s, b)),
                ),
            )
        )
        & forall(s, b)(implies(fresh(s, b) & restoring(s), valid(s) & transfer(s, b)))
        & forall(s, b)(implies(fresh(s, b) & valid(s) & live(s), restoring(s))),
    ),
    Conjunct(
        "valid_is_durable",
        "I8",
        "A host page is complete, or published, only after a complete write of it.",
        forall(s, p)(implies(valid(s) & page(s, p), durable(p)))
        & forall(p)(implies(published(p), durable(p))),
    ),
    Conjunct(
        "offered_is_a_complete_prefix",
        "I8",
        "What a request published is complete, and so is everything before it in its row.",
        forall(s)(implies(offered(s), valid(s)))
        & forall(s, t)(implies(offered(s) & before(t, s), valid(t))),
    ),
    Conjunct(
        "cut_is_never_published",
        "I8",
        "A write pending at a preemption never makes its page complete or published.",
        forall(s)(implies(cut(s), ~(valid(s) | live(s) | leased(s) | offered(s))))
        & forall(s)(~(leased(s) & live(s))),
    ),
    Conjunct(
        "wanting_is_empty",
        "I2",
        "A page that waits for its copy, or for an import, is live and has no block; the first is "
        "complete on the host, the second not.",
        forall(s, b)(
            implies(
                wanting(s) | importing(s),
                every(live(s), resident(s), ~restoring(s), ~pins(s, b), ~reads(s, b), ~fresh(s, b)),
            )
        )
        & forall(s)((implies(wanting(s), valid(s))) & (implies(importing(s), ~valid(s)))),
    ),
    Conjunct(
        "parting_is_clean",
        "I8",
        "What a release still has to unpin is a resident page, complete on the host, and dead.",
        forall(s)(implies(parting(s), every(resident(s), valid(s), ~live(s))))
        & forall(s, b)(implies(parting(s), ~fresh(s, b))),
    ),
    Conjunct(
        "due_is_queued",
        "I4",
        "Copies that admission counted as free are free until they are pinned or handed out.",
        forall(b)(implies(due(b), queued(b))),
    ),
    Conjunct(
        "due_is_complete",
        "I4",
        "Until the pops begin, every free copy that the hit can pin was counted.",
        forall(s, b, p)(
            implies(every(touching(), wanting(s), page(s, p), copy(b, p), queued(b)), due(b))
        ),
    ),
    Conjunct(
        "phases",
        "I4",
        "No counter is negative; touches come before pops; between allocations nothing is asked.",
        every(
            free >= 0,
            to_touch >= 0,
            to_pop >= 0,
            to_pin >= 0,
            ~(touching() & popping()),
            touching() | to_touch.equals(0),
            some(touching(), popping(), to_pop.equals(0)),
            forall(b)(implies(hit(b), touching())),
        ),
    ),
    Conjunct(
        "capacity",
        "I4",
        "During an allocation the free blocks suffice for what is still to touch and to pop (and, "
        "where admission charged them, to pin).",
        TRUE,
    ),
    Conjunct(
        "queue_has_one_order",
        "I11",
        "Of two blocks in the free queue one is ahead, and only blocks in it are.",
        forall(b, c)(implies(ahead(b, c), every(queued(b), queued(c), ~ahead(c, b)))),
    ),
    Conjunct(
        "rows_live_as_a_whole",
        "I11",
        "Everything before a live slot in its row is live.",
        forall(s, t)(implies(live(s) & before(t, s), live(t))),
    ),
    Conjunct(
        "left_is_queued",
        "I11",
        "What a release left, and nobody took, is in the queue, under one slot.",
        forall(b, s)(implies(left(b, s), queued(b)))
        & forall(b, s, t)(implies(left(b, s) & left(b, t), Equal(s, t))),
    ),
    Conjunct(
        "released_tail_first",
        "I11",
        "When a release has put back a page, it has nothing behind that page left to unpin.",
        forall(b, c, s, t)(
            implies((left(b, t) | gone(t)) & before(t, s), ~(parting(s) & pins(s, c)))
        )
        & forall(b, c, s)(implies(left(b, s) | gone(s), ~(live(s) | parting(s) & pins(s, c)))),
    ),
    Conjunct(
        "left_tail_ahead",
        "I11",
        "Of two pages that one release left, the later page is handed out first.",
        forall(b, c, s, t)(implies(left(b, s) & left(c, t) & before(s, t), ahead(c, b))),
    ),
    Conjunct(
        "survivors_are_the_head",
        "I11",
        "No page before a copy that survives was handed out: survivors are the head of a prefix.",
        forall(b, s, t)(implies(left(b, s) & gone(t), ~before(t, s))),
    ),
)
"""All conjuncts; ``capacity`` is filled in by the policy."""

TAIL_FIRST_ONLY = ("released_tail_first", "left_tail_ahead", "survivors_are_the_head")
"""Conjuncts that a policy which releases head first breaks by design (rule I11)."""


def capacity(policy: Policy) -> Formula:
    """The free blocks suffice for what the allocation that is going on still takes."""
    demand = to_touch + to_pop
    if policy.charge_copies:
        demand = demand + to_pin
    return implies(some(touching(), popping()), (free >= demand))


def conjuncts(policy: Policy) -> tuple[Conjunct, ...]:
    """The invariant of a policy."""
    chosen = [
        conjunct
        for conjunct in CONJUNCTS
        if policy.tail_first or conjunct.name not in TAIL_FIRST_ONLY
    ]
    return tuple(
        Conjunct(x.name, x.rule, x.sentence, capacity(policy)) if x.name == "capacity" else x
        for x in chosen
    )
