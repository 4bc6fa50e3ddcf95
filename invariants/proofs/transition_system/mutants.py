"""Actions with one fault each, and the obligation that must see it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from invariants.proofs.transition_system.actions.action import (
    Action,
    B,
    P,
    S,
    chosen_pops,
    chosen_touches,
    last,
)
from invariants.proofs.transition_system.actions.release import part
from invariants.proofs.transition_system.actions.system import actions
from invariants.proofs.transition_system.actions.updates import (
    every_copy_counted,
    head_of_queue,
    only_holder,
    prefix_complete,
)
from invariants.proofs.transition_system.formula import (
    TRUE,
    Counter,
    Equal,
    Formula,
    Relation,
    Update,
    every,
    flattened,
    forall,
    iff,
    implies,
    some,
)
from invariants.proofs.transition_system.policy import CHARGED, DEFERRED, EAGER, Policy
from invariants.proofs.transition_system.vocabulary import (
    ahead,
    copy,
    free,
    keyed,
    owner,
    page,
    pins,
    queued,
    reads,
    t,
    to_pop,
    transfer,
    valid,
    watched,
)
from model.releases import first_with


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    fault: str
    action: Action
    dies_at: str
    """The conjunct that it breaks, or ``counter …`` for a counter obligation."""
    policy: Policy = DEFERRED


def mutants() -> tuple[Mutant, ...]:
    """One for each thing that an engine must not forget."""
    right = {action.name: action for action in actions(DEFERRED)}
    return (*_allocation(right), *_residency(right), *_release(right), *_publication(right))


def _allocation(right: dict[str, Action]) -> Iterator[Mutant]:
    begin, pop, touch, adopt = (right[name] for name in ("begin", "pop", "touch", "adopt"))
    yield Mutant(
        "hits_are_not_counted",
        "admission asks for the blocks to pop, not for the free blocks of the hit",
        lifted(begin, free >= chosen_touches + chosen_pops, adding=free >= chosen_pops),
        "capacity",
    )
    charging = next(each for each in actions(CHARGED) if each.name == "begin")
    yield Mutant(
        "copies_are_miscounted",
        "a charging admission does not count every copy that the hit can pin",
        lifted(charging, every_copy_counted),
        "due_is_complete",
        CHARGED,
    )
    yield Mutant(
        "touched_block_stays_queued",
        "touching a free block of the hit leaves it in the queue",
        leaves(touch, queued),
        "queued_iff_unheld",
    )
    yield Mutant(
        "readers_go_on",
        "a hand-out does not stop the block's readers",
        leaves(pop, reads),
        "fresh_is_not_read",
    )
    yield Mutant(
        "copy_stays_recorded",
        "a hand-out does not drop the recorded copy",
        leaves(pop, copy),
        "fresh_is_no_copy",
    )
    yield Mutant(
        "key_stays",
        "a hand-out does not evict the block's key",
        leaves(pop, keyed),
        "fresh_has_no_key",
    )
    yield Mutant(
        "any_block_is_next",
        "a hand-out takes any free block, not the head of the queue",
        lifted(pop, head_of_queue, adding=queued(B)),
        "survivors_are_the_head",
    )
    yield Mutant(
        "free_is_not_counted_down",
        "a hand-out leaves the counter of free blocks as it is",
        counts(pop, free),
        "counter free",
    )
    yield Mutant(
        "pop_is_not_counted",
        "a hand-out does not count as one of those that are promised",
        counts(pop, to_pop),
        "counter to_pop",
    )
    yield Mutant(
        "adopts_another_page",
        "a hit adopts the copy of another page",
        lifted(adopt, page(S, P)),
        "readers_agree",
    )
    yield Mutant(
        "adopts_without_holding",
        "an adopted copy is read, and not pinned",
        leaves(adopt, pins),
        "watcher_armed",
    )


def _residency(right: dict[str, Action]) -> Iterator[Mutant]:
    unpin = right["unpin"]
    yield Mutant(
        "watcher_is_not_armed",
        "unpinning does not arm the watcher",
        leaves(unpin, watched),
        "watcher_armed",
    )
    yield Mutant(
        "reader_is_not_registered",
        "unpinning does not register the reader",
        leaves(unpin, owner),
        "watcher_armed",
    )
    yield Mutant(
        "dirty_page_is_unpinned",
        "a page is unpinned before its host page is complete",
        lifted(unpin, every(valid(S), reads(S, B))),
        "writer_holds",
    )


def _release(right: dict[str, Action]) -> Iterator[Mutant]:
    parting, give_back = right["part"], right["give_back"]
    yield Mutant(
        "released_copy_is_not_watched",
        "a release unpins a copy without arming the watcher",
        leaves(parting, watched),
        "copy_watched_or_held",
    )
    yield Mutant(
        "released_head_first",
        f"a release unpins head first ({first_with(unpin_release_tail_first=False).version})",
        part(EAGER),
        "released_tail_first",
    )
    yield Mutant(
        "copies_go_to_the_head",
        "a release queues its copies at the head",
        changes(
            parting,
            ahead,
            lambda x, y: some(ahead(x, y), every(last(), queued(y), Equal(x, B))),
        ),
        "left_tail_ahead",
    )
    yield Mutant(
        "queued_while_held",
        "a block is queued though another slot holds it",
        lifted(give_back, only_holder(S, B, pins, transfer), adding=last()),
        "queued_iff_unheld",
    )
    others = forall(t)(implies(~Equal(t, S), ~pins(t, B)))
    yield Mutant(
        "pending_write_does_not_hold",
        "a block is queued though a write that was pending at the release still reads it",
        lifted(give_back, only_holder(S, B, pins, transfer), adding=iff(last(), others)),
        "queued_iff_unheld",
    )


def _publication(right: dict[str, Action]) -> Iterator[Mutant]:
    publish, orphan = right["publish"], right["complete_orphan"]
    yield Mutant(
        "preempted_write_counts",
        "a write pending at a preemption counts when it completes",
        changes(orphan, valid, lambda x: valid(x) | Equal(x, S)),
        "cut_is_never_published",
    )
    yield Mutant(
        "published_before_written",
        "a page is published before its host page is complete",
        lifted(publish, valid(S)),
        "valid_is_durable",
    )
    yield Mutant(
        "published_with_a_gap",
        "a page is published before the pages in front of it are complete",
        lifted(publish, prefix_complete),
        "offered_is_a_complete_prefix",
    )


# How an action is spoilt.


def leaves(action: Action, *relations: Relation) -> Action:
    """The action, but it leaves these relations as they were."""
    names = {relation.name for relation in relations}
    if not names <= set(action.relations):
        raise ValueError(f"{action.name} does not change all of {sorted(names)}")
    kept = {name: update for name, update in action.relations.items() if name not in names}
    return replace(action, relations=kept)


def changes(action: Action, relation: Relation, update: Update) -> Action:
    return replace(action, relations={**action.relations, relation.name: update})


def counts(action: Action, counter: Counter) -> Action:
    """The action, but it leaves this counter as it was."""
    return replace(action, counters={**action.counters, counter.name: counter})


def lifted(action: Action, guard: Formula, adding: Formula = TRUE) -> Action:
    """The action without a part of its guard."""
    dropped = list(flattened(guard))
    parts = list(flattened(action.guard))
    if any(part not in parts for part in dropped):
        raise ValueError(f"the guard of {action.name} has no such part")
    return replace(action, guard=every(adding, *(part for part in parts if part not in dropped)))
