"""``kvproof search``: let a strategy look for programs that break a rule, and shrink them."""

from typing import Annotated

import typer

from kvproof.commands.looking import MANY_PROGRAMS, conclude, findings_folder, seed_or_drawn
from kvproof.commands.options import (
    CompareOption,
    DialectOption,
    FixOption,
    JsonOption,
    LevelOption,
    LoadOption,
    OutOption,
    SeedOption,
    ShadowOption,
    SubjectOption,
    TimeOption,
)
from kvproof.levels.level import Examiner, Options, Strategy
from kvproof.levels.table import LEVELS
from kvproof.reports.progress import counting
from kvproof.search.hunt import soak
from kvproof.search.hypothesis_rounds import search
from kvproof.search.outcome import Outcome, Progress


def search_command(
    subject: SubjectOption,
    level: LevelOption = "manager",
    strategy: Annotated[
        Strategy | None,
        typer.Option(help="What draws the programs; by default hypothesis, or random (scheduler)."),
    ] = None,
    dialect: DialectOption = None,
    rule: Annotated[
        str | None,
        typer.Option(help="Look for one rule only, or (scheduler) one known defect: I4, K2."),
    ] = None,
    seed: SeedOption = None,
    max_examples: Annotated[int | None, typer.Option(min=1)] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
    compare: CompareOption = "exact",
    fix: FixOption = None,
    shadow: ShadowOption = True,
) -> None:
    """Search for programs that break a rule, and minimise them."""
    folder = findings_folder(out)
    tools = LEVELS[level]
    strategy = strategy or tools.strategy
    if strategy == "random" and max_examples is None and time is None:
        max_examples = MANY_PROGRAMS
    options = Options(dialect, rule, load, compare, tuple(fix or ()), shadow)
    with tools.open(subject, options) as examiner:
        with counting(f"search {subject}", max_examples) as progress:
            outcome = _searched(
                strategy, examiner, seed_or_drawn(seed), rule, max_examples, time, progress
            )
        conclude(outcome, folder, json_output, examiner.subject.name)


def _searched(
    strategy: Strategy,
    examiner: Examiner,
    seed: int,
    rule: str | None,
    programs: int | None,
    seconds: float | None,
    progress: Progress,
) -> Outcome:
    if strategy == "hypothesis":
        return search(examiner, seed, rule, programs, seconds, progress)
    return soak(examiner, seed, programs, seconds, rule, progress=progress)
