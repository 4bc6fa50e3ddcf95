"""Search: let Hypothesis generate programs, and minimise what breaks a rule."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, Protocol, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import get_state_machine_test

from invariants.rules import RULES, Rule
from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import Examination, Examining
from kvproof.levels.manager import Examiner
from kvproof.levels.pair import PairExaminer
from model.manager.program import ManagerProgram
from model.program import AnyProgram, Level
from model.trace import Trace
from specs.manager.machine import machine_for

Verdict = Literal["clean", "counterexample", "incomplete"]


PROFILE = "pr"
UNTIL_TIME_IS_UP = 1_000_000
WORKER_RULES = frozenset({"crash", "hang"})
"""Rules that the worker breaks. Each time costs a restart, or the time limit of a program."""
MAX_DEATHS = 20
"""Crashes and hangs after which a search ends: more of them tell nothing new."""
MINIMISING_SECONDS = 120.0
"""Time to minimise a crash or a hang; all else is minimised to the end."""
ACTIONS = 60
"""Actions of a program of the bare loop."""


class RoundOver(BaseException):
    """Ends a Hypothesis run at once. Hypothesis takes an ``Exception`` for a failure to replay,
    and goes on climbing to its targets first, which takes longer than the search.

    Its cause is what went wrong, if something did.
    """

    def __init__(self, found: bool = False) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken, with the smallest program found that breaks it."""

    violation: Violation
    program: AnyProgram
    digests: tuple[str, ...] = ()
    """Of the answers to its actions, at the level of the scheduler."""
    traces: tuple[Trace, ...] = ()
    """The program as it ran on what the subject is compared with, if anything, and last on the
    subject itself."""


@dataclass(slots=True)
class Outcome:
    """What a search came to."""

    subject: str
    dialect: str
    """Of the programs, and of the model where that is what is compared with."""
    seed: int
    level: Level = "manager"
    programs: int = 0
    actions_run: int = 0
    actions_moving: int = 0
    steps: int = 0
    """Steps of the scheduler, at its level."""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    """Known defects met, by id: reported, and no reason for red."""
    unrepeated: Counter[str] = field(default_factory=Counter)
    """Crashes and hangs that did not come again when the same program ran again: something
    outside killed or stopped the worker. Reported, and no reason for red."""
    goals: Counter[str] = field(default_factory=Counter)
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader has to know of the subject."""
    waived: dict[str, str] = field(default_factory=dict)
    """Rules that the dialect breaks by design, with the reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Why the engine did not start with a program's setup, and how often: these did not run."""
    shadowed: Counter[str] = field(default_factory=Counter)
    """At the level of the scheduler: ``calls`` and ``states`` compared with the model's."""
    shadow_ends: Counter[str] = field(default_factory=Counter)
    """Why the model did not follow a program to its end, and how often."""
    stopped: str | None = None
    """Why the search ended before its budget was used up, if it did."""

    other: str | None = None
    """The subject that is compared with, where it is not the model."""

    @property
    def against(self) -> str:
        return self.other or f"the model {self.dialect}"

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return "counterexample"
        nothing_ran = self.programs == self.refused.total()
        return "incomplete" if self.unmet or self.stopped or nothing_ran else "clean"


Drawn = TypeVar("Drawn")


class Progress(Protocol):
    """Told how far a search is: what has run, and what is done now if it is not running more."""

    def __call__(self, outcome: Outcome, doing: str = "", /) -> None: ...


def unseen(outcome: Outcome, doing: str = "", /) -> None:
    """Progress that nobody watches."""


@dataclass(slots=True)
class Hunt:
    """One search under way: counts, and the first failing program of each rule."""

    examiner: Examining
    outcome: Outcome
    only: str | None
    deadline: float | None
    limit: int | None
    """Programs to run at most."""
    step_limit: int | None = None
    """Steps of the scheduler after which it is enough."""
    failing: dict[str, tuple[Violation, AnyProgram]] = field(default_factory=dict)
    deaths: int = 0

    def take(self, result: Examination) -> bool:
        """Note what one program came to; say whether it is the first to break some rule."""
        result = self._repeated_if_dead(result)
        outcome = self.outcome
        outcome.programs += 1
        outcome.actions_run += result.actions_run
        outcome.actions_moving += result.actions_moving
        outcome.steps += result.steps
        outcome.shadowed.update(result.shadowed)
        if result.shadow_ended is not None:
            outcome.shadow_ends[result.shadow_ended] += 1
        if result.refused is not None:
            outcome.refused[result.refused] += 1
        outcome.goals.update(result.goals)
        news = False
        for violation in result.violations:
            if violation.known and self.only is None:
                outcome.known[violation.known] += 1
            elif (
                self.only in (None, violation.rule, violation.known)
                and violation.rule not in self.failing
            ):
                self.failing[violation.rule] = (violation, result.program)
                news = True
        return news

    def _repeated_if_dead(self, result: Examination) -> Examination:
        """A crash or hang is believed when it comes again: workers die of other things too."""
        died = result.rules_broken & WORKER_RULES
        if not died:
            return result
        self.deaths += 1
        if self.deaths >= MAX_DEATHS:
            self.outcome.stopped = f"the worker crashed or hung {self.deaths} times"
        if died <= self.failing.keys():
            return result
        again = self.examiner.examine(result.program)
        self.outcome.unrepeated.update(died - again.rules_broken)
        return again

    @property
    def over(self) -> bool:
        if self.limit is not None and self.outcome.programs >= self.limit:
            return True
        if self.deadline is not None and time.monotonic() > self.deadline:
            return True
        if self.step_limit is not None and self.outcome.steps >= self.step_limit:
            return True
        return self.outcome.stopped is not None

    def stop(self, error: CouldNotRun) -> None:
        """The subject cannot go on: what was found before counts all the same."""
        if not self.failing:
            raise error
        self.outcome.stopped = str(error)


def start_hunt(
    examiner: Examining,
    run_seed: int,
    only: str | None,
    limit: int | None,
    seconds: float | None,
    step_limit: int | None = None,
) -> Hunt:
    outcome = Outcome(examiner.subject.name, examiner.dialect.name, run_seed, examiner.level)
    outcome.waived = dict(examiner.waived)
    outcome.notes = examiner.subject.notes
    deadline = None if seconds is None else time.monotonic() + seconds
    return Hunt(examiner, outcome, only, deadline, limit, step_limit)


def rules_for(only: str | None) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if only in (None, rule.id))


def search(
    examiner: Examiner | PairExaminer,
    run_seed: int,
    only: str | None = None,
    max_examples: int | None = None,
    seconds: float | None = None,
    progress: Progress = unseen,
) -> Outcome:
    """Let Hypothesis play: one finding per rule, and a new round after each that is found.

    ``max_examples`` counts the programs of all rounds; ``seconds`` is the time to look for
    failures, and what is found is minimised after it. Without either, the profile's budget.
    """
    started = time.monotonic()
    if max_examples is None and seconds is None:
        max_examples = settings.get_profile(PROFILE).max_examples
    hunt = start_hunt(examiner, run_seed, only, max_examples, seconds)
    while not hunt.over:
        try:
            found = _one_round(hunt, run_seed + len(hunt.failing), progress)
        except CouldNotRun as error:
            hunt.stop(error)
            break
        if not found or only is not None:
            break
    return _conclude(hunt, started, progress)


def _one_round(hunt: Hunt, round_seed: int, progress: Progress) -> bool:
    """Run machines until one breaks a rule that is not known yet; say whether one did."""

    def finished(program: ManagerProgram) -> None:
        if program.actions:
            try:
                found = hunt.take(hunt.examiner.examine(program))
            except Exception as error:
                raise RoundOver from error
            progress(hunt.outcome)
            if found:
                raise RoundOver(found)
        if hunt.over:
            raise RoundOver

    machine = machine_for(hunt.examiner.dialect, finished)
    test = get_state_machine_test(machine, settings=_round_settings(hunt))
    try:
        seed(round_seed)(test)()
    except RoundOver as end:
        if end.__cause__ is not None:
            raise end.__cause__ from None
        return end.found
    except Unsatisfiable:
        pass  # too few examples for a single program
    return False


def _round_settings(hunt: Hunt) -> settings:
    left = UNTIL_TIME_IS_UP if hunt.limit is None else hunt.limit - hunt.outcome.programs
    return settings(
        settings.get_profile(PROFILE),
        max_examples=left,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.target),
    )


def soak(
    examiner: Examining,
    run_seed: int,
    programs: int | None = None,
    seconds: float | None = None,
    only: str | None = None,
    actions: int = ACTIONS,
    progress: Progress = unseen,
    steps: int | None = None,
) -> Outcome:
    """The bare seeded loop: volume. Programs of one seed are always the same.

    ``programs``, ``seconds`` and ``steps`` of the scheduler: whichever is used up first.
    """
    started = time.monotonic()
    hunt = start_hunt(examiner, run_seed, only, programs, seconds, steps)
    drawn = draw_programs(examiner.draw, run_seed, programs, actions, lambda: hunt.over)
    try:
        for result in examiner.examine_many(drawn):
            hunt.take(result)
            progress(hunt.outcome)
            if only is not None and hunt.failing:
                break
    except CouldNotRun as error:
        hunt.stop(error)
    return _conclude(hunt, started, progress)


def draw_programs(
    draw: Callable[[Random, int], Drawn],
    run_seed: int,
    count: int | None,
    actions: int,
    over: Callable[[], bool] = lambda: False,
) -> Iterator[Drawn]:
    number = 0
    while (count is None or number < count) and not over():
        yield draw(Random(run_seed * 1_000_003 + number), actions)
        number += 1


def _conclude(hunt: Hunt, started: float, progress: Progress) -> Outcome:
    outcome = hunt.outcome
    for violation, program in hunt.failing.values():
        progress(outcome, f"minimising {violation.rule}")
        finding = minimised(hunt.examiner, violation, program)
        traces = hunt.examiner.traces(finding.violation, finding.program)
        outcome.findings.append(replace(finding, traces=traces))
    if hunt.only is None and hunt.examiner.watch_goals:
        outcome.unmet = hunt.examiner.unmet(outcome.goals)
    outcome.seconds = time.monotonic() - started
    return outcome


def minimised(examiner: Examining, violation: Violation, program: AnyProgram) -> Finding:
    """Shrink a failing program, in configurations that the engine would start with.

    A failure that does not come again is a finding too, as it was seen.
    """
    exact = examiner.exact(violation.rule)
    why = "it was seen once and not again: the subject is not stable, and this is not minimised"
    try:
        for shrinker in examiner.shrinkers(violation.rule):
            small = _shrunk(shrinker, violation, program)
            result = exact.examine(small) if small else None
            seen = _same(result, violation) if result else None
            if small and result and seen:
                return Finding(_placed(seen, small), small, result.digests)
    except CouldNotRun as error:
        why = f"it could not be minimised: {error}"
    unshrunk = replace(violation, evidence=(*violation.evidence, why))
    return Finding(_placed(unshrunk, program), program)


class OutOfPatienceError(Exception):
    """Minimising takes too long."""


def _shrunk(examiner: Examining, violation: Violation, program: AnyProgram) -> AnyProgram | None:
    """The program made small, if it fails on this examiner at all.

    A crash or a hang is made as small as the time allows.
    """
    patience = MINIMISING_SECONDS if violation.rule in WORKER_RULES else float("inf")
    deadline = time.monotonic() + patience
    smallest = program

    def fails(candidate: AnyProgram) -> bool:
        nonlocal smallest
        if time.monotonic() > deadline:
            raise OutOfPatienceError
        failed = _same(examiner.examine(candidate), violation) is not None
        if failed and len(candidate.actions) <= len(smallest.actions):
            smallest = candidate
        return failed

    try:
        small: AnyProgram | None = examiner.minimise(program, fails) if fails(program) else None
    except OutOfPatienceError:
        return smallest
    return small


def _same(result: Examination, violation: Violation) -> Violation | None:
    """The violation of the same rule: a known defect is never the same as an unknown one."""
    kind = (violation.rule, violation.known)
    return next((b for b in result.violations if (b.rule, b.known) == kind), None)


def _placed(violation: Violation, program: AnyProgram) -> Violation:
    """A worker that died told of no step: the last action of a minimal program is to blame."""
    if violation.rule in WORKER_RULES:
        return replace(violation, step=len(program.actions) - 1)
    return violation
