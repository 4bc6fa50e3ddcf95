"""Effort: does the bookkeeping of a step grow with the length of the context?

Not time is counted but the instructions that the interpreter executes in the engine's own code, so
the answer is the same each time, and a loop over all pages shows whatever it does: a step that
decodes one token after a short context, and one after a long context.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from model.scheduler.engine import Engine
from model.scheduler.minimum import minimum_pools
from model.scheduler.plan import NewRequest, StepOutcome, StepPlan
from model.scheduler.setup import SchedulerSetup

SHORT, LONG = 16, 128
"""Pages of context."""
DECODED = 12
"""Tokens decoded before the step that is counted: what is new is done then."""
BLOCK_SIZE = 4


@dataclass(frozen=True, slots=True)
class Effort:
    """Instructions of one decoding step."""

    cache: str
    asynchronous: bool
    short: int
    long: int

    @property
    def grows(self) -> bool:
        return self.long > self.short


def efforts(
    new_engine: Callable[[SchedulerSetup], Engine], is_engine: Callable[[FrameType], bool]
) -> Iterator[Effort]:
    """Measure every kind of cache under both schedulers; ``is_engine`` says whose code it is."""
    for cache in ("full", "sliding", "mamba", "hisparse"):
        for asynchronous in (False, True):
            short, long = (
                _cost_of_a_step(new_engine(_setup(cache, asynchronous, pages)), pages, is_engine)
                for pages in (SHORT, LONG)
            )
            yield Effort(cache, asynchronous, short, long)


def _setup(cache: str, asynchronous: bool, pages: int) -> SchedulerSetup:
    draft = {
        "cache": cache,
        "block_size": BLOCK_SIZE,
        "max_model_len": (pages + DECODED) * BLOCK_SIZE,
        "max_num_batched_tokens": pages * BLOCK_SIZE,
        "max_num_seqs": 1,
        "sliding_window": 2 * BLOCK_SIZE if cache == "sliding" else 0,
        "async_scheduling": asynchronous,
    }
    ample = 8 * (pages + DECODED)
    hosts = ample if cache == "hisparse" else 0
    setup = SchedulerSetup(num_blocks=ample, num_host_blocks=hosts, **draft)  # type: ignore[arg-type]
    assert minimum_pools(setup).gpu_blocks <= ample
    return setup


def _cost_of_a_step(engine: Engine, pages: int, is_engine: Callable[[FrameType], bool]) -> int:
    engine.add(NewRequest(0, tuple(range(pages * BLOCK_SIZE)), DECODED * BLOCK_SIZE - 1))
    flight: list[StepPlan] = []
    for _ in range(DECODED):
        flight.append(engine.schedule())
        if len(flight) == engine.steps_in_flight_max:
            _finish(engine, flight.pop(0))
    with _counting(is_engine) as instructions:
        flight.append(engine.schedule())
        _finish(engine, flight.pop(0))
    return instructions[0]


def _finish(engine: Engine, plan: StepPlan) -> None:
    transfers = {transfer.id: 1 for transfer in plan.transfers}
    engine.update(
        plan.step,
        StepOutcome(
            sampled={share.request: (1,) for share in plan.scheduled if share.samples},
            enqueued=transfers,
            completed=transfers,
            host_copies_done=tuple(target for _, target in plan.host_copies),
        ),
    )


@contextmanager
def _counting(is_engine: Callable[[FrameType], bool]) -> Iterator[list[int]]:
    instructions = [0]

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:
        if not is_engine(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        instructions[0] += event == "opcode"
        return count

    outer = sys.gettrace()
    sys.settrace(enter)
    try:
        yield instructions
    finally:
        sys.settrace(outer)
