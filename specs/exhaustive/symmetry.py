"""The abstract machine up to renaming: blocks are alike, and so are requests.

Nothing in the machine tells two blocks apart, nor two requests, so states that differ by their
names alone have the same futures.
"""

from collections.abc import Iterator
from itertools import groupby, permutations, product

from specs.exhaustive.abstract import Request, State


def normal_form(state: State) -> State:
    """The least of all renamings of a state: equal for states that differ by names alone.

    Requests are put in the order of what can be told without names; those that are alike in it are
    tried in every order. For one order of the requests, blocks are numbered as they first occur.
    """
    ranked = sorted((_nameless(state, request), request) for request in state.requests)
    alike = [[request for _, request in group] for _, group in groupby(ranked, key=_rank)]
    orders = product(*[_orders(group) for group in alike])
    return min(_numbered(state, tuple(r for group in order for r in group)) for order in orders)


def _rank(ranked: tuple[tuple[object, ...], Request]) -> tuple[object, ...]:
    return ranked[0]


def _orders(requests: list[Request]) -> Iterator[tuple[Request, ...]]:
    """Every order of some requests; one is enough for equal ones."""
    if len(set(requests)) == 1:
        return iter((tuple(requests),))
    return permutations(requests)


def _nameless(state: State, request: Request) -> tuple[object, ...]:
    """What is known of a request without names of blocks and requests."""
    kinds = tuple(
        (block != 0, block in state.writing, state.copies.index(block) if copied else -1)
        for block in (*request.row, *request.hot)
        for copied in (block != 0 and block in state.copies,)
    )
    return (request.phase, request.hit, request.modes, kinds)


def _numbered(state: State, requests: tuple[Request, ...]) -> State:
    names = {0: 0}

    def name(block: int) -> int:
        return names.setdefault(block, len(names))

    copies = tuple([name(block) for block in state.copies])
    renamed = tuple(
        [
            Request(
                r.phase,
                r.hit,
                tuple([name(block) for block in r.row]),
                r.modes,
                tuple([name(block) for block in r.hot]),
            )
            for r in requests
        ]
    )
    return State(state.published, copies, tuple(sorted(map(name, state.writing))), renamed)
