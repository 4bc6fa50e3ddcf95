"""Proofs: decide the obligations, and say whether they come out as they must."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from invariants.proofs.catalogue import OBLIGATIONS
from invariants.proofs.obligation import Obligation, Result, prove_all
from kvproof.errors import CouldNotRun
from kvproof.search import Verdict


@dataclass(frozen=True, slots=True)
class Proofs:
    """What became of a set of obligations."""

    results: tuple[Result, ...]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        if any(not r.as_expected and not r.undecided for r in self.results):
            return "counterexample"
        undecided = any(r.undecided for r in self.results)
        return "incomplete" if undecided or not self.results else "clean"

    def count(self, verdict: str) -> int:
        return sum(result.verdict == verdict for result in self.results)


def run_proofs(only: Sequence[str] = ()) -> Proofs:
    """Prove all obligations, or those named; raises CouldNotRun if one does not exist."""
    started = time.perf_counter()
    return Proofs(tuple(prove_all(chosen(only))), time.perf_counter() - started)


def chosen(only: Sequence[str]) -> tuple[Obligation, ...]:
    known = {obligation.id: obligation for obligation in OBLIGATIONS}
    for name in only:
        if name not in known:
            raise CouldNotRun(f"there is no obligation {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in only) if only else OBLIGATIONS


def sentence_of(result: Result) -> str:
    return next(obligation.sentence for obligation in OBLIGATIONS if obligation.id == result.id)
