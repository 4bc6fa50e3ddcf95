"""The alternation of quantifiers: without a cycle among sorts, every query is decidable.

An existential variable in the scope of a universal one stands for a function from the sort of the
universal variable to its own. If the graph of these functions has no cycle, only finitely many
terms exist (stratified EPR): a solver that instantiates everything comes to an end.
"""

from collections.abc import Iterable, Iterator

from invariants.proofs.transition_system.formula import (
    And,
    Choose,
    Compare,
    Formula,
    Integer,
    Not,
    Or,
    Quantified,
    Sort,
    Sum,
    normal,
)

Edge = tuple[Sort, Sort]


def edges(formula: Formula) -> set[Edge]:
    """(universal sort, sort that is made to depend on it) of a formula that is assumed."""
    return set(_edges(normal(formula), ()))


def _edges(formula: Formula, scope: tuple[Sort, ...]) -> Iterator[Edge]:
    match formula:
        case Quantified(True, variables, body):
            yield from _edges(body, (*scope, *(variable.sort for variable in variables)))
        case Quantified(False, variables, body):
            for variable in variables:
                yield from ((sort, variable.sort) for sort in scope)
            yield from _edges(body, scope)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _edges(part, scope)
        case Not(body):
            yield from _edges(body, scope)
        case Compare(_, left, right):
            for side in (left, right):
                yield from _integer_edges(side, scope)


def _integer_edges(integer: Integer, scope: tuple[Sort, ...]) -> Iterator[Edge]:
    """A condition inside an integer term is used both ways round."""
    match integer:
        case Sum(parts, _):
            for part in parts:
                yield from _integer_edges(part, scope)
        case Choose(condition, then, otherwise):
            for positive in (True, False):
                yield from _edges(normal(condition, positive), scope)
            yield from _integer_edges(then, scope)
            yield from _integer_edges(otherwise, scope)


def cycle(formulas: Iterable[Formula]) -> list[Sort] | None:
    """Sorts that depend on each other in a circle, in formulas assumed together, or None."""
    graph: dict[Sort, set[Sort]] = {}
    for formula in formulas:
        for source, target in edges(formula):
            graph.setdefault(source, set()).add(target)
    for start in graph:
        path = _path_back(graph, start, [start])
        if path:
            return path
    return None


def _path_back(graph: dict[Sort, set[Sort]], start: Sort, path: list[Sort]) -> list[Sort] | None:
    for target in sorted(graph.get(path[-1], ()), key=lambda sort: sort.name):
        if target == start:
            return [*path, target]
        if target not in path:
            found = _path_back(graph, start, [*path, target])
            if found:
                return found
    return None
