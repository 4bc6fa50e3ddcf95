"""What a theorem is: an obligation with a claim, a guard that it needs, and a verdict."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from invariants.proofs.arithmetic import (
    TIME_LIMIT_MS,
    Answer,
    Symbols,
    decide,
    decide_least,
    opposite,
)
from model import admission
from model.admission import INTEGERS, Arithmetic, Demand, Number, Truth

Verdict = Literal["proved", "refuted", "unknown"]
"""``unknown``: the solver could not decide in time. It never counts as proved, or as refuted."""


class Formulas(Protocol):
    """The functions that claims are about: those of ``model.admission``, or of a mutant."""

    def full_attention_need(
        self,
        pages: Number,
        hit_pages: Number,
        held: Number,
        hit_free: Number,
        a: Arithmetic = INTEGERS,
    ) -> Number: ...

    def resident_need(
        self, pages: Number, computed_pages: Number, held: Number, a: Arithmetic = INTEGERS
    ) -> Number: ...

    def hot_need(
        self, wants: Truth, region: Number, held: Number, a: Arithmetic = INTEGERS
    ) -> Number: ...

    def gpu_need(
        self,
        demand: Demand,
        resident_groups: Number,
        region: Number,
        resident_cap: Number | None,
        charge_copies: bool,
        a: Arithmetic = INTEGERS,
    ) -> Number: ...

    def host_shortage(
        self, demand: Demand, host_free: Number, num_blocks: Number, a: Arithmetic = INTEGERS
    ) -> Number: ...

    def admits(self, need: Number, watermark: Number, free: Number) -> Truth: ...

    def kept_copies(
        self, free: Number, taken: Number, copies: Number, behind: Number, a: Arithmetic = INTEGERS
    ) -> Number: ...


THE_MODELS: Formulas = admission


@dataclass(frozen=True, slots=True)
class Claim:
    """What is given implies the goal, for all values of the unknowns. Without the guard, or with
    what stands instead of it, it would not."""

    symbols: Symbols
    guard: Truth
    goal: Truth
    given: tuple[Truth, ...] = ()
    tight: tuple[Truth, ...] = ()
    """What shows that its bound is reached. It must be possible, with the guard and the given:
    so a claim of nothing is never taken for a theorem."""


@dataclass(frozen=True, slots=True)
class Obligation:
    id: str
    sentence: str
    rules: tuple[str, ...]
    """Ids of the rules that it covers (``specs/README.md``)."""
    claim: Callable[[Formulas], Claim]
    expected: Verdict = "proved"


@dataclass(frozen=True, slots=True)
class Result:
    id: str
    rule: str
    verdict: Verdict
    expected: Verdict
    ms: float
    """Time of the one query that decides it."""
    twin: Verdict
    """Verdict on the claim without its guard: must be ``refuted``."""
    witness: Mapping[str, int] = field(default_factory=dict)
    """The least counterexample if refuted, else what reaches the bound, else the least
    counterexample to the twin."""
    reached: bool | None = None
    """Whether its guard can hold, and its bound be reached, if it states one; None is unknown."""

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.expected and self.twin == "refuted" and self.reached is True

    @property
    def undecided(self) -> bool:
        return "unknown" in (self.verdict, self.twin) or self.reached is None


def prove(
    obligation: Obligation, formulas: Formulas = THE_MODELS, limit_ms: int = TIME_LIMIT_MS
) -> Result:
    """Decide one obligation and its twin, each query within ``limit_ms`` milliseconds."""
    claim = obligation.claim(formulas)
    against = (*claim.given, opposite(claim.goal))
    started = time.perf_counter()
    answer = decide((*against, claim.guard), claim.symbols, limit_ms)
    ms = (time.perf_counter() - started) * 1_000
    twin = decide(against, claim.symbols, limit_ms)
    reaching = decide((*claim.given, claim.guard, *claim.tight), claim.symbols, limit_ms)
    return Result(
        id=obligation.id,
        rule=" ".join(obligation.rules),
        verdict=_verdict(answer),
        expected=obligation.expected,
        ms=ms,
        twin=_verdict(twin),
        witness=_witness(claim, answer, limit_ms),
        reached=reaching.satisfiable,
    )


def _witness(claim: Claim, answer: Answer, limit_ms: int) -> dict[str, int]:
    against = (*claim.given, opposite(claim.goal))
    if answer.satisfiable:
        shown = (*against, claim.guard)
    elif claim.tight:
        shown = (*claim.given, claim.guard, *claim.tight)
    else:
        shown = against
    return dict(decide_least(shown, claim.symbols, limit_ms).model)


def prove_all(
    obligations: Sequence[Obligation],
    formulas: Formulas = THE_MODELS,
    limit_ms: int = TIME_LIMIT_MS,
) -> list[Result]:
    return [prove(obligation, formulas, limit_ms) for obligation in obligations]


def _verdict(answer: Answer) -> Verdict:
    if answer.satisfiable is None:
        return "unknown"
    return "refuted" if answer.satisfiable else "proved"
