"""Minimise a program that fails: delta debugging, until no single action can be removed.

Hypothesis shrinks what it drew; this pass works on the program itself, so that every finding,
from whatever search, ends locally minimal.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from model.dialect import Dialect
from model.manager.configuration import Configuration, problem_of
from model.manager.program import ManagerProgram
from model.releases import DIALECTS
from model.startup import below_minimum
from specs.manager.shortest import shortest

Fails = Callable[[ManagerProgram], bool]
"""Whether a program still shows the very failure that is to be kept."""
P = TypeVar("P", bound=Any)
"""A program of any level: a frozen record with ``actions``, which are frozen records."""

PLAIN = Configuration()
MODES = (
    "async_scheduling",
    "num_workers",
    "num_resident_groups",
    "policy",
    "watermark_blocks",
    "hot_blocks",
    "full_sequence_must_fit",
    "prefix_caching",
)
"""Configuration fields with a plain value, in the order in which they are made plain."""
LEAST = {"tokens": 1, "prompt": 1, "output": 1}
"""Numbers below which no engine would go."""
SIZES = ("num_blocks", "num_host_blocks", "max_model_len", "max_num_batched_tokens")


def minimise(
    program: ManagerProgram, fails: Fails, dialect: Dialect, small_scopes: bool = True
) -> ManagerProgram:
    """A small program with the same failure, from which no action can be removed.

    Its pools are such that ``dialect`` starts with them, and every other dialect too if the
    failure can be had so: then the program can be replayed on every release. ``small_scopes``
    looks for a shorter way as well, which takes thousands of runs: for the reference only.
    """
    program = reduce(program, lambda p: _starts(p, (dialect,)) and fails(p))
    if not small_scopes:
        return program
    everywhere = tuple(DIALECTS.values())
    hosts = PLAIN.num_host_blocks if program.configuration.hisparse else 0
    plain = replace(PLAIN, num_host_blocks=hosts)
    own = replace(plain, **{name: getattr(program.configuration, name) for name in MODES})
    for modes in dict.fromkeys((plain, own)):
        found = shortest(modes, fails, dialect, len(program.actions) + 1)
        if found is not None:
            return reduce(found, lambda p: _starts(p, everywhere) and fails(p))
    return program


def _starts(program: ManagerProgram, dialects: tuple[Dialect, ...]) -> bool:
    return all(below_minimum(program.configuration, dialect) is None for dialect in dialects)


def reduce(program: ManagerProgram, fails: Fails) -> ManagerProgram:
    """Take away whatever can go: actions, modes of the configuration, sizes and numbers."""
    while True:
        smaller = program
        for shrink in (remove_chunks, plainer_modes, smaller_sizes, smaller_numbers, remove_pairs):
            smaller = shrink(smaller, fails)
        if smaller == program:
            return program
        program = smaller


def remove_chunks(program: P, fails: Callable[[P], bool]) -> P:
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


def remove_pairs(program: P, fails: Callable[[P], bool]) -> P:
    """Remove two actions at once: an arrival and its admission go only together."""
    count = len(program.actions)
    for last in range(count - 1, 0, -1):
        for first in range(last):
            kept = tuple(a for n, a in enumerate(program.actions) if n not in (first, last))
            if fails(replace(program, actions=kept)):
                return remove_pairs(replace(program, actions=kept), fails)
    return program


def plainer_modes(program: ManagerProgram, fails: Fails) -> ManagerProgram:
    for name in MODES:
        plain = replace(program.configuration, **{name: getattr(PLAIN, name)})
        program = _with_configuration(program, plain, fails) or program
    return program


def smaller_sizes(program: ManagerProgram, fails: Fails) -> ManagerProgram:
    for name in SIZES:
        while True:
            size = getattr(program.configuration, name)
            smaller = _with_configuration(
                program, replace(program.configuration, **{name: size - 1}), fails
            )
            if smaller is None:
                break
            program = smaller
    return program


def _with_configuration(
    program: ManagerProgram, configuration: Configuration, fails: Fails
) -> ManagerProgram | None:
    if configuration == program.configuration or problem_of(configuration):
        return None
    changed = replace(program, configuration=configuration)
    return changed if fails(changed) else None


def smaller_numbers(program: P, fails: Callable[[P], bool]) -> P:
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


def _first_failing(candidates: Iterator[P], fails: Callable[[P], bool]) -> P | None:
    return next((candidate for candidate in candidates if fails(candidate)), None)
