"""Search: let Hypothesis generate programs, and minimise what breaks a rule."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import get_state_machine_test

from invariants.rules import RULES, Rule
from invariants.verdict import Breach
from kvproof.diff import PairExaminer
from kvproof.errors import CouldNotRun
from kvproof.examine import Examination, Examiner
from model.dialect import Dialect
from model.program import Program
from specs.generator import draw_program
from specs.goals import GOALS, unreachable_goals
from specs.machine import BreachFoundError, machine_for
from specs.minimise import minimise

AnyExaminer = Examiner | PairExaminer
Verdict = Literal["clean", "counterexample", "incomplete"]


PROFILE = "pr"
UNTIL_TIME_IS_UP = 1_000_000


class OutOfTimeError(Exception):
    """Ends a Hypothesis run whose time is up: it has no budget of its own in seconds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken, with the smallest program found that breaks it."""

    breach: Breach
    program: Program


@dataclass(slots=True)
class Outcome:
    """What a search came to."""

    subject: str
    dialect: str
    seed: int
    programs: int = 0
    actions_run: int = 0
    actions_moving: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    """Known defects met, by id: reported, and no reason for red."""
    goals: Counter[str] = field(default_factory=Counter)
    unmet: tuple[str, ...] = ()
    waived: dict[str, str] = field(default_factory=dict)
    """Rules that the dialect breaks by design, with the reason."""

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return "counterexample"
        return "incomplete" if self.unmet or not self.programs else "clean"


Progress = Callable[[Outcome], None]
"""Told how far a search is."""


@dataclass(slots=True)
class Hunt:
    """One search under way: counts, and the first failing program of each rule."""

    examiner: AnyExaminer
    outcome: Outcome
    only: str | None
    deadline: float | None
    failing: dict[str, Program] = field(default_factory=dict)

    def take(self, result: Examination) -> set[str]:
        """Note what one program came to; return the rules that it is the first to break."""
        outcome = self.outcome
        outcome.programs += 1
        outcome.actions_run += result.actions_run
        outcome.actions_moving += result.actions_moving
        outcome.goals.update(result.goals)
        found: set[str] = set()
        for breach in result.breaches:
            if breach.known and self.only is None:
                outcome.known[breach.known] += 1
            elif self.only in (None, breach.rule):
                found.add(breach.rule)
        return found

    @property
    def over(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline


def start_hunt(
    examiner: AnyExaminer, run_seed: int, only: str | None, seconds: float | None
) -> Hunt:
    outcome = Outcome(examiner.subject.name, examiner.dialect.name, run_seed)
    outcome.waived = dict(examiner.dialect.by_design)
    deadline = None if seconds is None else time.monotonic() + seconds
    return Hunt(examiner, outcome, only, deadline)


def rules_for(only: str | None) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if only in (None, rule.id))


def search(
    examiner: AnyExaminer,
    run_seed: int,
    only: str | None = None,
    max_examples: int | None = None,
    seconds: float | None = None,
    progress: Progress = lambda outcome: None,
) -> Outcome:
    """Let Hypothesis play; one finding per rule, each round without the rules found before."""
    started = time.monotonic()
    hunt = start_hunt(examiner, run_seed, only, seconds)
    profile = settings.get_profile(PROFILE)
    left = max_examples or (UNTIL_TIME_IS_UP if seconds else profile.max_examples)
    while left > 0 and not hunt.over:
        before = hunt.outcome.programs
        rule = _one_round(hunt, run_seed + len(hunt.failing), left, progress)
        left -= hunt.outcome.programs - before
        if rule is None or only is not None:
            break
    return _conclude(hunt, started)


def _one_round(hunt: Hunt, round_seed: int, examples: int, progress: Progress) -> str | None:
    """Run machines until one breaks a rule that is not known yet; return the rule."""
    found: list[tuple[str, Program]] = []

    def finished(program: Program) -> None:
        if hunt.over:
            raise OutOfTimeError
        if not program.actions:
            return
        broken = hunt.take(hunt.examiner.examine(program))
        progress(hunt.outcome)
        for rule in sorted(broken - set(hunt.failing)):
            found.append((rule, program))
            raise BreachFoundError(rule)

    machine = machine_for(hunt.examiner.dialect, finished)
    test = get_state_machine_test(
        machine,
        settings=settings(
            settings.get_profile(PROFILE),
            max_examples=examples,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.target),
        ),
    )
    try:
        seed(round_seed)(test)()
    except (BreachFoundError, OutOfTimeError, Flaky):
        if not found:
            return None
        rule, program = found[0]
        hunt.failing[rule] = program
        return rule
    return None


def soak(
    examiner: AnyExaminer,
    run_seed: int,
    programs: int | None = None,
    seconds: float | None = None,
    only: str | None = None,
    actions: int = 60,
    progress: Progress = lambda outcome: None,
) -> Outcome:
    """The bare seeded loop: volume. Programs of one seed are always the same."""
    started = time.monotonic()
    hunt = start_hunt(examiner, run_seed, only, seconds)
    drawn = draw_programs(examiner.dialect, run_seed, programs, actions, lambda: hunt.over)
    for result in examiner.examine_many(drawn):
        for rule in hunt.take(result) - set(hunt.failing):
            hunt.failing[rule] = result.program
        progress(hunt.outcome)
        if only is not None and hunt.failing:
            break
    return _conclude(hunt, started)


def draw_programs(
    dialect: Dialect,
    run_seed: int,
    count: int | None,
    actions: int,
    over: Callable[[], bool] = lambda: False,
) -> Iterator[Program]:
    number = 0
    while (count is None or number < count) and not over():
        yield draw_program(Random(run_seed * 1_000_003 + number), dialect, actions)
        number += 1


def _conclude(hunt: Hunt, started: float) -> Outcome:
    outcome = hunt.outcome
    for rule, program in hunt.failing.items():
        outcome.findings.append(minimised(hunt.examiner, rule, program))
    if hunt.only is None and hunt.examiner.watch_goals:
        unreachable = unreachable_goals(hunt.examiner.dialect)
        missed = (goal for goal in GOALS if goal not in unreachable and not outcome.goals[goal])
        outcome.unmet = tuple(missed)
    outcome.seconds = time.monotonic() - started
    return outcome


def minimised(examiner: AnyExaminer, rule: str, program: Program) -> Finding:
    """Shrink a failing program, in configurations that the engine would start with."""
    exact = examiner.exact(rule)
    for shrinker in examiner.shrinkers(rule):
        small = _shrunk(shrinker, rule, program)
        breaches = [b for b in exact.examine(small).breaches if b.rule == rule] if small else []
        if small and breaches:
            return Finding(breaches[0], small)
    raise CouldNotRun(f"{examiner.subject.name} broke {rule} once and not again: it is not stable")


def _shrunk(examiner: AnyExaminer, rule: str, program: Program) -> Program | None:
    def fails(candidate: Program) -> bool:
        return rule in examiner.examine(candidate).rules_broken

    if not fails(program):
        return None
    return minimise(program, fails, examiner.dialect)
