"""The one place that knows Z3. Its interface has no types: ``Any`` stays inside.

Formulas are first-order over finite-model sorts (EPR) with a few integer constants, so every
query is decidable; each one still has a time limit, and ``unknown`` is an answer of its own.
"""

import importlib
from dataclasses import dataclass, field
from typing import Any, Literal

from invariants.proofs.transition_system.actions.action import CHOICES, CHOSEN_COUNTERS
from invariants.proofs.transition_system.formula import (
    And,
    Atom,
    Choose,
    Compare,
    Counter,
    Equal,
    Formula,
    Integer,
    Not,
    Number,
    Or,
    Quantified,
    Relation,
    Sort,
    Sum,
    Term,
)
from invariants.proofs.transition_system.structure import Element, Structure
from invariants.proofs.transition_system.vocabulary import (
    BLOCK_TAKEN,
    COUNTERS,
    PAGE_TAKEN,
    SLOT_TAKEN,
    SORTS,
    STATE,
    STATIC,
)

Answer = Literal["unsatisfiable", "satisfiable", "unknown"]

LIMIT_MS = 10_000
"""Time limit of one query: a hundred times what most take, since a busy machine is no reason for
an unknown."""

z3: Any = importlib.import_module("z3")

ANSWERS: dict[str, Answer] = {
    "unsat": "unsatisfiable",
    "sat": "satisfiable",
    "unknown": "unknown",
}


@dataclass(slots=True)
class Translation:
    """Z3 terms for formulas; equal names give equal symbols, equal formulas the same term.

    Making terms takes longer than deciding them, so solvers that are asked about the same formulas
    share one.
    """

    _formulas: dict[Formula, Any] = field(default_factory=dict)
    _names: dict[str, Any] = field(default_factory=dict)
    _sorts: dict[str, Any] = field(default_factory=dict)

    def formula(self, formula: Formula) -> Any:
        if formula not in self._formulas:
            self._formulas[formula] = self._made(formula)
        return self._formulas[formula]

    def _made(self, formula: Formula) -> Any:
        match formula:
            case Atom(relation, terms):
                symbol = self.symbol(relation)
                return symbol(*(self.element(term) for term in terms)) if terms else symbol
            case Not(body):
                return z3.Not(self.formula(body))
            case And(parts) | Or(parts):
                join = z3.And if isinstance(formula, And) else z3.Or
                return join([self.formula(part) for part in parts])
            case Quantified(universal, variables, body):
                bound = [self.element(variable) for variable in variables]
                return (z3.ForAll if universal else z3.Exists)(bound, self.formula(body))
            case Equal() | Compare():
                return self._compared(formula)
        raise TypeError(formula)

    def _compared(self, formula: Equal | Compare) -> Any:
        if isinstance(formula, Equal):
            return self.element(formula.left) == self.element(formula.right)
        one, other = self.integer(formula.left), self.integer(formula.right)
        return one >= other if formula.operator == ">=" else one == other

    def integer(self, integer: Integer) -> Any:
        match integer:
            case Number(value):
                return z3.IntVal(value)
            case Counter(name):
                return self._named(name, lambda: z3.Int(name))
            case Sum(parts, signs):
                return sum(
                    (s * self.integer(part) for part, s in zip(parts, signs, strict=True)),
                    start=z3.IntVal(0),
                )
            case Choose(condition, then, otherwise):
                return z3.If(self.formula(condition), self.integer(then), self.integer(otherwise))
        raise TypeError(integer)

    def sort(self, sort: Sort) -> Any:
        if sort.name not in self._sorts:
            self._sorts[sort.name] = z3.DeclareSort(sort.name)
        return self._sorts[sort.name]

    def element(self, term: Term) -> Any:
        sort = self.sort(term.sort)
        return self._named(f"{term.name}: {term.sort.name}", lambda: z3.Const(term.name, sort))

    def symbol(self, relation: Relation) -> Any:
        sorts = [self.sort(sort) for sort in relation.sorts]
        if not sorts:
            return self._named(relation.name, lambda: z3.Bool(relation.name))
        return self._named(relation.name, lambda: z3.Function(relation.name, *sorts, z3.BoolSort()))

    def _named(self, name: str, make: Any) -> Any:
        if name not in self._names:
            self._names[name] = make()
        return self._names[name]


@dataclass(slots=True)
class Solver:
    """Assumptions that stay, and queries on top of them."""

    limit_ms: int = LIMIT_MS
    translation: Translation = field(default_factory=Translation)
    _solver: Any = field(init=False)
    _tracked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._solver = z3.SimpleSolver()
        self._solver.set("timeout", self.limit_ms)

    def add(self, *formulas: Formula) -> None:
        for formula in formulas:
            self._solver.add(self.translation.formula(formula))

    def push(self) -> None:
        self._solver.push()

    def pop(self) -> None:
        self._solver.pop()

    def check(self, *formulas: Formula) -> Answer:
        """Whether some state satisfies the assumptions and these formulas."""
        self.push()
        self.add(*formulas)
        answer = ANSWERS[str(self._solver.check())]
        self.pop()
        return answer

    def track(self, name: str, formula: Formula) -> None:
        """An assumption that ``lean`` may turn out not to need."""
        self._solver.add(z3.Implies(z3.Bool(f"assume {name}"), self.translation.formula(formula)))
        self._tracked.append(name)

    def lean(self, *formulas: Formula) -> tuple[Answer, frozenset[str]]:
        """As ``check``; if unsatisfiable also the tracked assumptions that suffice for it."""
        self.push()
        self.add(*formulas)
        literals = [z3.Bool(f"assume {name}") for name in self._tracked]
        answer = ANSWERS[str(self._solver.check(*literals))]
        core: frozenset[str] = frozenset()
        if answer == "unsatisfiable":
            core = frozenset(
                str(each).removeprefix("assume ") for each in self._solver.unsat_core()
            )
        self.pop()
        return answer, core

    def find(self, *formulas: Formula) -> Structure | None:
        """A state that satisfies them, or None if there is none or it was not found in time."""
        self.push()
        self.add(*formulas)
        found = None
        if ANSWERS[str(self._solver.check())] == "satisfiable":
            found = self._structure(self._solver.model())
        self.pop()
        return found

    def smtlib(self, *formulas: Formula) -> str:
        """The query as SMT-LIB 2 text, for another solver."""
        self.push()
        self.add(*formulas)
        text = str(self._solver.to_smt2())
        self.pop()
        return text

    def _structure(self, model: Any) -> Structure:
        translation = self.translation
        universes = {
            sort.name: list(model.get_universe(translation.sort(sort)) or []) for sort in SORTS
        }
        names: dict[str, dict[str, Element]] = {
            sort: {str(element): f"{sort[0]}{n}" for n, element in enumerate(elements, 1)}
            for sort, elements in universes.items()
        }
        relations: dict[str, frozenset[tuple[Element, ...]]] = {}
        for relation in (*STATE, *STATIC, *CHOICES):
            symbol = translation.symbol(relation)
            rows: list[tuple[Any, ...]] = [()]
            for sort in relation.sorts:
                rows = [(*row, element) for row in rows for element in universes[sort.name]]
            members = [
                tuple(
                    names[sort.name][str(element)]
                    for sort, element in zip(relation.sorts, row, strict=True)
                )
                for row in rows
                if z3.is_true(model.eval(symbol(*row) if row else symbol, model_completion=True))
            ]
            relations[relation.name] = frozenset(members)
        constants: dict[str, Element] = {}
        for term in (BLOCK_TAKEN, SLOT_TAKEN, PAGE_TAKEN):
            element = str(model.eval(translation.element(term)))
            if element in names[term.sort.name]:
                constants[term.name] = names[term.sort.name][element]
        counters = {
            counter.name: int(
                model.eval(translation.integer(counter), model_completion=True).as_long()
            )
            for counter in (*COUNTERS, *CHOSEN_COUNTERS)
        }
        domains = {sort: tuple(each.values()) for sort, each in names.items()}
        return Structure(domains, relations, counters, constants)
