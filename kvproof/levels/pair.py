"""Two subjects in lockstep with each other."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import tee
from random import Random

from hypothesis.stateful import RuleBasedStateMachine

from invariants.violation import Cause, Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.level import DEATHS, Examination
from kvproof.levels.manager import shown_by
from kvproof.subjects.subject import Subject
from model.dialect import Dialect
from model.manager.events import plain
from model.manager.program import ManagerProgram
from model.program import Level
from model.trace import Trace
from specs.manager.generator import draw_program
from specs.manager.machine import machine_for
from specs.manager.plan import shrink


@dataclass(frozen=True, slots=True)
class PairExaminer:
    """Compares two subjects, answer for answer and state for state.

    Programs are played against the reference under ``dialect``, that of the first subject.
    """

    subject: Subject
    other: Subject
    dialect: Dialect
    watch_goals: bool = False

    @property
    def level(self) -> Level:
        return "manager"

    @property
    def waived(self) -> Mapping[str, str]:
        return self.dialect.waived("manager")

    def draw(self, random: Random, actions: int) -> ManagerProgram:
        return draw_program(random, self.dialect, actions)

    def machine(self, finished: Callable[[ManagerProgram], None]) -> type[RuleBasedStateMachine]:
        return machine_for(self.dialect, finished)

    def shrink(
        self, program: ManagerProgram, fails: Callable[[ManagerProgram], bool]
    ) -> ManagerProgram:
        return shrink(program, fails, self.dialect, small_scopes=False)

    def traces(self, violation: Violation, program: ManagerProgram) -> tuple[Trace, ...]:
        return shown_by((self.subject, self.other), violation, program)

    def unmet(self, seen: Counter[str]) -> tuple[str, ...]:
        return ()

    def examine(self, program: ManagerProgram) -> Examination:
        return self.compare(program, self.subject.run(program), self.other.run(program))

    def examine_many(self, programs: Iterable[ManagerProgram]) -> Iterator[Examination]:
        ours, first, second = tee(programs, 3)
        traces = zip(self.subject.run_many(first), self.other.run_many(second), strict=True)
        for one, two in traces:
            yield self.compare(next(ours), one, two)

    def compare(self, program: ManagerProgram, one: Trace, two: Trace) -> Examination:
        result = Examination(program)
        result.actions_run = min(len(one.steps), len(two.steps))
        for trace in (one, two):
            if trace.ending == "error":
                raise CouldNotRun(f"{trace.subject} could not run a program: {trace.failure}")
            if trace.ending in DEATHS:
                evidence = f"{trace.subject}: {trace.failure or trace.ending}"
                rule, cause = DEATHS[trace.ending]
                result.add([Violation(rule, 0, cause, tuple(evidence.splitlines()))])
        if result.violations:
            return result
        for index in range(max(len(one.steps), len(two.steps))):
            digests = [t.steps[index].digest if index < len(t.steps) else "" for t in (one, two)]
            if digests[0] != digests[1]:
                result.add(
                    [Violation("lockstep", index, Cause.DIFFERS, self._difference(one, two, index))]
                )
                break
        return result

    @staticmethod
    def _difference(one: Trace, two: Trace, index: int) -> tuple[str, ...]:
        answers = [
            plain(t.steps[index].response) if index < len(t.steps) else t.ending for t in (one, two)
        ]
        if answers[0] == answers[1]:
            return (f"both answer {answers[0]}, and the states differ",)
        told = zip((one, two), answers, strict=True)
        return ("the answers differ", *(f"{trace.subject}: {answer}" for trace, answer in told))

    def exact(self, rule: str) -> "PairExaminer":
        return self

    def shrinkers(self, rule: str) -> tuple["PairExaminer", ...]:
        return (self,)
