"""What became of one obligation."""

from dataclasses import dataclass
from typing import Literal

from invariants.proofs.transition_system.solver import Answer

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


def impossible(*answers: Answer) -> Verdict:
    """The verdict on a claim that is true if no query can be satisfied."""
    if "satisfiable" in answers:
        return "refuted"
    return "unknown" if "unknown" in answers else "proved"


def possible(answer: Answer) -> Verdict:
    """The verdict on a claim that is true if the query can be satisfied."""
    verdicts: dict[Answer, Verdict] = {"satisfiable": "proved", "unsatisfiable": "refuted"}
    return verdicts.get(answer, "unknown")
