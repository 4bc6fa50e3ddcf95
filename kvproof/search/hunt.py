"""A search under way: what was counted, and the first program that broke each rule."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import WORKER_RULES, Examination, Examiner
from kvproof.search.outcome import Finding, Outcome, Progress, unseen
from kvproof.search.shrinking import small_finding
from model.program import AnyProgram

MAX_DEATHS = 20
"""Crashes and hangs after which a search ends: more of them tell nothing new."""
ACTIONS = 60
"""Actions of a program of the bare loop."""

Drawn = TypeVar("Drawn")


@dataclass(slots=True)
class Hunt:
    """One search under way: counts, and the first failing program of each rule."""

    examiner: Examiner
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

    def interrupt(self) -> None:
        """The user wants it to end: what was found is kept, as it is. With nothing found, that is
        all there is to say."""
        if not self.failing:
            raise KeyboardInterrupt
        self.outcome.stopped, self.outcome.interrupted = "interrupted", True

    def stop(self, error: CouldNotRun) -> None:
        """The subject cannot go on: what was found before counts all the same."""
        if not self.failing:
            raise error
        self.outcome.stopped = str(error)


def start_hunt(
    examiner: Examiner,
    run_seed: int,
    only: str | None,
    limit: int | None,
    seconds: float | None,
    step_limit: int | None = None,
) -> Hunt:
    outcome = Outcome(examiner.subject.name, examiner.dialect.name, run_seed, examiner.level)
    outcome.notes = examiner.subject.notes
    outcome.waived = dict(examiner.waived)
    deadline = None if seconds is None else time.monotonic() + seconds
    return Hunt(examiner, outcome, only, deadline, limit, step_limit)


def conclude(hunt: Hunt, started: float, progress: Progress) -> Outcome:
    """Shrink what was found; ``started`` is when the search did (monotonic seconds)."""
    outcome = hunt.outcome
    for violation, program in hunt.failing.values():
        progress(outcome, f"minimising {violation.rule}")
        outcome.findings.append(_kept(hunt, violation, program))
    if hunt.only is None and hunt.examiner.watch_goals:
        outcome.unmet = hunt.examiner.unmet(outcome.goals)
    outcome.seconds = time.monotonic() - started
    return outcome


def _kept(hunt: Hunt, violation: Violation, program: AnyProgram) -> Finding:
    """A finding made of a failing program: a small one, or the program as it was found."""
    if not hunt.outcome.interrupted:
        try:
            finding = small_finding(hunt.examiner, violation, program)
            traces = hunt.examiner.traces(finding.violation, finding.program)
            return replace(finding, traces=traces)
        except KeyboardInterrupt:
            hunt.interrupt()
    return Finding(violation, program)


def soak(
    examiner: Examiner,
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
    except KeyboardInterrupt:
        hunt.interrupt()
    return conclude(hunt, started, progress)


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
