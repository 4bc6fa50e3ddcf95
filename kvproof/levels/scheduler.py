"""Examine one program of whole engine steps: the rules are judged where it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, get_args, get_type_hints

from hypothesis.stateful import RuleBasedStateMachine

from invariants.known import defects_of
from invariants.rules import RULES_OF
from invariants.scheduler.account import account_of
from invariants.scheduler.goals import GOALS, excluded_goals, unreachable_goals
from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import (
    DEATHS,
    Examination,
    LevelTools,
    Options,
    check_rule,
    first_difference,
)
from kvproof.subjects.decoding import digest_of_answer
from kvproof.subjects.names import open_subject
from kvproof.subjects.subject import Detail, Subject
from model.dialect import Dialect
from model.program import Level, Program
from model.scheduler.events import plain
from model.scheduler.legal import AT_LEAST_ONE
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from model.trace import Trace
from specs.casefile import MAX_NUMBER, MAX_PARALLEL, CaseFile
from specs.scheduler.generator import draw_actions, draw_setup
from specs.scheduler.machine import machine_for
from specs.scheduler.plan import shrink


@dataclass(frozen=True, slots=True)
class SchedulerExaminer:
    """Runs programs on an engine's scheduler, with the ghost of a worker and of a store.

    ``only`` is the one rule to look for, none for all. ``modes`` fixes fields of the setups that
    are drawn. ``digests`` asks for those of the answers.
    """

    subject: Subject
    only: str | None = None
    modes: Mapping[str, Any] = field(default_factory=dict)
    watch_goals: bool = True
    digests: bool = False

    @property
    def level(self) -> Level:
        return "scheduler"

    @property
    def dialect(self) -> Dialect:
        return self.subject.dialect

    @property
    def waived(self) -> Mapping[str, str]:
        """Rules that the release breaks by design, with the reason."""
        return self.dialect.waived("scheduler")

    def draw(self, random: Random, actions: int) -> SchedulerProgram:
        setup = self._setup(random)
        return Program(setup, draw_actions(random, setup, actions))

    def _setup(self, random: Random) -> SchedulerSetup:
        try:
            return draw_setup(random, self.modes)
        except ValueError as error:
            raise CouldNotRun(f"no engine starts with what is fixed: {error}") from error

    def examine(self, program: SchedulerProgram) -> Examination:
        return self.examination(self.subject.run(program, self._needed))

    def examine_many(self, programs: Iterable[SchedulerProgram]) -> Iterator[Examination]:
        for trace in self.subject.run_many(programs, self._needed):
            yield self.examination(trace)

    def examination(self, trace: Trace) -> Examination:
        """What a trace comes to."""
        if trace.ending == "error":
            raise CouldNotRun(f"{trace.subject} could not run a program: {trace.failure}")
        account = account_of(trace)
        result = Examination(trace.program, steps=account.steps, goals=account.goals)
        result.shadowed["calls"] = account.shadowed_calls
        result.shadowed["states"] = account.shadowed_states
        result.shadow_ended = account.shadow_ended
        if trace.ending == "refused":
            result.refused = trace.failure
            return result
        if trace.ending in DEATHS:
            evidence = (trace.failure or trace.ending).splitlines()
            rule, cause = DEATHS[trace.ending]
            result.add([Violation(rule, 0, cause, tuple(evidence))])
            return result
        result.add(b for b in account.violations if self.only in (None, b.rule, b.known))
        result.actions_run = len(trace.program.actions)
        if account.violations:
            result.actions_run = min(result.actions_run, account.violations[0].step + 1)
        if self.digests:
            result.digests = digests_of(trace)
        return result

    @property
    def _needed(self) -> Detail:
        return "digests" if self.digests else "none"

    def traces(self, violation: Violation, program: SchedulerProgram) -> tuple[Trace, ...]:
        try:
            return (self.subject.run(program, "all"),)
        except CouldNotRun as error:  # it ran before: the finding counts all the same
            return (Trace(self.subject.name, program, (), "error", str(error)),)

    def exact(self, rule: str) -> SchedulerExaminer:
        return replace(self, only=rule, watch_goals=False, digests=True)

    def shrinkers(self, rule: str) -> tuple[SchedulerExaminer, ...]:
        return (replace(self.exact(rule), digests=False),)

    def machine(self, finished: Callable[[SchedulerProgram], None]) -> type[RuleBasedStateMachine]:
        return machine_for(self._setup, finished)

    def shrink(
        self, program: SchedulerProgram, fails: Callable[[SchedulerProgram], bool]
    ) -> SchedulerProgram:
        return shrink(program, fails)

    def refusal(self, _: SchedulerProgram) -> str | None:
        """The engine itself says so, when it runs."""
        return None

    def first_change(self, case: CaseFile, result: Examination) -> int | None:
        return first_difference(case.digests, result.digests)

    def unmet(self, seen: Counter[str]) -> tuple[str, ...]:
        excluded = excluded_goals(self.modes) | unreachable_goals(self.dialect)
        return tuple(goal for goal in GOALS if goal not in excluded and not seen[goal])


def modes_of(settings: Iterable[str]) -> dict[str, Any]:
    """Read ``FIELD=VALUE`` of a scheduler's setup; raises ``CouldNotRun``."""
    hints = get_type_hints(SchedulerSetup)
    modes: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in hints:
            raise CouldNotRun(f"--fix {setting}: a setting is one of {', '.join(hints)}")
        kind = hints[name]
        value = _number(setting, name, text) if kind is int else _word(setting, text, kind)
        if modes.setdefault(name, value) != value:
            raise CouldNotRun(f"--fix {setting}: {name} is fixed to something else already")
    return modes


def _word(setting: str, text: str, kind: Any) -> Any:
    words: dict[str, Any] = {"true": True, "false": False} if kind is bool else {}
    words |= {word: word for word in get_args(kind)}
    if text not in words:
        raise CouldNotRun(f"--fix {setting}: give {' or '.join(words)}")
    return words[text]


def _number(setting: str, name: str, text: str) -> int:
    """One that a trace file may hold: what is found must be readable again."""
    least = 1 if name in AT_LEAST_ONE else 0
    most = MAX_PARALLEL if name == "num_resident_groups" else MAX_NUMBER
    short = text.isdecimal() and len(text) <= len(str(most))
    if not short or not least <= int(text) <= most:
        raise CouldNotRun(f"--fix {setting}: give a number from {least} to {most}")
    return int(text)


def digests_of(trace: Trace) -> tuple[str, ...]:
    """A short fingerprint of the answer to each action, and one of all that came after them."""
    count = len(trace.program.actions)
    digests = tuple(step.digest for step in trace.steps[:count])
    drained = [plain(step.response) for step in trace.steps[count:]]
    return (*digests, digest_of_answer(drained)) if drained else digests


# What commands need


@contextmanager
def _opened(name: str, options: Options) -> Iterator[SchedulerExaminer]:
    """An examiner of a whole scheduler; raises ``CouldNotRun`` for what makes no sense there."""
    rules = (*RULES_OF["scheduler"], *defects_of("scheduler"))
    check_rule(options.rule, rules, "scheduler")
    if options.compare != "exact":
        raise CouldNotRun("--compare is for --level manager: the scheduler has no model beside it")
    modes = modes_of(options.fix)
    opened = open_subject(name, "scheduler", options.load, options.dialect, shadow=options.shadow)
    with opened as subject:
        check_defect(options.rule, subject.dialect)
        yield SchedulerExaminer(subject, options.rule, modes, watch_goals=options.rule is None)


def check_defect(rule: str | None, dialect: Dialect) -> None:
    """A defect that a release is not known for is never named there: it would look clean."""
    if rule in defects_of("scheduler") and rule not in dialect.known_defects:
        raise CouldNotRun(f"{rule} is no known defect of {dialect.name}: look for its rule instead")


def _replaying(subject: Subject, _: CaseFile, __: str | None) -> SchedulerExaminer:
    """Under the dialect that the subject was opened with."""
    return SchedulerExaminer(subject, watch_goals=False, digests=True)


TOOLS = LevelTools(
    programs="whole engine steps",
    open=_opened,
    replaying=_replaying,
    strategy="random",
    budgets=("--programs", "--time", "--steps"),
)
