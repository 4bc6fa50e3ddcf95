"""Z3 behind ``model.admission.Arithmetic``: the theorems on integers meet the solver only here.

Terms are ``Any`` to the type checker, as in ``model.admission``: they come from here, and go back
here to be decided.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import z3  # type: ignore[import-untyped,import-not-found,unused-ignore]

from model.admission import INTEGERS, Arithmetic, Number, Truth

TIME_LIMIT_MS = 10_000
"""Time for one query: a hundred times what any of them takes, on a quiet machine."""
QUICK = 20
"""The plain solver gets this part of the time for a query."""
LEAST_STEPS = 64
"""Queries spent at most on making one number of a witness smaller."""


@dataclass(slots=True)
class Symbols:
    """The unknowns of one query, and the facts that come with how they are defined."""

    facts: list[Truth] = field(default_factory=list)
    numbers: dict[str, Number] = field(default_factory=dict)
    """The named unknowns, in the order in which they were made: what a witness shows."""

    def number(self, name: str, least: int = 0) -> Number:
        """An unknown integer of at least ``least``."""
        unknown = self.any_number(name)
        self.facts.append(unknown >= least)
        return unknown

    def any_number(self, name: str) -> Number:
        """An unknown integer, negative ones included."""
        self.numbers[name] = z3.Int(name)
        return self.numbers[name]

    def truth(self, name: str) -> Truth:
        return z3.Bool(name)

    def ceil_div(self, number: Number, divisor: Number) -> Number:
        """The quotient by what defines it; the divisor is taken to be positive."""
        if isinstance(number, int) and isinstance(divisor, int):
            return INTEGERS.ceil_div(number, divisor)
        quotient = z3.FreshInt("quotient")
        product = quotient * divisor
        self.facts += [product - divisor < number, number <= product]
        return quotient

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(
            ceil_div=self.ceil_div,
            maximum=lambda a, b: choose(a >= b, a, b),
            minimum=lambda a, b: choose(a <= b, a, b),
            choose=choose,
        )


def choose(condition: Truth, then: Number, otherwise: Number) -> Number:
    if isinstance(condition, bool):
        return then if condition else otherwise
    return z3.If(condition, then, otherwise)


def every(*truths: Truth) -> Truth:
    return z3.And(*truths)


def either(*truths: Truth) -> Truth:
    return z3.Or(*truths)


def opposite(truth: Truth) -> Truth:
    return z3.Not(truth)


def implies(condition: Truth, consequence: Truth) -> Truth:
    return z3.Implies(condition, consequence)


def same(a: Truth, b: Truth) -> Truth:
    """Whether two formulas, or two numbers, are equal."""
    if isinstance(a, bool) and isinstance(b, bool):
        return z3.BoolVal(a == b)
    return a == b


@dataclass(frozen=True, slots=True)
class Answer:
    """``satisfiable`` is None when the solver could not decide in time."""

    satisfiable: bool | None
    model: Mapping[str, int] = field(default_factory=dict)


def decide(truths: Iterable[Truth], symbols: Symbols, limit_ms: int = TIME_LIMIT_MS) -> Answer:
    """Whether all these formulas can be true at once, with the facts of the unknowns.

    The plain solver decides most queries several times faster, and now and then, on products of
    unknowns, never comes back: it gets a part of the time, and Z3's choice of tactics the rest.
    """
    truths = list(truths)
    quick = _answer(_solver(truths, symbols, limit_ms // QUICK, z3.SimpleSolver), symbols)
    if quick.satisfiable is not None:
        return quick
    return _answer(_solver(truths, symbols, limit_ms), symbols)


def decide_least(
    truths: Iterable[Truth], symbols: Symbols, limit_ms: int = TIME_LIMIT_MS
) -> Answer:
    """As ``decide``; the numbers of the answer are the least, the first-made the foremost.

    Each number is lowered until the solver says that it cannot be lower: ``Optimize`` alone often
    answers unknown.
    """
    solver = _solver(truths, symbols, limit_ms)
    best = _answer(solver, symbols)
    if not best.satisfiable:
        return best
    for name, unknown in symbols.numbers.items():
        for _ in range(LEAST_STEPS):
            solver.push()
            solver.add(unknown < best.model[name])
            lower = _answer(solver, symbols)
            solver.pop()
            if not lower.satisfiable:
                break
            best = lower
        solver.add(unknown == best.model[name])
    return best


def _solver(truths: Iterable[Truth], symbols: Symbols, limit_ms: int, make: Any = z3.Solver) -> Any:
    solver = make()
    solver.set("timeout", limit_ms)
    solver.add(*symbols.facts, *truths)
    return solver


def _answer(solver: Any, symbols: Symbols) -> Answer:
    verdict = solver.check()
    if verdict == z3.unknown:
        return Answer(None)
    if verdict == z3.unsat:
        return Answer(False)
    model = solver.model()
    values = {
        name: model.eval(unknown, model_completion=True).as_long()
        for name, unknown in symbols.numbers.items()
    }
    return Answer(True, values)
