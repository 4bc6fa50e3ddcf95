"""Formulas on a finite state, by direct evaluation: no solver, no guessing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    Sum,
    Term,
    flattened,
    normal,
)
from invariants.proofs.transition_system.structure import Element, Row, Structure

Binding = Mapping[str, Element]
"""Elements of variables, by name."""

NOTHING: Binding = {}


def holds(formula: Formula, structure: Structure) -> bool:
    """Whether a formula without free variables is true."""
    return _true(normal(formula), structure, NOTHING)


@dataclass(frozen=True, slots=True)
class Refutation:
    """What elements would have to satisfy to show that a formula fails."""

    variables: tuple[Term, ...]
    parts: tuple[Formula, ...]


def refutations(formula: Formula) -> tuple[Refutation, ...]:
    """The ways in which a formula can fail: prepared once, tried on many states."""
    return tuple(
        Refutation(part.variables, (normal(part.body, positive=False),))
        if isinstance(part, Quantified) and part.universal
        else Refutation((), (normal(part, positive=False),))
        for part in flattened(normal(formula))
    )


def counterexample(ways: tuple[Refutation, ...], structure: Structure) -> Binding | None:
    """Elements at which a formula fails, or None. Only the outermost variables are named."""
    for way in ways:
        found = next(_solutions(way.parts, way.variables, structure, NOTHING), None)
        if found is not None:
            return found
    return None


def members(formula: Formula, variables: tuple[Term, ...], structure: Structure) -> frozenset[Row]:
    """The elements of the variables that satisfy a formula in normal form, in their order."""
    found = _solutions((formula,), variables, structure, NOTHING)
    return frozenset(tuple(each[variable.name] for variable in variables) for each in found)


def value(integer: Integer, structure: Structure, binding: Binding = NOTHING) -> int:
    match integer:
        case Number(number):
            return number
        case Counter(name):
            return structure.counters[name]
        case Sum(parts, signs):
            return sum(
                sign * value(part, structure, binding)
                for part, sign in zip(parts, signs, strict=True)
            )
        case Choose(condition, then, otherwise):
            chosen = then if _true(normal(condition), structure, binding) else otherwise
            return value(chosen, structure, binding)
    raise TypeError(integer)


def _true(formula: Formula, structure: Structure, binding: Binding) -> bool:
    """The truth of a formula in normal form, all of whose variables are bound."""
    match formula:
        case Atom(relation, terms):
            row = tuple(_element(term, structure, binding) for term in terms)
            return row in structure.rows(relation.name)
        case Equal(left, right):
            return _element(left, structure, binding) == _element(right, structure, binding)
        case Not(body):
            return not _true(body, structure, binding)
        case And(parts) | Or(parts):
            join = all if isinstance(formula, And) else any
            return join(_true(part, structure, binding) for part in parts)
        case Compare(operator, left, right):
            one, other = value(left, structure, binding), value(right, structure, binding)
            return one >= other if operator == ">=" else one == other
        case Quantified(universal, variables, body):
            sought = normal(body, positive=False) if universal else body
            names = {variable.name for variable in variables}
            inner = {name: element for name, element in binding.items() if name not in names}
            found = next(_solutions((sought,), variables, structure, inner), None)
            return (found is not None) != universal
    raise TypeError(formula)


def _element(term: Term, structure: Structure, binding: Binding) -> Element:
    """What a term stands for; a constant that a solver left open may be any element."""
    if not term.constant:
        return binding[term.name]
    first = structure.domains[term.sort.name][0]
    return structure.constants.get(term.name, first)


def _solutions(
    parts: tuple[Formula, ...], variables: tuple[Term, ...], structure: Structure, binding: Binding
) -> Iterator[Binding]:
    """Bindings of all variables that make all parts true; the parts lead the search."""
    todo = {variable.name: variable.sort.name for variable in variables}
    todo = {name: sort for name, sort in todo.items() if name not in binding}
    open_parts: list[Formula] = []
    best: Atom | Equal | None = None
    fewest = len(todo) + 1
    for part in (flat for each in parts for flat in flattened(each)):
        unbound = _unbound(part, todo)
        if not unbound:
            if not _true(part, structure, binding):
                return
            continue
        open_parts.append(part)
        if isinstance(part, Atom) and len(unbound) < fewest:
            best, fewest = part, len(unbound)
        elif isinstance(part, Equal) and len(unbound) == 1:
            best, fewest = part, 0
    if not todo:
        yield binding
        return
    split = next((part for part in open_parts if isinstance(part, Or)), None)
    if best is not None:
        rest = tuple(part for part in open_parts if part is not best)
        for matched in _matches(best, structure, binding):
            yield from _solutions(rest, variables, structure, matched)
    elif split is not None:
        rest = tuple(part for part in open_parts if part is not split)
        for choice in split.parts:
            yield from _solutions((*rest, choice), variables, structure, binding)
    else:
        name, sort = next(iter(todo.items()))
        for element in structure.domains[sort]:
            yield from _solutions(
                tuple(open_parts), variables, structure, {**binding, name: element}
            )


def _matches(leader: Atom | Equal, structure: Structure, binding: Binding) -> Iterator[Binding]:
    """The ways to bind what is unbound in an atom, or the one unbound side of an equation."""
    terms = leader.terms if isinstance(leader, Atom) else (leader.left, leader.right)
    known: dict[int, Element] = {}
    unknown: list[tuple[int, str]] = []
    for position, term in enumerate(terms):
        if term.constant or term.name in binding:
            known[position] = _element(term, structure, binding)
        else:
            unknown.append((position, term.name))
    if isinstance(leader, Equal):
        ((_, name),), (element,) = unknown, known.values()
        yield {**binding, name: element}
        return
    for row in structure.matching(leader.relation.name, known):
        found = {name: row[position] for position, name in unknown}
        if all(found[name] == row[position] for position, name in unknown):
            yield {**binding, **found}


def _unbound(formula: Formula, todo: Mapping[str, str]) -> set[str]:
    """Variables of a search that a formula mentions."""
    match formula:
        case Atom(_, terms):
            return {term.name for term in terms if term.name in todo and not term.constant}
        case Equal(left, right):
            return {x.name for x in (left, right) if x.name in todo and not x.constant}
        case Not(body):
            return _unbound(body, todo)
        case And(parts) | Or(parts):
            return {x for part in parts for x in _unbound(part, todo)}
        case Quantified(_, inner, body):
            return _unbound(body, todo) - {variable.name for variable in inner}
    return set()
