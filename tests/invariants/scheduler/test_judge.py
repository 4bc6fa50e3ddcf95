"""The judge of the scheduler level beside a session on an engine that answers by a script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from invariants.scheduler.judge import Judge
from invariants.violation import Cause
from model.scheduler.actions import Abort, Arrive, Output, Step
from model.scheduler.events import Arrived, Ended, Idle, OutputProcessed, StepScheduled
from model.scheduler.happenings import ActionTaken, Delivered, Happening, StepExecuted
from model.scheduler.plan import Output as Told
from model.scheduler.plan import PoolState, Scheduled, StepOutcome, StepPlan
from model.scheduler.session import Session
from model.scheduler.setup import SchedulerSetup

SETUP = SchedulerSetup(
    "full", block_size=4, num_blocks=9, max_model_len=16, max_num_batched_tokens=16, max_num_seqs=2
)
POOL = PoolState("gpu", (0, 0), (1,), 1, {}, {}, {})
SHARE = Scheduled(0, 6, 0, "new", ((1, 2),), samples=True)
FIRST = StepPlan(1, (SHARE,), (), (), (), (), ())


class Scripted:
    """One request: its first step is planned, and its output ends it."""

    steps_in_flight_max = 1

    def __init__(self, plan: StepPlan = FIRST, pool: PoolState = POOL) -> None:
        self.plan = plan
        self.pool = pool
        self.wrong = 0
        """Added to the tokens that clients are told."""
        self.waiting = False

    def add(self, _: object) -> None:
        self.waiting = True

    def has_requests(self) -> bool:
        return self.waiting

    def abort(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        self.waiting = False
        return ids

    def schedule(self) -> StepPlan:
        return self.plan

    def update(self, _: int, outcome: StepOutcome) -> tuple[Told, ...]:
        self.waiting = False
        (token,) = outcome.sampled[0]
        return (Told(0, (token + self.wrong,), "length"),)

    def pool_states(self) -> tuple[PoolState, ...]:
        return (self.pool,)

    def statuses(self) -> dict[int, Any]:
        return {}


def judge_of(engine: Any, audit_every: int = 1) -> Judge:
    return Judge(SETUP, engine, audit_every)


def test_a_session_drives_and_tells_what_happens_and_judges_nothing() -> None:
    engine: Any = Scripted()
    engine.wrong = 1
    told: list[Happening] = []
    session = Session(SETUP, engine, observers=[told.append])
    assert session.do(Step()) == (Idle(),)
    assert session.do(Arrive(prompt=6, output=1)) == (Arrived(0, 6, 1, 0),)
    assert session.do(Step()) == (StepScheduled(1, ((0, 0, 6),), ()),)
    assert not session.settled
    assert session.do(Output()) == (OutputProcessed(1), Ended(0, "length"))
    assert session.settled
    kinds = [type(happening) for happening in told]
    assert kinds == [ActionTaken, ActionTaken, StepExecuted, ActionTaken, Delivered, ActionTaken]


def test_an_aborted_request_ends_at_once() -> None:
    judge = judge_of(Scripted())
    judge.do(Arrive())
    assert judge.do(Abort()) == (Ended(0, "abort"),)
    assert judge.session.live == []


def test_right_tokens_on_sound_pools_break_no_rule() -> None:
    judge = judge_of(Scripted())
    for action in (Arrive(prompt=6), Step(), Output()):
        judge.do(action)
    judge.judge_quiescence()
    assert judge.violations == []
    assert judge.pools == (POOL,)


def test_a_wrong_token_is_a_violation_of_the_action_that_delivers_it() -> None:
    engine = Scripted()
    engine.wrong = 1
    judge = judge_of(engine)
    for action in (Arrive(prompt=6), Step(), Output()):
        judge.do(action)
    assert [(v.rule, v.step, v.cause) for v in judge.violations] == [("I7", 2, Cause.WRONG_TOKENS)]


def test_what_is_misread_is_kept_for_the_defects_that_are_known() -> None:
    hit = replace(SHARE, tokens=2, computed=4)  # its first page was never written
    judge = judge_of(Scripted(replace(FIRST, scheduled=(hit,))))
    judge.do(Arrive(prompt=6))
    judge.do(Step())
    assert [(v.rule, v.step, v.cause) for v in judge.violations] == [("I7", 1, Cause.MISREAD)]
    assert [(m.request, m.page, m.where) for m in judge.misread] == [(0, 0, "block 1")]


def test_pools_are_looked_at_now_and_then_and_a_rule_is_broken_once_by_an_action() -> None:
    broken = replace(POOL, num_free=2, free=(1, 1))  # I1 twice over
    judge = judge_of(Scripted(pool=broken), audit_every=2)
    judge.do(Step())
    assert judge.violations == []
    judge.do(Step())
    judge.do(Step())
    judge.do(Step())
    assert [(v.rule, v.step) for v in judge.violations] == [("I1", 1), ("I1", 3)]


def test_what_is_left_at_the_end_is_a_violation() -> None:
    judge = judge_of(Scripted(pool=replace(POOL, free=(), num_free=0)), audit_every=9)
    judge.judge_quiescence()
    assert [(v.rule, v.cause) for v in judge.violations] == [("I12", Cause.NOT_FREE)]
