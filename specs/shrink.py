"""Shrink a program that fails: delta debugging, until no single action can be removed.

Hypothesis shrinks what it drew; these passes work on the program itself, so that every finding,
from whatever search, ends locally minimal. Each pass only makes smaller what it changes, so it
comes to an end. A level brings its plan.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

P = TypeVar("P", bound=Any)
"""A program of any level: a frozen record with ``actions``, which are frozen records."""
Fails = Callable[[P], bool]
"""Whether a program still shows the very failure that is to be kept."""

LEAST = {"tokens": 1, "prompt": 1, "output": 1}
"""Numbers below which no engine would go."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a level brings to be shrunk by."""

    plain: tuple[dict[str, Any], ...]
    """Fields of a configuration with a plain value, those of one entry together, in order."""
    sizes: tuple[str, ...]
    """Fields of a configuration that are made smaller, in order."""
    pairs_up_to: float
    """Actions of a program from which pairs are removed too: a long one has many of them."""


def shrunk(program: P, fails: Fails[P], plan: Plan) -> P:
    """Take away whatever can go: actions, settings, sizes and numbers.

    ``fails`` says no to a program that is not legal.
    """
    while True:
        smaller = _once(program, fails, plan)
        if smaller == program:
            return program
        program = smaller


def _once(program: P, fails: Fails[P], plan: Plan) -> P:
    program = remove_chunks(program, fails)
    for plain in plan.plain:
        program = _with(program, plain, fails) or program
    for name in plan.sizes:
        program = _smaller_size(program, name, fails)
    program = smaller_numbers(program, fails)
    return remove_pairs(program, fails) if len(program.actions) <= plan.pairs_up_to else program


def _with(program: P, settings: dict[str, Any], fails: Fails[P]) -> P | None:
    configuration = replace(program.configuration, **settings)
    if configuration == program.configuration:
        return None
    changed: P = replace(program, configuration=configuration)
    return changed if fails(changed) else None


def _smaller_size(program: P, name: str, fails: Fails[P]) -> P:
    while (size := getattr(program.configuration, name)) > 0:
        smaller = _with(program, {name: size - 1}, fails)
        if smaller is None:
            break
        program = smaller
    return program


def remove_chunks(program: P, fails: Fails[P]) -> P:
    """Remove runs of actions, halving their length down to single ones, until none can go."""
    length = max(len(program.actions) // 2, 1)
    while True:
        shorter = _first_failing(_without_runs(program, length), fails)
        if shorter is not None:
            program = shorter
        elif length == 1:
            return program
        else:
            length //= 2


def _without_runs(program: P, length: int) -> Iterator[P]:
    for start in range(len(program.actions) - length, -1, -1):
        actions = program.actions[:start] + program.actions[start + length :]
        yield replace(program, actions=actions)


def remove_pairs(program: P, fails: Fails[P]) -> P:
    """Remove two actions at once: an arrival and its admission go only together."""
    count = len(program.actions)
    for last in range(count - 1, 0, -1):
        for first in range(last):
            kept = tuple(a for n, a in enumerate(program.actions) if n not in (first, last))
            if fails(replace(program, actions=kept)):
                return remove_pairs(replace(program, actions=kept), fails)
    return program


def smaller_numbers(program: P, fails: Fails[P]) -> P:
    """Lower each number of each action: to 0, to its half, by one."""
    for index in range(len(program.actions)):
        for field in fields(program.actions[index]):
            while True:
                action = program.actions[index]
                lower = _first_failing(
                    (
                        replace(program, actions=_replaced(program.actions, index, smaller))
                        for smaller in _lower(action, field.name)
                    ),
                    fails,
                )
                if lower is None:
                    break
                program = lower
    return program


def _lower(action: Any, name: str) -> Iterator[Any]:
    value = getattr(action, name)
    least = LEAST.get(name, 0)
    for smaller in dict.fromkeys((least, value // 2, value - 1)):
        if least <= smaller < value:
            number = bool(smaller) if isinstance(value, bool) else smaller
            yield replace(action, **{name: number})


def _replaced(actions: tuple[Any, ...], index: int, action: Any) -> tuple[Any, ...]:
    return (*actions[:index], action, *actions[index + 1 :])


def _first_failing(candidates: Iterator[P], fails: Fails[P]) -> P | None:
    return next((candidate for candidate in candidates if fails(candidate)), None)
