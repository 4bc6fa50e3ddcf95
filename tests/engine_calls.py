"""Runs of a released engine with its calls recorded or shadowed, in the engine's interpreter.

    python engine_calls.py SOURCE VERSION LEVEL FOLDER RUNS

LEVEL ``manager``: programs of the file FOLDER/programs.json; ``scheduler``: drawn runs of
schedulers, both recorded into FOLDER; ``shadow``: the same with the shadow beside them, whose
counts are written to standard output; ``lying``: the same, with an engine that is wrong;
``twins``: the same, and at the end the model is wrong in one field after the other.
"""

from __future__ import annotations

import copy
import json
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

door = Path(__file__).parents[1] / "kvproof" / "engines" / "vllm" / "inside" / "start.py"
runpy.run_path(str(door))["open_door"]()

from kvproof.engines.vllm.inside.loading import install  # noqa: E402 - the door comes first

source, version, level, folder, runs = sys.argv[1:]
install(Path(source))

from invariants.conformance.mirror import Mirror  # noqa: E402 - the loader comes first
from kvproof.engines.vllm.inside import shadow as engine_shadow  # noqa: E402
from kvproof.engines.vllm.inside.allocator import EngineAllocator  # noqa: E402
from kvproof.engines.vllm.inside.configuration import startup_minimum  # noqa: E402
from kvproof.engines.vllm.inside.recorder import Recorder  # noqa: E402
from kvproof.engines.vllm.inside.scheduler import EngineScheduler  # noqa: E402
from model.manager.program import MANAGER, ManagerProgram  # noqa: E402
from model.manager.session import Session  # noqa: E402
from model.releases import DIALECTS  # noqa: E402
from model.scheduler.plan import External, NewRequest, StepOutcome  # noqa: E402
from model.scheduler.setup import SchedulerSetup  # noqa: E402

STEPS = 80
TOKENS = (7, 8)
"""Few sampled tokens, so that requests stay alike."""


def run_program(program: ManagerProgram) -> None:
    """One program at the manager level; the session says where its steps end."""
    engine = EngineAllocator(program.configuration)
    session = Session(program.configuration, engine)
    tap = engine._manager._kvproof_tap

    def marking(call: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*arguments: Any) -> Any:
            answer = call(*arguments)
            tap.scheduled([(str(key), tokens) for key, tokens in session.scheduled.items()])
            return answer

        return marked

    last = "take_updates" if program.configuration.hisparse else "common_prefix"
    setattr(engine, last, marking(getattr(engine, last)))
    for action in program.actions:
        session.do(action)
        if session.dead:
            return


def draw_setup(random: Random, **fixed: Any) -> SchedulerSetup:
    """A setup at the engine's start-up minimum or just above."""
    size, pages = random.choice((1, 2, 2, 4)), random.randint(3, 8)
    hisparse = random.random() < 0.75
    draft = SchedulerSetup(
        cache="hisparse" if hisparse else "full",
        block_size=size,
        num_blocks=1,
        max_model_len=size * pages,
        max_num_batched_tokens=max(4, random.choice((size * pages, 2 * size, size + 1))),
        max_num_seqs=4,
        num_resident_groups=random.choice((1, 1, 2)),
        hot_blocks=random.choice((1, 1, 2)),
        prefix_caching=random.random() < 0.85,
        async_scheduling=random.random() < 0.5,
        policy=random.choice(("fcfs", "priority")),
        long_prefill_threshold=random.choice((0, 0, size)),
        watermark_blocks=random.choice((0, 0, 1)),
    )
    draft = replace(draft, **fixed)
    least = startup_minimum(draft)
    return replace(
        draft,
        num_blocks=least.gpu_blocks + random.choice((0, 0, 1, 2, 3, 6, 10)),
        num_host_blocks=least.host_blocks + random.choice((0, 2, 5)) if draft.hisparse else 0,
    )


def draw_request(random: Random, number: int, setup: SchedulerSetup) -> NewRequest:
    family, length = random.choice((1, 2)), random.randint(1, setup.max_model_len - 1)
    shared = min(random.randint(0, setup.max_model_len - 1), length)
    own = [1_000_000 * (number + 1) + position for position in range(shared, length)]
    return NewRequest(
        id=number,
        tokens=tuple([family * 1_000 + position for position in range(shared)] + own),
        max_tokens=random.randint(1, 6),
        priority=random.randint(0, 2),
        arrival=float(number),
        salt=random.choice((0, 0, 0, 1)),
        external=External(length - 1, False) if setup.external_store else External(),
    )


def serve(engine: EngineScheduler, random: Random) -> int:
    """Requests come and go, steps are scheduled and processed; returns the steps processed."""
    flight: list[Any] = []
    late: list[int] = []
    arrived = processed = 0
    for _ in range(STEPS):
        while random.random() < 0.4 and len(engine.statuses()) < 6:
            engine.add(draw_request(random, arrived, engine.setup))
            arrived += 1
        if random.random() < 0.05 and engine.statuses():
            engine.abort([random.choice(list(engine.statuses()))])
        if random.random() < 0.03:
            engine.reset_prefix_cache()
        if engine.has_requests() and len(flight) < engine.steps_in_flight_max:
            flight.append(engine.schedule())
            if random.random() < 0.7:
                continue
        if flight:
            plan = flight.pop(0)
            late += [transfer.id for transfer in plan.transfers]
            count = random.randint(0, len(late))
            done, late = late[:count], late[count:]
            sampled = {s.request: [random.choice(TOKENS)] for s in plan.scheduled if s.samples}
            outcome = StepOutcome(
                sampled=sampled,
                enqueued={transfer.id: 1 for transfer in plan.transfers},
                completed=dict.fromkeys(done, 1),
            )
            engine.update(plan.step, outcome)
            processed += 1
    return processed


def is_out_of_blocks(error: ValueError) -> bool:
    """The crash of 0.30.0 that is known: the engine is dead, and the run over."""
    return str(error).startswith("Cannot get ")


def serve_until_crash(engine: EngineScheduler, random: Random) -> int:
    try:
        return serve(engine, random)
    except ValueError as error:
        if not is_out_of_blocks(error):
            raise
        return 0


def record_runs() -> None:
    recorder = Recorder(str(Path(folder, "calls.ndjson")), version)
    if level == "manager":
        for data in json.loads(Path(folder, "programs.json").read_text())[: int(runs)]:
            run_program(MANAGER.read(data))
    else:
        for seed in range(int(runs)):
            random = Random(seed)
            serve_until_crash(EngineScheduler(draw_setup(random)), random)
    recorder.stop()


def shadow_runs(**fixed: Any) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for seed in range(int(runs)):
        random = Random(seed)
        engine = EngineScheduler(draw_setup(random, **fixed))
        shadow = engine_shadow.shadow_of(engine, DIALECTS[f"vllm-{version}"])
        assert shadow is not None
        if level == "lying":
            lie(engine)
        steps = serve_until_crash(engine, random)
        twins = twins_of(shadow.mirror) if level == "twins" and shadow.follows else ()
        seen = {(name, shadow._agrees(twin)) for name, twin in twins}  # type: ignore[misc]
        told.append(
            {
                "seen": sorted(name for name, agreed in seen if not agreed),
                "missed": sorted(name for name, agreed in seen if agreed),
                "steps": steps,
                "calls": shadow.calls,
                "states": shadow.states,
                "difference": shadow.difference,
                "ended_at": shadow.ended_at,
            }
        )
    return told


def lie(engine: EngineScheduler) -> None:
    """The two last blocks of the free queue change places: no call of the first step shows it."""
    queue = engine.manager.block_pool.free_block_queue
    blocks = [queue.popleft() for _ in range(queue.num_free_blocks)]
    for block in (*blocks[:-2], blocks[-1], blocks[-2]):
        queue.append(block)


def twins_of(mirror: Mirror) -> Iterator[tuple[str, Mirror]]:
    """Copies of a mirror whose state is wrong in one named field."""
    state = mirror.allocator.state
    parts: list[tuple[str, Callable[[Mirror], Any]]] = [
        ("gpu", lambda twin: twin.allocator.state.gpu),
        ("host", lambda twin: twin.allocator.state.host),
        ("state", lambda twin: twin.allocator.state),
        *(
            (f"holding {n}", lambda twin, n=n: twin.allocator.state.holdings[n])
            for n in state.holdings
        ),
        *(
            (f"transfer {n}", lambda twin, n=n: twin.allocator.state.transfers[n])
            for n in state.transfers
        ),
    ]
    for part, find in parts:
        kind = part.split()[0]
        for field in FIELDS[kind]:
            twin = copy.deepcopy(mirror)
            owner = find(twin)
            if field in ("holdings", "transfers") and not getattr(owner, field):
                continue
            setattr(owner, field, wrong(getattr(owner, field)))
            yield f"{kind}.{field}", twin


FIELDS = {
    "gpu": ("free", "counts", "keys", "index", "watched"),
    "host": ("free", "counts", "keys", "index", "watched"),
    "state": ("holdings", "copies", "transfers", "unsent"),
    "holding": (
        "host", "indexer", "resident", "table", "hot", "host_cached", "indexer_cached",
        "wants_hot", "valid", "ready", "pending", "pinned_clean", "unpinned", "to_adopt",
        "recorded", "publication",
    ),
    "transfer": ("request", "page", "host_block", "blocks", "expected", "done"),
}  # fmt: skip


def wrong(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [*value, 1] if not value or isinstance(value[0], int) else [wrong(value[0])]
    if isinstance(value, dict):
        return dict(list(value.items())[1:]) if value else {(9, 9): [1]}
    if isinstance(value, set):
        return value ^ {1}
    return 1 if value is None else value + 1


def store_of(place: str) -> dict[str, Any]:
    return {"cache": "full", "external_store": True} if place == "store" else {}


if __name__ == "__main__":
    if level in ("manager", "scheduler"):
        record_runs()
    else:
        installed = engine_shadow.install()
        print(json.dumps(shadow_runs(**store_of(folder))))
        installed.remove()
