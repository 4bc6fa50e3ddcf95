"""What became of one obligation."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    rule: str
    """Ids of the rules that the obligation covers."""
    verdict: Verdict
    expected: Verdict
    ms: float
    twin: Verdict | None = None
    """Verdict of the same obligation with a guard removed: it must be ``refuted``."""
    witness: str = ""
    """Evidence: a counterexample, a state in which it happens, or what was checked."""

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.expected and self.twin in (None, "refuted")
