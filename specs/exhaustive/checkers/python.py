"""The abstract machine searched by kvproof."""

import time

from model.dialect import Dialect
from specs.exhaustive.abstract import Machine
from specs.exhaustive.abstract_space import AbstractSpace
from specs.exhaustive.breadth import Limits, breadth_first
from specs.exhaustive.checkers.instance import Instance
from specs.exhaustive.checkers.run import Count


def count(instance: Instance, dialect: Dialect, reduce: bool) -> Count:
    """All states, or all up to renaming: a violation does not end the search."""
    space = AbstractSpace(_machine(instance, dialect), reduce=reduce, stop_at_crash=False)
    started = time.process_time()
    seen = breadth_first(space, Limits())
    assert seen.complete
    return Count(seen.states, seen.transitions, time.process_time() - started)


def shortest_violation(instance: Instance, dialect: Dialect) -> int | None:
    """Steps to the nearest violation; None if there is none."""
    seen = breadth_first(AbstractSpace(_machine(instance, dialect)), Limits())
    return None if seen.way is None else len(seen.way)


def _machine(instance: Instance, dialect: Dialect) -> Machine:
    return Machine(instance.blocks, instance.requests, instance.pages, instance.hot, dialect)
