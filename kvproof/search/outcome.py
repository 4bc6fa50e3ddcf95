"""What a search comes to, and who is told on the way."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from invariants.violation import Violation
from model.program import AnyProgram, Level
from model.trace import Trace

Verdict = Literal["clean", "counterexample", "incomplete"]


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

    interrupted: bool = False
    """Whether the user ended it: what was found by then is as it was found."""
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


class Progress(Protocol):
    """Told how far a search is: what has run, and what is done now if it is not running more."""

    def __call__(self, outcome: Outcome, doing: str = "", /) -> None: ...


def unseen(outcome: Outcome, doing: str = "", /) -> None:
    """Progress that nobody watches."""
