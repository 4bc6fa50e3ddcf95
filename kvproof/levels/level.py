"""What a search needs of a level: to draw its programs, to examine them and to shrink them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol

from hypothesis.stateful import RuleBasedStateMachine

from invariants.rules import SENTENCED
from invariants.violation import Cause, Violation
from kvproof.engines.vllm.environment import Load
from kvproof.errors import CouldNotRun
from kvproof.subjects.subject import Subject
from model.dialect import Dialect
from model.program import AnyProgram, Level
from model.trace import Trace
from specs.casefile import CaseFile

Comparison = Literal["exact", "renamed"]
Strategy = Literal["hypothesis", "random"]

DEATHS = {"crashed": ("crash", Cause.CRASHED), "hung": ("hang", Cause.HUNG)}
"""How a worker dies, with the rule that it breaks by it and the cause."""
WORKER_RULES = frozenset(rule for rule, _ in DEATHS.values())
"""Rules that the worker breaks. Each time costs a restart, or the time limit of a program."""


@dataclass(slots=True)
class Examination:
    """What one program came to."""

    program: AnyProgram
    violations: list[Violation] = field(default_factory=list)
    """The first violation of each rule, in the order of the steps."""
    actions_run: int = 0
    actions_moving: int = 0
    """Actions that changed the state."""
    steps: int = 0
    """Steps of the scheduler, at its level."""
    shadowed: Counter[str] = field(default_factory=Counter)
    """At the level of the scheduler: ``calls`` and ``states`` compared with the model's."""
    shadow_ended: str | None = None
    """Why the model did not follow to the end, if it did not."""
    goals: Counter[str] = field(default_factory=Counter)
    refused: str | None = None
    """Why the engine does not start with the program's setup, if it does not."""
    digests: tuple[str, ...] = ()
    """Of the answer to each action, and of what came after the last, at the level of the scheduler,
    where they were asked for."""

    def add(self, violations: Iterable[Violation]) -> None:
        known = {(violation.rule, violation.known) for violation in self.violations}
        for violation in violations:
            if (violation.rule, violation.known) not in known:
                known.add((violation.rule, violation.known))
                self.violations.append(violation)

    @property
    def rules_broken(self) -> set[str]:
        return {violation.rule for violation in self.violations}


class Examiner(Protocol):
    """Examines programs of one level on one subject. ``Any`` is a program of that level."""

    @property
    def level(self) -> Level: ...

    @property
    def subject(self) -> Subject: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def watch_goals(self) -> bool: ...

    @property
    def waived(self) -> Mapping[str, str]:
        """Rules that are not judged, with the reason."""

    def draw(self, random: Random, actions: int) -> Any:
        """A program of so many actions, always the same for the same random numbers."""

    def machine(self, finished: Callable[[Any], None]) -> type[RuleBasedStateMachine]:
        """A Hypothesis machine that draws programs, and hands each on when it is finished."""

    def examine(self, program: Any) -> Examination:
        """Raises ``CouldNotRun`` when the program could not be run at all."""

    def examine_many(self, programs: Iterable[Any]) -> Iterator[Examination]:
        """Examine programs in order; the subject runs ahead of the caller."""

    def exact(self, rule: str) -> Examiner:
        """The same examiner, looking for one rule only."""

    def shrinkers(self, rule: str) -> tuple[Examiner, ...]:
        """Whom to shrink a failing program on, the fastest first.

        What comes out counts only if the subject breaks the rule too.
        """

    def shrink(self, program: Any, fails: Callable[[Any], bool]) -> Any:
        """A small program that fails as well, with which the engine starts."""

    def traces(self, violation: Violation, program: Any) -> tuple[Trace, ...]:
        """What a finding is shown by: of what the subject is compared with, and last its own.

        They hold the states, where the level has them, at the failing step and the one before.
        """

    def unmet(self, seen: Counter[str]) -> tuple[str, ...]:
        """Goals that could have been met and were not."""


class Replaying(Examiner, Protocol):
    """An examiner of stored programs."""

    def refusal(self, program: Any) -> str | None:
        """Why the subject would not start with the program, where that is known beforehand."""

    def first_change(self, case: CaseFile, result: Examination) -> int | None:
        """First action, from 0, that is answered differently than where the case was found."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may ask of a search. A level refuses what makes no sense there."""

    dialect: str | None = None
    """Dialect to compare with, instead of the subject's own."""
    rule: str | None = None
    """The one rule, or known defect, to look for."""
    load: Load = "focused"
    compare: Comparison = "exact"
    fix: tuple[str, ...] = ()
    """``FIELD=VALUE`` of all drawn configurations."""
    shadow: bool = True
    """Whether the model follows the allocator where the level is judged beside the engine."""


@dataclass(frozen=True, slots=True)
class LevelTools:
    """What commands need of a level."""

    programs: str
    """What its programs are of, in words."""
    open: Callable[[str, Options], AbstractContextManager[Examiner]]
    """An examiner of the subject that is named; raises ``CouldNotRun``."""
    replaying: Callable[[Subject, CaseFile, str | None], Replaying]
    """An examiner of a case file on a subject, under the dialect that is named, if one is."""
    strategy: Strategy
    """How it is searched if nothing is said."""
    budgets: tuple[str, ...]
    """The options that say how much to run."""


def check_rule(rule: str | None, judged: Sequence[str], level: Level) -> None:
    """Raises ``CouldNotRun`` for a rule that is not judged at a level."""
    if rule is not None and rule not in judged:
        what = f"there is no rule {rule!r}"
        if rule in SENTENCED:
            what = f"{rule} is not judged in programs of the level of the {level}"
        raise CouldNotRun(f"{what}; there are {', '.join(judged)}")


def first_difference(recorded: Sequence[object], replayed: Sequence[object]) -> int | None:
    """The first answer that is another one; none if none was recorded."""
    if not recorded:
        return None
    for index, (ours, theirs) in enumerate(zip(recorded, replayed, strict=False)):
        if ours != theirs:
            return index
    shorter = min(len(recorded), len(replayed))
    return shorter if len(recorded) != len(replayed) else None
