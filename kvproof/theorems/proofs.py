"""What became of obligations: values, from which reports are made."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvproof.search.outcome import Verdict


@dataclass(frozen=True, slots=True)
class Proved:
    """What became of one obligation."""

    id: str
    sentence: str
    rule: str
    verdict: str
    expected: str
    ms: float
    twin: str | None
    witness: Mapping[str, int] | str
    as_expected: bool
    undecided: bool


@dataclass(frozen=True, slots=True)
class Proofs:
    """What became of a set of obligations."""

    results: tuple[Proved, ...]
    seconds: float
    assumption: str
    """What the transition system assumes and cannot state."""

    @property
    def verdict(self) -> Verdict:
        if any(not r.as_expected and not r.undecided for r in self.results):
            return "counterexample"
        undecided = any(r.undecided for r in self.results)
        return "incomplete" if undecided or not self.results else "clean"

    def count(self, verdict: str) -> int:
        return sum(result.verdict == verdict for result in self.results)
