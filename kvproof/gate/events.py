"""What the gate tells while it runs: terminal, JUnit, JSON and annotations are made of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.gate.results import StageResult
from kvproof.search.outcome import Verdict


@dataclass(frozen=True, slots=True)
class StageStarted:
    name: str
    subject: str


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far a stage that searches is, and what it does now if not running more programs."""

    name: str
    subject: str
    programs: int
    doing: str = ""


@dataclass(frozen=True, slots=True)
class StageEnded:
    """One part of the gate, on one subject, and what it came to."""

    name: str
    subject: str
    seconds: float
    result: StageResult

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict


GateEvent = StageStarted | StageProgress | StageEnded
Observer = Callable[[GateEvent], None]


@dataclass(frozen=True, slots=True)
class GateResult:
    stages: tuple[StageEnded, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    """What a reader has to know of the subjects."""
    interrupted: bool = False
    """Whether the user ended it before its last stage."""

    @property
    def verdict(self) -> Verdict:
        verdicts = {stage.verdict for stage in self.stages}
        if "counterexample" in verdicts:
            return "counterexample"
        return "clean" if verdicts == {"clean"} and not self.interrupted else "incomplete"
