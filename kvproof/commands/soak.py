"""``kvproof soak``: many drawn programs in a bare loop."""

from typing import Annotated

import typer

from kvproof.commands.looking import conclude, findings_folder
from kvproof.commands.options import (
    CompareOption,
    DialectOption,
    FixOption,
    JsonOption,
    LevelOption,
    LoadOption,
    OutOption,
    ShadowOption,
    SubjectOption,
    TimeOption,
)
from kvproof.errors import CouldNotRun
from kvproof.levels.level import Options
from kvproof.levels.table import LEVELS
from kvproof.reports.progress import counting
from kvproof.search.hunt import soak
from specs.casefile import MAX_SEED


def soak_command(
    subject: SubjectOption,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED)],
    level: LevelOption = "manager",
    dialect: DialectOption = None,
    rule: Annotated[str | None, typer.Option(help="Look for one rule only.")] = None,
    programs: Annotated[int | None, typer.Option(min=1)] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of the scheduler, at its level.")
    ] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
    compare: CompareOption = "exact",
    fix: FixOption = None,
    shadow: ShadowOption = True,
) -> None:
    """Run many drawn programs in a bare loop: volume."""
    tools = LEVELS[level]
    _check_budget({"--programs": programs, "--time": time, "--steps": steps}, tools.budgets)
    folder = findings_folder(out)
    options = Options(dialect, rule, load, compare, tuple(fix or ()), shadow)
    with tools.open(subject, options) as examiner:
        with counting(f"soak {subject}", programs) as progress:
            outcome = soak(examiner, seed, programs, time, rule, progress=progress, steps=steps)
        conclude(outcome, folder, json_output, examiner.subject.name)


def _check_budget(given: dict[str, float | None], allowed: tuple[str, ...]) -> None:
    if given["--steps"] is not None and "--steps" not in allowed:
        raise CouldNotRun("--steps counts steps of the scheduler: it needs --level scheduler")
    if sum(given[name] is not None for name in allowed) != 1:
        *others, last = allowed
        which = f"either {', '.join(others)} or {last}"
        raise CouldNotRun(f"soak needs {which}, one of them: say how much to run")
