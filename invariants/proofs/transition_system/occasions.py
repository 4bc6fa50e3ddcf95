"""Situations that the invariant must allow: a proof about states without them would be empty."""

from dataclasses import dataclass

from invariants.proofs.transition_system.actions.action import (
    Action,
    B,
    S,
    chosen_slots,
    ended,
    last,
)
from invariants.proofs.transition_system.actions.allocation import adopt
from invariants.proofs.transition_system.actions.release import part
from invariants.proofs.transition_system.actions.system import SHARED_ACTIONS
from invariants.proofs.transition_system.formula import Equal, Formula, every, exists
from invariants.proofs.transition_system.policy import DEFERRED
from invariants.proofs.transition_system.vocabulary import (
    b,
    before,
    c,
    copy,
    cut,
    gone,
    leased,
    left,
    p,
    pins,
    queued,
    reads,
    s,
    t,
    transfer,
    valid,
    watched,
)

_BY_NAME = {action.name: action for action in (*SHARED_ACTIONS, adopt(DEFERRED), part(DEFERRED))}


@dataclass(frozen=True, slots=True)
class Occasion:
    sentence: str
    rule: str
    action: Action
    condition: Formula


OCCASIONS = {
    name: Occasion(sentence, rule, _BY_NAME[action], condition)
    for name, sentence, rule, action, condition in (
        (
            "adopts_a_free_copy",
            "a copy that is adopted is in the free queue",
            "I4",
            "adopt",
            queued(B),
        ),
        (
            "adopts_a_held_copy",
            "a copy that is adopted is held by another request",
            "I3",
            "adopt",
            exists(t)(pins(t, B) & ~Equal(t, S)),
        ),
        (
            "reuses_under_two_readers",
            "a block is handed out that two slots still read, and that is a copy",
            "I9",
            "pop",
            every(
                watched(B),
                exists(s, t)(every(reads(s, B), reads(t, B), ~Equal(s, t))),
                exists(p)(copy(B, p)),
            ),
        ),
        (
            "preempts_while_writing",
            "a request is preempted while a write is pending and another page is complete",
            "I8",
            "release",
            every(
                ~ended(),
                exists(s, b)(chosen_slots(s) & transfer(s, b)),
                exists(s, b)(every(chosen_slots(s), valid(s), pins(s, b))),
            ),
        ),
        (
            "cut_write_completes",
            "the write of a preempted request completes, and its block becomes free",
            "I8",
            "complete_orphan",
            cut(S) & last(),
        ),
        (
            "leased_write_completes",
            "the write of an ended request completes while a deferred release holds the block",
            "I8",
            "complete_orphan",
            every(leased(S), ~valid(S), pins(S, B)),
        ),
        (
            "releases_before_what_it_left",
            "a release puts back a page in front of one that it left in the queue",
            "I11",
            "part",
            every(last(), exists(c, t)(left(c, t) & before(S, t))),
        ),
        (
            "hands_out_what_was_left",
            "a copy is handed out; one in front of it survives, one behind it is gone",
            "I11",
            "pop",
            every(
                exists(p)(copy(B, p)),
                exists(b, s, t)(every(left(B, s), left(b, t), before(t, s))),
                exists(s, t)(every(left(B, s), gone(t), before(s, t))),
            ),
        ),
    )
}
