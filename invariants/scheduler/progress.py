"""Progress: with finite work every request ends, and then everything is free.

After the last action of a program the worker and the store do all that they were asked, at once,
and the engine steps on. It must come to an end of all requests.
"""

from collections.abc import Iterator
from dataclasses import fields

from invariants.scheduler.run import Run
from invariants.violation import Cause
from model.scheduler.actions import CompleteLoad, CompleteTransfers, Output, Step
from model.scheduler.setup import SchedulerSetup

EVERYTHING = 1_000_000
IDLE_ROUNDS = 4
"""Rounds in which nothing at all happens, after which nothing will."""


def drain(run: Run) -> bool:
    """Let everything end; say whether it did. A violation of I16 says who waits for what."""
    idle = since_delivery = 0
    while run.live or run.flight or run.transfers or run.loads or run.engine.has_requests():
        if run.violations:
            return False
        moved, delivered = _round(run)
        idle = 0 if moved else idle + 1
        since_delivery = 0 if delivered else since_delivery + 1
        if idle > IDLE_ROUNDS + _delays(run):
            text = "nothing runs, nothing is pending, and requests wait"
            run.report("I16", Cause.NOTHING_RUNS, text, *waiting(run))
            return False
        if since_delivery > patience(run.setup, len(run.live)) + _delays(run):
            text = "requests are scheduled again and again and none gets a token"
            run.report("I16", Cause.NO_TOKEN, text, *waiting(run))
            return False
    run.judge_quiescence()
    return True


def patience(setup: SchedulerSetup, requests: int) -> int:
    """Rounds within which one of so many requests must get a token: each may start anew."""
    budget = setup.max_num_batched_tokens
    chunk = min(setup.long_prefill_threshold or budget, budget)
    chunks = -(-setup.max_model_len // chunk)
    return 8 + 4 * requests * (chunks + 2)


def _delays(run: Run) -> int:
    return sum(run.lives[number].arrive.delays for number in run.live)


def _round(run: Run) -> tuple[bool, bool]:
    """One step and all that is pending; say whether anything moved, and a client got a token."""
    before = sum(life.delivered for life in run.lives.values()), len(run.live)
    responses = [run.do(Step())]
    responses += [run.do(CompleteLoad()) for _ in range(len(run.loads))]
    responses.append(run.do(CompleteTransfers(EVERYTHING)))
    responses += [run.do(Output()) for _ in range(len(run.flight))]
    delivered = before != (sum(life.delivered for life in run.lives.values()), len(run.live))
    return delivered or any(map(_moves, (e for r in responses for e in r))), delivered


def _moves(event: tuple[object, ...]) -> bool:
    if event[0] == "step":
        return bool(event[2]) or bool(event[3])
    return event[0] in ("loaded", "transferred", "ended")


def waiting(run: Run) -> Iterator[str]:
    """Who waits, holding what, and what is free."""
    for number, view in run.engine.statuses().items():
        yield (
            f"request {number} is {view.status}: {view.computed} of {view.tokens} tokens computed, "
            f"preempted {view.preemptions} times"
        )
    for pool in run.engine.pool_states():
        held: dict[str, list[int]] = {}
        for block, holders in sorted(pool.holders.items()):
            for holder in holders:
                held.setdefault(holder, []).append(block)
        free = f"{pool.name} pool: {len(pool.free)} of {len(pool.counts) - 1} blocks free"
        yield "; ".join([free, *(f"{holder} holds {blocks}" for holder, blocks in held.items())])
    pending = run.engine.pending()
    found = [
        f"{field.name.replace('_', ' ')} {list(getattr(pending, field.name))}"
        for field in fields(pending)
        if getattr(pending, field.name)
    ]
    yield f"pending: {', '.join(found) or 'nothing'}"
