"""What each kind of stage comes to: numbers and records, from which every report is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from invariants.scheduler.effort import Effort
from kvproof.search.outcome import Outcome, Verdict
from kvproof.search.replayed import Replayed, verdict_of
from kvproof.theorems.proofs import Proofs


@dataclass(frozen=True, slots=True)
class NotRun:
    """A stage that could not run: nothing is known, and that is never green."""

    why: str

    @property
    def verdict(self) -> Verdict:
        return "incomplete"


@dataclass(frozen=True, slots=True)
class Column:
    """A subject's column of the table, and the design's."""

    subject: str
    cells: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        return self.cells == self.expected


@dataclass(frozen=True, slots=True)
class TableResult:
    columns: tuple[Column, ...]
    rows: int

    @property
    def verdict(self) -> Verdict:
        return "clean" if all(c.as_expected for c in self.columns) else "counterexample"


@dataclass(frozen=True, slots=True)
class PredictedResult:
    """Whether the arithmetic that is proved predicts an allocator, and a faulty one does not."""

    shapes: int
    """Pool shapes that were seen."""
    least_shapes: int
    """How many it takes to mean anything."""
    calls: int
    mismatches: tuple[str, ...]
    unseen_fault: str | None
    """The fault of the arithmetic that had to be noticed and was not."""

    @property
    def verdict(self) -> Verdict:
        if self.shapes < self.least_shapes or not self.calls:
            return "incomplete"
        return "counterexample" if self.mismatches or self.unseen_fault else "clean"


@dataclass(frozen=True, slots=True)
class CorpusResult:
    entries: tuple[Replayed, ...]

    @property
    def run(self) -> tuple[Replayed, ...]:
        """What the subject starts with; the rest is not for it."""
        return tuple(entry for entry in self.entries if entry.starts)

    @property
    def wrong(self) -> tuple[Replayed, ...]:
        return tuple(entry for entry in self.run if not entry.as_expected)

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.run)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search came to, and where its findings are."""

    outcome: Outcome
    saved: Mapping[str, Path] = field(default_factory=dict)
    """Case file of each rule that was broken."""
    unsaved: str | None = None
    """Why there are none, if they could not be written: what was found counts all the same."""

    @property
    def verdict(self) -> Verdict:
        return self.outcome.verdict


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Whether a subject that is known to break a rule was seen to."""

    subject: str
    rule: str
    programs: int
    actions: int | None
    """Of the program that shows it; None if nothing was found."""

    @property
    def verdict(self) -> Verdict:
        return "counterexample" if self.actions is None else "clean"


@dataclass(frozen=True, slots=True)
class EffortResult:
    """What a step costs after a short and after a long context."""

    rule: str
    efforts: tuple[Effort, ...]
    waived: str | None
    """Why growth is no reason for red, if it is by design."""

    @property
    def growing(self) -> tuple[Effort, ...]:
        return tuple(effort for effort in self.efforts if effort.grows)

    @property
    def verdict(self) -> Verdict:
        return "counterexample" if self.growing and self.waived is None else "clean"


StageResult = (
    NotRun
    | TableResult
    | Proofs
    | PredictedResult
    | CorpusResult
    | SearchResult
    | CanaryResult
    | EffortResult
)


def was_interrupted(result: StageResult) -> bool:
    """Whether the user ended the stage, and it told what it had found."""
    return isinstance(result, SearchResult) and result.outcome.interrupted
