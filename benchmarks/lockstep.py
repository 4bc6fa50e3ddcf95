"""What lockstep costs beside the engine alone, for the same programs in the same run.

    uv run python benchmarks/lockstep.py [--subject vllm==VERSION] [--json]

Every number printed is measured by the run that prints it. A run that is not clean prints none.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import linear_regression, median
from typing import Any

from families import CONTEXT, POOL, Family  # the file beside this one
from rich.console import Console
from rich.table import Table

from invariants.rules import RULES
from kvproof.errors import CouldNotRun
from kvproof.levels.level import Examination
from kvproof.levels.manager import ManagerExaminer
from kvproof.search.hunt import draw_programs
from kvproof.subjects.names import open_subject
from kvproof.subjects.worker import EngineSubject
from model.dialect import Dialect
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.releases import NEWEST
from specs.manager.generator import draw_program

ENGINE = "engine alone"
REFERENCE = "reference alone"
LOCKSTEP = "lockstep, no rules"
JUDGED = "lockstep, rules and goals"
DRAWING = "drawing the programs"
GROWTH_PASSES = 3
"""How often a growth program runs in one repeat: one alone is too short to time."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds of one run: on the wall, and of the processors in this process and the worker."""

    wall: float
    parent: float
    worker: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """Medians over the repeats."""

    actions: int
    clocks: Clocks

    @property
    def micros(self) -> float:
        """Wall time per action, in µs."""
        return self.clocks.wall / self.actions * 1e6


@dataclass(frozen=True, slots=True)
class Growth:
    """Wall µs per action of each way to run, by size, and how they grow."""

    family: Family
    micros: dict[int, dict[str, float]]

    def exponent(self, way: str, sizes: Sequence[int]) -> float:
        """Slope of a straight line through the points in logarithms: 1 is linear growth."""
        times = [math.log(self.micros[size][way]) for size in sizes]
        return linear_regression([math.log(size) for size in sizes], times).slope


@dataclass(frozen=True, slots=True)
class Bench:
    """An engine, the dialect that it is compared with, and how often each thing is measured."""

    engine: EngineSubject
    dialect: Dialect
    repeats: int

    def ways(self) -> dict[str, Callable[[Sequence[ManagerProgram]], int]]:
        """Each way to run programs; all answer with the number of actions taken."""
        plain = ManagerExaminer(self.engine, self.dialect, rules=(), watch_goals=False)
        judged = ManagerExaminer(self.engine, self.dialect, rules=RULES, watch_goals=True)
        return {
            ENGINE: self._engine_alone,
            REFERENCE: self._reference_alone,
            LOCKSTEP: lambda programs: clean(plain.examine_many(programs)),
            JUDGED: lambda programs: clean(judged.examine_many(programs)),
        }

    def _engine_alone(self, programs: Sequence[ManagerProgram]) -> int:
        """The worker captures no states: it runs the engine and tells what it answered."""
        return sum(len(trace.steps) for trace in self.engine.run_many(programs, "none"))

    def _reference_alone(self, programs: Sequence[ManagerProgram]) -> int:
        taken = 0
        for program in programs:
            allocator = ReferenceAllocator(program.configuration, self.dialect)
            session = Session(program.configuration, allocator)
            for action in program.actions:
                session.do(action)
                taken += 1
        return taken

    def measure(
        self, programs: Sequence[ManagerProgram], ways: Iterable[str] | None = None
    ) -> dict[str, Measurement]:
        """Run the programs in every way, then all again: a busy machine slows all ways alike."""
        chosen = {way: run for way, run in self.ways().items() if ways is None or way in ways}
        self._engine_alone(programs[:20])  # starts the worker, and warms it up
        runs: dict[str, list[Clocks]] = {way: [] for way in chosen}
        actions = sum(len(program.actions) for program in programs)
        for _ in range(self.repeats):
            for way, run in chosen.items():
                before = self._now()
                if run(programs) != actions:
                    raise CouldNotRun(f"{way}: a program ended before its last action")
                after = self._now()
                runs[way].append(Clocks(*(b - a for a, b in zip(before, after, strict=True))))
        return {
            way: Measurement(
                actions,
                Clocks(
                    median(clocks.wall for clocks in all_clocks),
                    median(clocks.parent for clocks in all_clocks),
                    median(clocks.worker for clocks in all_clocks),
                ),
            )
            for way, all_clocks in runs.items()
        }

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), processor_seconds(self.engine.pid)

    def growth(self, family: Family) -> Growth:
        micros: dict[int, dict[str, float]] = {}
        for size in family.sizes:
            programs = [family.program(size, self.dialect)] * GROWTH_PASSES
            measured = self.measure(programs, (ENGINE, LOCKSTEP, JUDGED))
            micros[size] = {way: one.micros for way, one in measured.items()}
        return Growth(family, micros)


def processor_seconds(pid: int | None) -> float:
    """Processor time of another process so far; nan where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return math.nan
    ticks = int(fields[11]) + int(fields[12])  # user and system time: fields 14 and 15 of the line
    return ticks / os.sysconf("SC_CLK_TCK")


def clean(results: Iterable[Examination]) -> int:
    """The number of actions run; raises if a rule was broken, other than by a known defect."""
    actions = 0
    for result in results:
        actions += result.actions_run
        for violation in result.violations:
            if not violation.known:
                raise CouldNotRun(f"not a clean run, so not a measurement: {violation}")
    return actions


def drawn(
    dialect: Dialect, options: argparse.Namespace
) -> tuple[list[ManagerProgram], Measurement]:
    """Draw the programs, as ``kvproof soak`` does, and say what that took."""
    walls: list[float] = []

    def draw(random: Random, actions: int) -> ManagerProgram:
        return draw_program(random, dialect, actions)

    for _ in range(options.repeats):
        started = time.perf_counter()
        programs = list(draw_programs(draw, options.seed, options.programs, options.actions))
        walls.append(time.perf_counter() - started)
    actions = sum(len(program.actions) for program in programs)
    return programs, Measurement(actions, Clocks(median(walls), median(walls), 0.0))


# What comes out


def ways_table(measured: dict[str, Measurement]) -> Table:
    table = Table(title="Drawn programs in the bare loop")
    table.add_column("", no_wrap=True)
    for heading in ("wall s", "actions/s", "µs/action", "ratio", "CPU s", "worker"):
        table.add_column(heading, justify="right")
    for way, one in measured.items():
        clocks = one.clocks
        table.add_row(
            way,
            f"{clocks.wall:.2f}",
            f"{1e6 / one.micros:,.0f}",
            f"{one.micros:.1f}",
            f"{one.micros / measured[ENGINE].micros:.2f}",
            f"{clocks.parent:.2f}",
            f"{clocks.worker:.2f}",
        )
    return table


def growth_table(growth: Growth) -> Table:
    sizes = growth.family.sizes
    table = Table(title=growth.family.title)
    table.add_column(growth.family.unit, justify="right")
    ways = (ENGINE, LOCKSTEP, JUDGED)
    for way in ways:
        table.add_column(f"{way}\nµs/action", justify="right")
    for size in sizes:
        table.add_row(str(size), *(f"{growth.micros[size][way]:,.1f}" for way in ways))
    table.add_section()
    spans = {"exponent, all sizes": sizes, "exponent, last two": sizes[-2:]}
    for label, span in spans.items():
        table.add_row(label, *(f"{growth.exponent(way, span):.2f}" for way in ways))
    return table


def growth_json(growth: Growth) -> dict[str, Any]:
    sizes = growth.family.sizes
    ways = (ENGINE, LOCKSTEP, JUDGED)
    return {
        "unit": growth.family.unit,
        "micros_per_action": {str(size): row for size, row in growth.micros.items()},
        "exponent": {way: growth.exponent(way, sizes) for way in ways},
        "exponents_between": {
            way: [growth.exponent(way, pair) for pair in pairwise(sizes)] for way in ways
        },
    }


def main() -> int:
    options = parsed()
    try:
        subject = open_subject(options.subject)
    except CouldNotRun as error:
        print(error, file=sys.stderr)
        return 2
    with subject:
        if not isinstance(subject, EngineSubject):
            print("this measures an engine: --subject vllm==<version>", file=sys.stderr)
            return 2
        try:
            report(Bench(subject, subject.dialect, options.repeats), options)
        except CouldNotRun as error:
            print(error, file=sys.stderr)
            return 2
    return 0


def report(bench: Bench, options: argparse.Namespace) -> None:
    programs, drawing = drawn(bench.dialect, options)
    measured = bench.measure(programs) | {DRAWING: drawing}
    growths = [bench.growth(family) for family in (POOL, CONTEXT)]
    if options.json:
        ways = {
            way: {
                "actions": one.actions,
                "micros_per_action": one.micros,
                "actions_per_second": 1e6 / one.micros,
                "times_engine": one.micros / measured[ENGINE].micros,
                "seconds": asdict(one.clocks),
            }
            for way, one in measured.items()
        }
        growth = [growth_json(one) for one in growths]
        print(json.dumps({"subject": bench.engine.name, "ways": ways, "growth": growth}))
        return
    console = Console()
    console.print(
        f"{bench.engine.name} against the reference under {bench.dialect.name}, on "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}. {len(programs)} programs of "
        f"{options.actions} actions, seed {options.seed}. Each time is the median of "
        f"{bench.repeats} runs, the ways taking turns. Wall time is what the caller waits: the "
        "worker's processor and this one's work side by side; ratio is wall time to that of the "
        "engine alone, which answers every action and captures no state; CPU s is this process's "
        "processor time, worker the worker's. All runs were clean.",
        highlight=False,
    )
    console.print(ways_table(measured))
    console.print(
        f"Growth: one program per size, {GROWTH_PASSES} times per run, start of the pools "
        f"included; the median of {bench.repeats} runs. An exponent is the slope of a straight "
        "line in logarithms: 1 is linear.",
        highlight=False,
    )
    for one in growths:
        console.print(growth_table(one))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--subject", default=f"vllm=={NEWEST.version}")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--actions", type=int, default=60, help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
