"""How case files went that were replayed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvproof.search.outcome import Verdict

Result = Literal["FIXED", "FAILED", "ERROR"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """How one trace went on one subject."""

    trace: str
    subject: str
    outcome: Result
    expected: Result | None
    first_changed_step: int | None
    """First action, from 0, that was answered differently than where the trace was found."""
    why: str = ""
    known: str | None = None
    """The known defect of the subject's release that the trace shows, if it is one."""
    starts: bool = True
    """Whether the subject would start with the trace's configuration at all."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of the subject."""

    @property
    def as_expected(self) -> bool:
        """Without an expectation of its own a trace must not fail, but for a known defect."""
        if self.expected is not None:
            return self.outcome == self.expected
        return self.outcome == "FIXED" or self.known is not None


def verdict_of(replayed: Sequence[Replayed]) -> Verdict:
    """What could not be replayed is never clean, and neither is replaying nothing."""
    if any(not entry.as_expected and entry.outcome != "ERROR" for entry in replayed):
        return "counterexample"
    if not replayed or any(entry.outcome == "ERROR" for entry in replayed):
        return "incomplete"
    return "clean"
