"""How much slower than the engine alone: whole steps with the ghost worker, rules and shadow.

Run as ``uv run python benchmarks/whole_steps.py [VERSION]``. The ways take turns in one process, in
the engine's own interpreter; each figure is the median over the turns of the processor time of one
step, a step being what one round of schedule, report and update takes. HiSparse, all requests
decoding from a context of some pages, both pools ample.
"""

import argparse
import json
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

START = Path(__file__).parents[1] / "kvproof" / "engines" / "vllm" / "inside" / "start.py"
RUNNING = (1, 4, 16)
TURNS = 5
PROMPT, OUTPUT, BLOCK_SIZE = 100, 200, 16
BLOCKS = 1_000
Way = Callable[[int], float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("version", nargs="?", help="A release; the newest row if none.")
    parser.add_argument("--inside", type=Path, help="For the worker: the engine's sources.")
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(measure(options.inside, options.version)))
    else:
        show(options.version)


def show(asked: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from kvproof.engines.vllm.engine import provision_release
    from model.releases import NEWEST

    version = asked or NEWEST.version
    engine = provision_release(version, "focused")
    command = [str(engine.python), "-P", __file__, version, "--inside", str(engine.source)]
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        env={"PYTHONHASHSEED": "0", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    table = Table(title=f"Whole steps of vllm=={version}, microseconds of processor time a step")
    for name in ("running", "engine alone", "ghost worker, all rules", "ratio", "shadow too"):
        table.add_column(name, justify="right")
    table.add_column("ratio", justify="right")
    for running, alone, judged, shadowed in json.loads(done.stdout):
        table.add_row(
            str(running),
            f"{alone:.0f}",
            f"{judged:.0f}",
            f"{judged / alone:.2f}",
            f"{shadowed:.0f}",
            f"{shadowed / alone:.2f}",
        )
    Console().print(table)


# Inside the engine's interpreter


def measure(source: Path, version: str) -> list[tuple[int, float, float, float]]:
    runpy.run_path(str(START))["open_door"]()
    from kvproof.engines.vllm.inside.loading import install

    install(source)
    ways: tuple[Way, ...] = (alone, judged, lambda running: judged(running, version))
    rows = []
    for running in RUNNING:
        seconds: list[list[float]] = [[] for _ in ways]
        for _ in range(TURNS):
            for taken, way in zip(seconds, ways, strict=True):
                taken.append(way(running))
        rows.append((running, *(statistics.median(taken) * 1e6 for taken in seconds)))
    return rows  # type: ignore[return-value]


def _setup() -> Any:
    from model.scheduler.setup import SchedulerSetup

    return SchedulerSetup(
        cache="hisparse",
        block_size=BLOCK_SIZE,
        num_blocks=BLOCKS,
        num_host_blocks=BLOCKS,
        max_model_len=PROMPT + OUTPUT + BLOCK_SIZE,
        max_num_batched_tokens=max(RUNNING) * PROMPT,
        max_num_seqs=max(RUNNING),
    )


def alone(running: int) -> float:
    """The engine's own two calls; what is handed to it is made outside the time."""
    from kvproof.engines.vllm.inside.scheduler import EngineScheduler
    from model.scheduler.plan import NewRequest, StepOutcome

    engine = EngineScheduler(_setup())
    spent = [0.0]
    for name in ("schedule", "update_from_output"):
        setattr(engine.scheduler, name, _timed(getattr(engine.scheduler, name), spent))
    for number in range(running):
        tokens = tuple(range(1_000 * number, 1_000 * number + PROMPT))
        engine.add(NewRequest(number, tokens, OUTPUT))
    steps = 0
    while engine.has_requests():
        plan = engine.schedule()
        transfers = {transfer.id: 1 for transfer in plan.transfers}
        outcome = StepOutcome(
            sampled={share.request: (7,) for share in plan.scheduled if share.samples},
            enqueued=transfers,
            completed=transfers,
            host_copies_done=tuple(target for _, target in plan.host_copies),
        )
        engine.update(plan.step, outcome)
        steps += 1
    return spent[0] / steps


def _timed(call: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        started = time.process_time()
        try:
            return call(*arguments)
        finally:
            spent[0] += time.process_time() - started

    return timed


def judged(running: int, shadowed: str | None = None) -> float:
    """The whole run: driver, ghost worker, rules and audits; and the shadow, if asked for."""
    from invariants.scheduler.judge import Judge
    from kvproof.engines.vllm.inside import shadow as engine_shadow
    from kvproof.engines.vllm.inside.scheduler import EngineScheduler
    from model.releases import DIALECTS
    from model.scheduler.actions import Arrive, CompleteTransfers, Output, Step

    installation = engine_shadow.install() if shadowed else None
    setup = _setup()
    engine = EngineScheduler(setup)
    shadow = engine_shadow.shadow_of(engine, DIALECTS[f"vllm-{shadowed}"]) if shadowed else None
    judge = Judge(setup, engine)
    session = judge.session
    started = time.process_time()
    for number in range(running):
        judge.do(Arrive(family=number, prompt=PROMPT, output=OUTPUT))
    while session.live:
        judge.do(Step())
        if session.transfers:
            judge.do(CompleteTransfers(len(session.transfers)))
        judge.do(Output())
    spent = time.process_time() - started
    if judge.violations or (shadow is not None and not shadow.follows):
        sys.exit(f"not a clean run: {judge.violations or (shadow and shadow.difference)}")
    if installation is not None:
        installation.remove()
    return spent / session.steps


if __name__ == "__main__":
    main()
