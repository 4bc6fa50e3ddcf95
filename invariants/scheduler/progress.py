"""Progress: with finite work every request ends, and then everything is free.

After the last action of a program the worker and the store do all that they were asked, at once,
and the engine steps on. It must come to an end of all requests.
"""

from collections.abc import Iterator
from dataclasses import fields

from invariants.scheduler.judge import Judge
from invariants.violation import Cause
from model.scheduler.actions import CompleteLoad, CompleteTransfers, Output, Step
from model.scheduler.engine import Engine
from model.scheduler.events import Ended, Event, LoadEnded, StepScheduled, TransfersCompleted
from model.scheduler.session import Session
from model.scheduler.setup import SchedulerSetup

EVERYTHING = 1_000_000
IDLE_ROUNDS = 4
"""Rounds in which nothing at all happens, after which nothing will."""


def drain(judge: Judge) -> bool:
    """Let everything end; say whether it did. A violation of I16 says who waits for what."""
    session = judge.session
    idle = since_delivery = 0
    while not session.settled:
        if judge.violations:
            return False
        moved, delivered = _round(session)
        idle = 0 if moved else idle + 1
        since_delivery = 0 if delivered else since_delivery + 1
        if idle > IDLE_ROUNDS + _delays(session):
            text = "nothing runs, nothing is pending, and requests wait"
            judge.report("I16", Cause.NOTHING_RUNS, text, *waiting(session.engine))
            return False
        if since_delivery > patience(session.setup, len(session.live)) + _delays(session):
            text = "requests are scheduled again and again and none gets a token"
            judge.report("I16", Cause.NO_TOKEN, text, *waiting(session.engine))
            return False
    judge.judge_quiescence()
    return True


def patience(setup: SchedulerSetup, requests: int) -> int:
    """Rounds within which one of so many requests must get a token: each may start anew."""
    budget = setup.max_num_batched_tokens
    chunk = min(setup.long_prefill_threshold or budget, budget)
    chunks = -(-setup.max_model_len // chunk)
    return 8 + 4 * requests * (chunks + 2)


def _delays(session: Session) -> int:
    return sum(session.lives[number].arrive.delays for number in session.live)


def _round(session: Session) -> tuple[bool, bool]:
    """One step and all that is pending; say whether anything moved, and a client got a token."""
    before = _progress(session)
    responses = [session.do(Step())]
    responses += [session.do(CompleteLoad()) for _ in range(len(session.store.loads))]
    responses.append(session.do(CompleteTransfers(EVERYTHING)))
    responses += [session.do(Output()) for _ in range(len(session.flight))]
    delivered = before != _progress(session)
    return delivered or any(_moves(event) for told in responses for event in told), delivered


def _progress(session: Session) -> tuple[int, int]:
    """(tokens that clients got, requests that have not ended)."""
    return sum(life.delivered for life in session.lives.values()), len(session.live)


def _moves(event: Event) -> bool:
    if isinstance(event, StepScheduled):
        return bool(event.shares or event.preempted)
    return isinstance(event, LoadEnded | TransfersCompleted | Ended)


def waiting(engine: Engine) -> Iterator[str]:
    """Who waits, holding what, and what is free."""
    for number, view in engine.statuses().items():
        yield (
            f"request {number} is {view.status}: {view.computed} of {view.tokens} tokens computed, "
            f"preempted {view.preemptions} times"
        )
    for pool in engine.pool_states():
        held: dict[str, list[int]] = {}
        for block, holders in sorted(pool.holders.items()):
            for holder in holders:
                held.setdefault(holder, []).append(block)
        free = f"{pool.name} pool: {len(pool.free)} of {len(pool.counts) - 1} blocks free"
        yield "; ".join([free, *(f"{holder} holds {blocks}" for holder, blocks in held.items())])
    pending = engine.pending()
    found = [
        f"{field.name.replace('_', ' ')} {list(getattr(pending, field.name))}"
        for field in fields(pending)
        if getattr(pending, field.name)
    ]
    yield f"pending: {', '.join(found) or 'nothing'}"
