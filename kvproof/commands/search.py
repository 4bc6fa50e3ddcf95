"""``kvproof search``, ``soak`` and ``diff``: look for programs that break a rule."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from invariants.known import defects_of
from invariants.rules import ENDINGS_OF, RULES_OF, SENTENCED
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
    finish,
)
from kvproof.engines.vllm.environment import Load
from kvproof.errors import CouldNotRun
from kvproof.gate.settings import read_settings
from kvproof.levels.manager import Comparison, Examiner
from kvproof.levels.pair import PairExaminer
from kvproof.levels.scheduler import SchedulerExaminer, modes_of
from kvproof.reports.as_json import outcome_json
from kvproof.reports.progress import counting
from kvproof.reports.streams import write_line
from kvproof.reports.terminal import show_outcome
from kvproof.search.findings import check_writable, save_findings
from kvproof.search.hunt import Outcome, rules_for, search, soak
from kvproof.subjects.names import open_subject
from kvproof.subjects.reference import ReferenceSubject
from model.dialect import Dialect
from model.program import Level
from specs.casefile import MAX_SEED, CaseFileError

DIFF_PROGRAMS = 1_000
SEARCH_PROGRAMS = 2_000
"""Programs of a search at the level of the scheduler, if no budget is given."""


def search_command(
    subject: SubjectOption,
    level: LevelOption = "manager",
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
    _check_rule(rule, level)
    number = secrets.randbelow(1_000_000) if seed is None else seed
    if level == "scheduler":
        if max_examples is None and time is None:
            max_examples = SEARCH_PROGRAMS
        with opened_scheduler(subject, dialect, rule, load, compare, fix, shadow) as scheduler:
            with counting(f"search {subject}", max_examples) as progress:
                outcome = soak(scheduler, number, max_examples, time, rule, progress=progress)
            conclude(outcome, folder, json_output, scheduler.subject.name)
        return
    _check_unfixed(fix)
    with opened_examiner(subject, dialect, rule, load, compare) as examiner:
        with counting(f"search {subject}", max_examples) as progress:
            outcome = search(examiner, number, rule, max_examples, time, progress)
        conclude(outcome, folder, json_output, examiner.subject.name)


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
    if level == "manager" and steps is not None:
        raise CouldNotRun("--steps counts steps of the scheduler: it needs --level scheduler")
    budgets = {"--programs": programs, "--time": time}
    budgets |= {"--steps": steps} if level == "scheduler" else {}
    if sum(budget is not None for budget in budgets.values()) != 1:
        *others, last = budgets
        which = f"either {', '.join(others)} or {last}"
        raise CouldNotRun(f"soak needs {which}, one of them: say how much to run")
    folder = findings_folder(out)
    _check_rule(rule, level)
    if level == "scheduler":
        with opened_scheduler(subject, dialect, rule, load, compare, fix, shadow) as scheduler:
            with counting(f"soak {subject}", programs) as progress:
                outcome = soak(
                    scheduler, seed, programs, time, rule, progress=progress, steps=steps
                )
            conclude(outcome, folder, json_output, scheduler.subject.name)
        return
    _check_unfixed(fix)
    with opened_examiner(subject, dialect, rule, load, compare) as examiner:
        with counting(f"soak {subject}", programs) as progress:
            outcome = soak(examiner, seed, programs, time, rule, progress=progress)
        conclude(outcome, folder, json_output, examiner.subject.name)


def diff_command(
    a: Annotated[str, typer.Argument(help="The first subject; programs are drawn for it.")],
    b: Annotated[str, typer.Argument(help="The second subject.")],
    seed: SeedOption = None,
    programs: Annotated[int | None, typer.Option(min=1, help="1000 if no --time is given.")] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Run two subjects in lockstep with each other."""
    folder = findings_folder(out)
    if programs is None and time is None:
        programs = DIFF_PROGRAMS
    with open_subject(a, load=load) as first, open_subject(b, load=load) as second:
        examiner = PairExaminer(first, second, first.dialect)
        number = secrets.randbelow(1_000_000) if seed is None else seed
        with counting(f"diff {a} {b}", programs) as progress:
            outcome = soak(examiner, number, programs, time, progress=progress)
        outcome.subject = f"{first.name} {second.name}"
        outcome.other = "each other"
        outcome.notes = (*first.notes, *second.notes)
        conclude(outcome, folder, json_output, second.name)


def findings_folder(out: Path | None) -> Path:
    """Where findings go; raises ``CouldNotRun`` when they cannot."""
    folder = out or Path(read_settings(Path.cwd()).out)
    check_writable(folder, "--out")
    return folder


@contextmanager
def opened_examiner(
    name: str, dialect: str | None, rule: str | None, load: Load, compare: Comparison
) -> Iterator[Examiner]:
    """An examiner that looks for one rule or all; raises ``CouldNotRun`` if it would see none."""
    with open_subject(name, load=load, dialect=dialect) as subject:
        waived = subject.dialect.waived("manager")
        if rule in waived:
            raise CouldNotRun(
                f"{rule} is not judged under the dialect {subject.dialect.name}: {waived[rule]}"
            )
        itself = isinstance(subject, ReferenceSubject) and subject.runs_as == subject.dialect
        if itself and rule in ENDINGS_OF["manager"]:
            raise CouldNotRun(
                f"{name} is the model itself, so {rule} cannot be broken: "
                "name another dialect to compare with by --dialect"
            )
        yield Examiner(
            subject,
            subject.dialect,
            rules_for(rule),
            watch_goals=rule is None,
            comparison=compare,
        )


@contextmanager
def opened_scheduler(
    name: str,
    dialect: str | None,
    rule: str | None,
    load: Load,
    compare: Comparison,
    fix: list[str] | None,
    shadow: bool,
) -> Iterator[SchedulerExaminer]:
    """An examiner of a whole scheduler; raises ``CouldNotRun`` for what makes no sense there."""
    if compare != "exact":
        raise CouldNotRun("--compare is for --level manager: the scheduler has no model beside it")
    modes = modes_of(fix or ())
    with open_subject(name, "scheduler", load, dialect, shadow=shadow) as subject:
        check_defect(rule, subject.dialect)
        yield SchedulerExaminer(subject, rule, modes, watch_goals=rule is None)


def _check_rule(rule: str | None, level: Level) -> None:
    rules = RULES_OF[level]
    if level == "scheduler":
        rules = (*rules, *defects_of(level))
    if rule is not None and rule not in rules:
        what = f"there is no rule {rule!r}"
        if rule in SENTENCED:
            what = f"{rule} is not judged in programs of the level of the {level}"
        raise CouldNotRun(f"{what}; there are {', '.join(rules)}")


def check_defect(rule: str | None, dialect: Dialect) -> None:
    """A defect that a release is not known for is never named there: it would look clean."""
    if rule in defects_of("scheduler") and rule not in dialect.known_defects:
        raise CouldNotRun(f"{rule} is no known defect of {dialect.name}: look for its rule instead")


def _check_unfixed(fix: list[str] | None) -> None:
    if fix:
        raise CouldNotRun("--fix fixes a setting of schedulers: it needs --level scheduler")


def conclude(outcome: Outcome, folder: Path, as_json: bool, subject: str) -> None:
    """Save and report what a search found; ``subject`` is the name of what replays it."""
    traces: dict[str, Path] = {}
    try:
        traces = save_findings(outcome, folder, subject)
    except CaseFileError as error:  # the disk filled up: what was found is shown all the same
        write_line(str(error))
    finish(
        outcome.verdict,
        as_json,
        lambda: outcome_json(outcome, traces),
        lambda console: show_outcome(console, outcome, traces),
    )
