"""What a search needs of a level: to draw its programs, to examine them and to make them small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from invariants.violation import Violation
from model.dialect import Dialect
from model.program import AnyProgram, Level
from model.trace import Trace


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


class Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...


class Examining(Protocol):
    """Examines programs of one level on one subject. ``Any`` is a program of that level."""

    @property
    def level(self) -> Level: ...

    @property
    def subject(self) -> Named: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def watch_goals(self) -> bool: ...

    @property
    def waived(self) -> Mapping[str, str]:
        """Rules that are not judged, with the reason."""

    def draw(self, random: Random, actions: int) -> Any:
        """A program of so many actions, always the same for the same random numbers."""

    def examine(self, program: Any) -> Examination:
        """Raises ``CouldNotRun`` when the program could not be run at all."""

    def examine_many(self, programs: Iterable[Any]) -> Iterator[Examination]:
        """Examine programs in order; the subject runs ahead of the caller."""

    def exact(self, rule: str) -> Examining:
        """The same examiner, looking for one rule only."""

    def shrinkers(self, rule: str) -> tuple[Examining, ...]:
        """Whom to shrink a failing program on, the fastest first.

        What comes out counts only if the subject breaks the rule too.
        """

    def minimise(self, program: Any, fails: Callable[[Any], bool]) -> Any:
        """A small program that fails as well, with which the engine starts."""

    def traces(self, violation: Violation, program: Any) -> tuple[Trace, ...]:
        """What a finding is shown by: of what the subject is compared with, and last its own.

        They hold the states, where the level has them, at the failing step and the one before.
        """

    def unmet(self, seen: Counter[str]) -> tuple[str, ...]:
        """Goals that could have been met and were not."""
