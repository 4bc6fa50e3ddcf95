"""First-order formulas over sorts, relations and a few integer counters, as plain values.

Written once and read three times: a solver proves them (``solver``), a finite state is checked
against them (``evaluate``), and their quantifier alternation is inspected (``alternation``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sort:
    name: str


@dataclass(frozen=True, slots=True)
class Term:
    """A variable, or a constant that stands for something that an action takes."""

    name: str
    sort: Sort
    constant: bool = False


class Formula:
    """Any formula."""

    __slots__ = ()

    def __and__(self, other: "Formula") -> "Formula":
        return And((self, other))

    def __or__(self, other: "Formula") -> "Formula":
        return Or((self, other))

    def __invert__(self) -> "Formula":
        return Not(self)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation symbol; calling it makes an atom. Without sorts it is a flag."""

    name: str
    sorts: tuple[Sort, ...]

    def __call__(self, *terms: Term) -> "Atom":
        if tuple(term.sort for term in terms) != self.sorts:
            raise TypeError(f"{self.name} relates {self.sorts}, not {terms}")
        return Atom(self, terms)


@dataclass(frozen=True, slots=True)
class Atom(Formula):
    relation: Relation
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Equal(Formula):
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Not(Formula):
    body: Formula


@dataclass(frozen=True, slots=True)
class And(Formula):
    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Or(Formula):
    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Quantified(Formula):
    universal: bool
    variables: tuple[Term, ...]
    body: Formula


class Integer:
    """Any integer term."""

    __slots__ = ()

    def __add__(self, other: "Integer | int") -> "Integer":
        return Sum((self, number(other)), (1, 1))

    def __sub__(self, other: "Integer | int") -> "Integer":
        return Sum((self, number(other)), (1, -1))

    def __ge__(self, other: "Integer | int") -> "Compare":
        return Compare(">=", self, number(other))

    def equals(self, other: "Integer | int") -> "Compare":
        return Compare("==", self, number(other))


@dataclass(frozen=True, slots=True)
class Number(Integer):
    value: int


@dataclass(frozen=True, slots=True)
class Counter(Integer):
    name: str


@dataclass(frozen=True, slots=True)
class Sum(Integer):
    parts: tuple[Integer, ...]
    signs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choose(Integer):
    condition: Formula
    then: Integer
    otherwise: Integer


@dataclass(frozen=True, slots=True)
class Compare(Formula):
    operator: Literal[">=", "=="]
    left: Integer
    right: Integer


TRUE = And(())
FALSE = Or(())

Update = Callable[..., Formula]
"""What a relation is after an action, for given terms, said in the state before."""


def number(value: Integer | int) -> Integer:
    return Number(value) if isinstance(value, int) else value


def one_if(condition: Formula) -> Integer:
    return Choose(condition, Number(1), Number(0))


def every(*parts: Formula) -> Formula:
    return And(parts)


def some(*parts: Formula) -> Formula:
    return Or(parts)


def implies(premise: Formula, conclusion: Formula) -> Formula:
    return Or((Not(premise), conclusion))


def iff(left: Formula, right: Formula) -> Formula:
    return implies(left, right) & implies(right, left)


def forall(*variables: Term) -> Callable[[Formula], Formula]:
    return lambda body: Quantified(True, variables, body)


def exists(*variables: Term) -> Callable[[Formula], Formula]:
    return lambda body: Quantified(False, variables, body)


def after(
    formula: Formula, relations: Mapping[str, Update], counters: Mapping[str, Integer]
) -> Formula:
    """The formula in the state after an action, said in the state before.

    Updates have no quantifiers, so nothing is captured and no alternation is added.
    """
    match formula:
        case Atom(relation, terms):
            update = relations.get(relation.name)
            return update(*terms) if update else formula
        case Not(body):
            return Not(after(body, relations, counters))
        case And(parts) | Or(parts):
            changed = tuple(after(part, relations, counters) for part in parts)
            return And(changed) if isinstance(formula, And) else Or(changed)
        case Quantified(universal, variables, body):
            return Quantified(universal, variables, after(body, relations, counters))
        case Compare(operator, left, right):
            return Compare(
                operator,
                integer_after(left, relations, counters),
                integer_after(right, relations, counters),
            )
    return formula


def integer_after(
    integer: Integer, relations: Mapping[str, Update], counters: Mapping[str, Integer]
) -> Integer:
    match integer:
        case Counter(name):
            return counters.get(name, integer)
        case Sum(parts, signs):
            return Sum(tuple(integer_after(part, relations, counters) for part in parts), signs)
        case Choose(condition, then, otherwise):
            return Choose(
                after(condition, relations, counters),
                integer_after(then, relations, counters),
                integer_after(otherwise, relations, counters),
            )
    return integer


def mentioned(formula: Formula | Integer) -> frozenset[str]:
    """Names of the relations and counters in a formula."""
    match formula:
        case Atom(Relation(name), _) | Counter(name):
            return frozenset({name})
        case Not(body) | Quantified(_, _, body):
            return mentioned(body)
        case And(parts) | Or(parts) | Sum(parts, _):
            return frozenset().union(*(mentioned(part) for part in parts))
        case Compare(_, left, right):
            return mentioned(left) | mentioned(right)
        case Choose(condition, then, otherwise):
            return mentioned(condition) | mentioned(then) | mentioned(otherwise)
    return frozenset()


def normal(formula: Formula, positive: bool = True) -> Formula:
    """The formula, or its negation, with negations only before atoms and comparisons."""
    match formula:
        case Not(body):
            return normal(body, not positive)
        case And(parts):
            return (And if positive else Or)(tuple(normal(part, positive) for part in parts))
        case Or(parts):
            return (Or if positive else And)(tuple(normal(part, positive) for part in parts))
        case Quantified(universal, variables, body):
            return Quantified(universal == positive, variables, normal(body, positive))
    return formula if positive else Not(formula)


def flattened(formula: Formula) -> Iterator[Formula]:
    """The conjuncts of a formula."""
    if isinstance(formula, And):
        for part in formula.parts:
            yield from flattened(part)
    else:
        yield formula
