"""The abstract machine searched by Spin."""

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from specs.exhaustive.checkers.errors import CheckerError
from specs.exhaustive.checkers.run import Count, Finished, build, finish

MACHINE = Path(__file__).with_name("machine.pml").read_text(encoding="utf-8")
STACK = 200_000
"""Most steps of a way, for the search in depth."""


def count(constants: Mapping[str, int], source: str = MACHINE, *, level: str = "-O2") -> Count:
    """All states, in depth: Spin's faster way. Raises CheckerError if it did not see them all.

    Spin counts the initial state among its transitions (stored + matched), as if something led to
    it: the steps of the machine are one less. ``level``: the compiler's, -O0 for small instances.
    """
    done = _search(source, {**constants, "CHECK": 0}, [level])
    states = _number(done, r"^\s*(\d+) states, stored")
    transitions = _number(done, r"^\s*(\d+) transitions \(= stored\+matched\)") - 1
    _no_errors_and_complete(done)
    return Count(states, transitions, done.seconds)


def shortest_violation(
    constants: Mapping[str, int], source: str = MACHINE, *, level: str = "-O2"
) -> int | None:
    """Steps to the nearest violation, in breadth; None if there is none.

    Spin names the depth of the state in which the step begins that fails the assertion: the state
    that breaks the rule is one farther.
    """
    done = _search(source, {**constants, "CHECK": 1}, ["-DBFS", level])
    if _number(done, r"errors: (\d+)$"):
        return _number(done, r"assertion violated .* \(at depth (\d+)\)") + 1
    _no_errors_and_complete(done)
    return None


def _search(source: str, constants: Mapping[str, int], options: list[str]) -> Finished:
    """No partial order reduction: every state and every step is to be counted."""
    with TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "machine.pml").write_text(source, encoding="utf-8")
        given = [f"-D{name}={value}" for name, value in constants.items()]
        build(["spin", "-a", *given, "machine.pml"], here)
        build(["gcc", "-DSAFETY", "-DNOREDUCE", *options, "-o", "pan", "pan.c"], here)
        return finish(["./pan", f"-m{STACK}"], here)


def _number(done: Finished, pattern: str) -> int:
    found = re.search(pattern, done.output, re.MULTILINE)
    if found is None:
        raise CheckerError(f"cannot read Spin's answer ({pattern}): {done.last_words()}")
    return int(found[1])


def _no_errors_and_complete(done: Finished) -> None:
    incomplete = re.search("not completed|depth too small|out of memory", done.output)
    if done.status or incomplete or _number(done, r"errors: (\d+)$"):
        raise CheckerError(f"Spin did not finish its search: {done.last_words()}")
