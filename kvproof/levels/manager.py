"""Examine one program on a subject: lockstep with the reference, and the judge on every step."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import tee
from random import Random

from hypothesis.stateful import RuleBasedStateMachine

from invariants.manager.goals import GOALS, GoalWatcher, unreachable_goals
from invariants.manager.judge import Judge, initial_snapshot
from invariants.rules import ENDINGS_OF, RULES, RULES_OF, Rule
from invariants.violation import Cause, Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import (
    DEATHS,
    Comparison,
    Examination,
    LevelTools,
    Options,
    check_rule,
    first_difference,
)
from kvproof.levels.renaming import Renaming
from kvproof.subjects.names import dialect_named, open_subject
from kvproof.subjects.reference import ReferenceSubject, reference_subject
from kvproof.subjects.subject import Detail, Subject
from model.dialect import Dialect
from model.events import PlainEvent
from model.manager.events import Response, StepEnded, plain
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Level
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.snapshot import Digester, Snapshot
from model.startup import below_minimum
from model.trace import Trace
from specs.casefile import CaseFile
from specs.manager.generator import draw_program
from specs.manager.machine import machine_for
from specs.manager.plan import shrink


@dataclass(frozen=True, slots=True)
class ManagerExaminer:
    """Runs programs on a subject beside the reference under a dialect.

    ``rules`` are those to judge; none means lockstep only.
    """

    subject: Subject
    dialect: Dialect
    rules: Sequence[Rule] = RULES
    watch_goals: bool = True
    comparison: Comparison = "exact"
    """Whether block ids and the order of the free queue must be the reference's own, or may be
    others as long as the subject behaves alike."""

    @property
    def level(self) -> Level:
        return "manager"

    @property
    def waived(self) -> Mapping[str, str]:
        """Rules that the dialect breaks by design, with the reason."""
        return self.dialect.waived("manager")

    def draw(self, random: Random, actions: int) -> ManagerProgram:
        return draw_program(random, self.dialect, actions)

    def machine(self, finished: Callable[[ManagerProgram], None]) -> type[RuleBasedStateMachine]:
        return machine_for(self.dialect, finished)

    def shrink(
        self, program: ManagerProgram, fails: Callable[[ManagerProgram], bool]
    ) -> ManagerProgram:
        fast = isinstance(self.subject, ReferenceSubject)
        return shrink(program, fails, self.dialect, fast)

    def unmet(self, seen: Counter[str]) -> tuple[str, ...]:
        unreachable = unreachable_goals(self.dialect)
        return tuple(goal for goal in GOALS if goal not in unreachable and not seen[goal])

    def exact(self, rule: str) -> "ManagerExaminer":
        """The same examiner, looking for one rule only."""
        only = tuple(r for r in self.rules if r.id == rule)
        return replace(self, rules=only, watch_goals=False)

    def shrinkers(self, rule: str) -> tuple["ManagerExaminer", ...]:
        """Whom to shrink a failing program on: the reference, which is faster, then the subject.

        What comes out counts only if the subject breaks the rule too.
        """
        model = reference_subject(self.dialect, "model")
        return (replace(self.exact(rule), subject=model), self.exact(rule))

    def refusal(self, program: ManagerProgram) -> str | None:
        return below_minimum(program.configuration, self.dialect)

    def first_change(self, case: CaseFile, _: Examination) -> int | None:
        return first_changed_step(case, self.subject)

    def traces(self, violation: Violation, program: ManagerProgram) -> tuple[Trace, ...]:
        model = reference_subject(self.dialect, f"model {self.dialect.name}")
        return shown_by((model, self.subject), violation, program)

    def examine(self, program: ManagerProgram) -> Examination:
        trace = None if self._is_the_reference else self.subject.run(program, self._needed)
        return self.compare(program, trace)

    def examine_many(self, programs: Iterable[ManagerProgram]) -> Iterator[Examination]:
        """Examine programs in order; the subject runs ahead of the reference."""
        ours, theirs = tee(programs)
        if self._is_the_reference:
            for program in ours:
                yield self.compare(program, None)
            return
        for trace in self.subject.run_many(theirs, self._needed):
            yield self.compare(next(ours), trace)

    @property
    def _needed(self) -> Detail:
        """What must come back from the subject to be compared."""
        return "digests" if self.comparison == "exact" else "all"

    @property
    def _is_the_reference(self) -> bool:
        """Whether the subject is the very model that it would be compared with."""
        subject = self.subject
        return isinstance(subject, ReferenceSubject) and subject.runs_as == self.dialect

    def compare(self, program: ManagerProgram, trace: Trace | None) -> Examination:
        """Walk the reference beside a trace of the subject, up to the first difference."""
        if trace is not None and trace.ending == "error":
            raise CouldNotRun(f"{trace.subject} could not run a program: {trace.failure}")
        result = Examination(program)
        session = Session(
            program.configuration, ReferenceAllocator(program.configuration, self.dialect)
        )
        judge = Judge(program.configuration, self.dialect, self.rules) if self.rules else None
        goals = GoalWatcher(program.configuration, self.dialect)
        before = initial_snapshot(program.configuration, self.dialect)
        alike = self._comparer(trace)
        for index, action in enumerate(program.actions):
            response = session.do(action)
            after = session.snapshot()
            result.actions_run += 1
            result.actions_moving += after != before
            if trace is not None and not alike(index, response, after):
                self._diverged(result, trace, index)
                break
            if judge is not None:
                result.add(judge.judge(action, response, after))
            if self.watch_goals:
                goals.watch(before, action, response, after)
            before = after
            if session.dead:
                break
        result.goals = goals.seen
        return result

    def _comparer(self, trace: Trace | None) -> Callable[[int, Response, Snapshot], bool]:
        """Whether a step of the subject is the reference's: to be asked for each step, in order."""
        steps = trace.steps if trace is not None else ()
        if self.comparison == "exact":
            digester = Digester()
            return lambda index, response, after: (
                index < len(steps)
                and steps[index].digest == digester.digest(plain(response), after)
            )
        renaming = Renaming(trace is not None and trace.program.configuration.hisparse)

        def alike(index: int, response: Response, after: Snapshot) -> bool:
            if index >= len(steps):
                return False
            step = steps[index]
            assert step.snapshot is not None
            return renaming.agrees((response, after), (step.response, step.snapshot))

        return alike

    def _diverged(self, result: Examination, trace: Trace, index: int) -> None:
        """The subject answered differently: judge its own states, and report the difference."""
        if index >= len(trace.steps) and trace.ending in DEATHS:
            rule, cause = DEATHS[trace.ending]
            result.add([Violation(rule, index, cause, (trace.failure or trace.ending,))])
            return
        own = self.subject.run(trace.program, "all")
        if self.rules:
            result.violations = []
            result.add(judge_trace(own, self.dialect, self.rules))
        result.add([Violation("lockstep", index, Cause.DIFFERS, self._difference(own, index))])

    def _difference(self, own: Trace, index: int) -> tuple[str, ...]:
        reference = reference_subject(self.dialect, "model").run(own.program, "all")
        if index >= len(own.steps) or index >= len(reference.steps):
            return (
                f"the model took {len(reference.steps)} actions, {own.subject} {len(own.steps)}",
            )
        mine, theirs = reference.steps[index], own.steps[index]
        lines: list[str] = []
        answers = plain(mine.response), plain(theirs.response)
        if repr(answers[0]) != repr(answers[1]):
            lines.append(f"model answers {answers[0]}, {own.subject} {answers[1]}")
        if mine.snapshot is not None and theirs.snapshot is not None:
            for name, ours, other in zip(
                mine.snapshot._fields, mine.snapshot, theirs.snapshot, strict=True
            ):
                if repr(ours) != repr(other):
                    lines.append(f"{name} differs")
        return tuple(lines) or (
            "the digests differ once, and not again: the subject is not stable",
        )


def shown_by(
    subjects: Sequence[Subject], violation: Violation, program: ManagerProgram
) -> tuple[Trace, ...]:
    """A trace of each subject, with the states at the failing step and the one before."""
    return tuple(_around(violation.step, _run(subject, program)) for subject in subjects)


def _run(subject: Subject, program: ManagerProgram) -> Trace:
    try:
        return subject.run(program, "all")
    except CouldNotRun as error:  # it ran before: the finding counts all the same
        return Trace(subject.name, program, (), "error", str(error))


def _around(failing: int, trace: Trace) -> Trace:
    """Without the states that are far from the failing step: nobody looks at them."""
    steps = [
        step if index in (failing - 1, failing) else replace(step, snapshot=None)
        for index, step in enumerate(trace.steps)
    ]
    return replace(trace, steps=tuple(steps))


def judge_trace(trace: Trace, dialect: Dialect, rules: Sequence[Rule] = RULES) -> list[Violation]:
    """Judge a trace that holds the states: the violations of its own steps."""
    judge = Judge(trace.program.configuration, dialect, rules)
    violations: list[Violation] = []
    for action, step in zip(trace.program.actions, trace.steps, strict=False):
        if step.snapshot is None:
            break
        violations += judge.judge(action, step.response, step.snapshot)
    return violations


# What commands need


def rules_for(only: str | None) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if only in (None, rule.id))


@contextmanager
def _opened(name: str, options: Options) -> Iterator[ManagerExaminer]:
    """An examiner that looks for one rule or all; raises ``CouldNotRun`` if it would see none."""
    check_rule(options.rule, RULES_OF["manager"], "manager")
    if options.fix:
        raise CouldNotRun("--fix fixes a setting of schedulers: it needs --level scheduler")
    with open_subject(name, "manager", options.load, options.dialect) as subject:
        _check_judged(name, subject, options.rule)
        yield ManagerExaminer(
            subject,
            subject.dialect,
            rules_for(options.rule),
            watch_goals=options.rule is None,
            comparison=options.compare,
        )


def _check_judged(name: str, subject: Subject, rule: str | None) -> None:
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


def _replaying(subject: Subject, case: CaseFile, dialect: str | None) -> ManagerExaminer:
    """Under the dialect that is named; else, where a case was found, the one it was found with."""
    found = case.found
    if dialect is None and found and found.subject == subject.name and found.dialect in DIALECTS:
        dialect = found.dialect
    compared_with = subject.dialect if dialect is None else dialect_named(dialect)
    return ManagerExaminer(subject, compared_with, watch_goals=False)


def first_changed_step(case: CaseFile, subject: Subject) -> int | None:
    """Compare the answers with those of the dialect in which the case was found."""
    names = [case.found.dialect] if case.found is not None else []
    if case.expect is not None:
        names += [n.removeprefix("reference:") for n in case.expect.fails if "reference:" in n]
    if not names or names[0] not in DIALECTS:
        return None
    recorded = reference_subject(DIALECTS[names[0]], "recorded").run(case.program, "none")
    replayed = subject.run(case.program, "none")
    ours, theirs = (
        [_essence(step.response) for step in steps] for steps in (recorded.steps, replayed.steps)
    )
    return first_difference(ours, theirs)


def _essence(response: Response) -> list[PlainEvent]:
    """A response without what only tells workers of residency, which every release does its way."""
    return [
        told[:3] if isinstance(event, StepEnded) else told
        for event, told in zip(response, plain(response), strict=True)
    ]


TOOLS = LevelTools(
    programs="calls of the manager",
    open=_opened,
    replaying=_replaying,
    strategy="hypothesis",
    budgets=("--programs", "--time"),
)
