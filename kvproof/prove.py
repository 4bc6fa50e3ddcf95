"""Proofs: decide the obligations, and say whether they come out as they must."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from invariants.proofs.catalogue import OBLIGATIONS
from invariants.proofs.obligation import prove as prove_one
from invariants.proofs.transition_system import obligations
from invariants.proofs.transition_system.invariant import ASSUMPTION
from kvproof.errors import CouldNotRun
from kvproof.search import Verdict

SYSTEM = "system"
"""Ids that begin so are obligations of the transition system, which are decided together."""


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
    assumption: str = ASSUMPTION
    """What the transition system assumes and cannot state."""

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
    system = [name for name in only if name.startswith(SYSTEM)]
    arithmetic = [name for name in only if not name.startswith(SYSTEM)]
    results: list[Proved] = []
    if arithmetic or not only:
        results += _arithmetic(arithmetic)
    if system or not only:
        results += _system(system)
    return Proofs(tuple(results), time.perf_counter() - started)


def _arithmetic(only: Sequence[str]) -> Iterator[Proved]:
    """The theorems on admission."""
    _check(only, [obligation.id for obligation in OBLIGATIONS])
    for obligation in OBLIGATIONS:
        if only and obligation.id not in only:
            continue
        r = prove_one(obligation)
        yield Proved(
            r.id, obligation.sentence, r.rule, r.verdict, r.expected, r.ms, r.twin, r.witness,
            r.as_expected, r.undecided,
        )  # fmt: skip


def _system(only: Sequence[str]) -> list[Proved]:
    """The transition system: an invariant for any number of blocks, requests and pages."""
    results = obligations.prove()
    _check([name for name in only if name != SYSTEM], [result.id for result in results])
    return [
        Proved(
            r.id, "", r.rule, r.verdict, r.expected, r.ms, r.twin, r.witness,
            r.as_expected, "unknown" in (r.verdict, r.twin),
        )
        for r in results
        if not only or SYSTEM in only or r.id in only
    ]  # fmt: skip


def _check(only: Sequence[str], known: Sequence[str]) -> None:
    for name in only:
        if name not in known:
            raise CouldNotRun(
                f"there is no obligation {name!r}; run kvproof prove to see all, "
                f"or name {SYSTEM} for the transition system"
            )
