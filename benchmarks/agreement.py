"""Do other model checkers see the same abstract machine, and how fast is each?

    uv run python benchmarks/agreement.py [--instances 4/2/1/1,6/3/2/1] [--dialects eager,deferred]

Spin and rumur search the same machine as ``kvproof explore --mode abstract``. Its texts in Promela
and Murphi (``checkers/machine.pml``, ``checkers/machine.m``) were written from its definition, not
from its code. Exit code 0: all agree. 1: they do not. 2: a tool is missing.

Every number printed is measured by the run that prints it.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from model.dialect import Dialect
from model.releases import DIALECTS, NEWEST
from specs.exhaustive.checkers import murphi, python, spin
from specs.exhaustive.checkers.errors import CheckerError
from specs.exhaustive.checkers.instance import Instance, parse_instance
from specs.exhaustive.checkers.run import Count, missing

INSTANCES = "4/2/1/1,5/2/2/1,6/3/2/1,7/2/2/1"
POLICIES = f"eager,charged,deferred,{NEWEST.dialect.name}"
"""The three adoption points, and the first with copies charged."""
MOST_RENAMINGS = 1500
"""rumur tries every renaming of every state: more than these take minutes."""
LEAST_STATES = 10_000
"""Smaller instances say nothing about speed: Spin takes 0.1 s to start."""
REPEATS = 5
"""With reduction it takes milliseconds: the fastest run counts."""
NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One instance under one dialect, as each tool saw it."""

    instance: Instance
    dialect: Dialect
    python: Count
    spin: Count
    rumur: Count
    reduced: Count
    """Python's, up to renaming."""
    rumur_reduced: Count | None
    """None where there are too many renamings to try."""
    nearest: tuple[int | None, int | None, int | None]
    """Steps to the nearest violation: Python, with reduction; Spin; rumur. None: there is none."""

    @property
    def agrees(self) -> bool:
        everything = {_numbers(count) for count in (self.python, self.spin, self.rumur)}
        reduced = {_numbers(count) for count in (self.reduced, self.rumur_reduced) if count}
        return len(everything) == len(reduced) == len(set(self.nearest)) == 1


def measure(instance: Instance, dialect: Dialect) -> Row:
    constants = instance.constants(dialect)
    reduced = [python.count(instance, dialect, reduce=True) for _ in range(REPEATS)]
    few = renamings(instance) <= MOST_RENAMINGS
    return Row(
        instance,
        dialect,
        python=python.count(instance, dialect, reduce=False),
        spin=spin.count(constants),
        rumur=murphi.count(constants),
        reduced=min(reduced, key=lambda count: count.seconds),
        rumur_reduced=murphi.count(constants, "exhaustive") if few else None,
        nearest=(
            python.shortest_violation(instance, dialect),
            spin.shortest_violation(constants),
            murphi.shortest_violation(constants),
        ),
    )


def renamings(instance: Instance) -> int:
    """Ways to name the blocks and the requests anew."""
    return math.factorial(instance.blocks - 1) * math.factorial(instance.requests)


def _numbers(count: Count) -> tuple[int, int]:
    return count.states, count.transitions


def _rate(count: Count) -> str:
    return f"{count.states / count.seconds:,.0f}"


def _seconds(count: Count) -> str:
    return f"{count.seconds:.2f}"


def _counts(count: Count | None) -> str:
    return NOTHING if count is None else f"{count.states:,} / {count.transitions:,}"


def _steps(nearest: int | None) -> str:
    return "none" if nearest is None else str(nearest)


Column = tuple[str, Callable[[Row], str]]

AGREEMENT: tuple[Column, ...] = (
    ("Python", lambda row: _counts(row.python)),
    ("Spin", lambda row: _counts(row.spin)),
    ("rumur", lambda row: _counts(row.rumur)),
    ("equal", lambda row: "yes" if row.agrees else "NO"),
)
REDUCED: tuple[Column, ...] = (
    ("Python", lambda row: _counts(row.reduced)),
    ("rumur", lambda row: _counts(row.rumur_reduced)),
    ("violation after: Python", lambda row: _steps(row.nearest[0])),
    ("Spin", lambda row: _steps(row.nearest[1])),
    ("rumur", lambda row: _steps(row.nearest[2])),
)
SPEED: tuple[Column, ...] = (
    ("Spin: states/s", lambda row: _rate(row.spin)),
    ("rumur: states/s", lambda row: _rate(row.rumur)),
    ("Python: states/s", lambda row: _rate(row.python)),
    ("reduced: canon. states/s", lambda row: _rate(row.reduced)),
    ("Spin: s", lambda row: _seconds(row.spin)),
    ("rumur: s", lambda row: _seconds(row.rumur)),
    ("Python: s", lambda row: _seconds(row.python)),
    ("reduced: s", lambda row: _seconds(row.reduced)),
)


def table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    shown = Table(title=title, title_justify="left")
    for name in ("N/R/P/H", "dialect"):
        shown.add_column(name, no_wrap=True)
    for name, _ in columns:
        shown.add_column(name, justify="right")
    for row in rows:
        shown.add_row(str(row.instance), row.dialect.name, *(tell(row) for _, tell in columns))
    return shown


def report(rows: Sequence[Row], console: Console) -> None:
    console.print(table("States / transitions, every one", AGREEMENT, rows))
    console.print(
        table("States / transitions up to renaming; steps to the nearest violation", REDUCED, rows)
    )
    if large := [row for row in rows if row.python.states >= LEAST_STATES]:
        console.print(table("Speed (processor time, compilers left out)", SPEED, large))
    different = [f"{row.instance} {row.dialect.name}" for row in rows if not row.agrees]
    console.print(f"different: {', '.join(different)}" if different else "all agree")


def read_arguments() -> tuple[list[Instance], list[Dialect]]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--instances", default=INSTANCES, help=f"N/R/P/H,… (default {INSTANCES})")
    parser.add_argument("--dialects", default=POLICIES, help=f"names (default {POLICIES})")
    given = parser.parse_args()
    names = given.dialects.split(",")
    unknown = [name for name in names if name not in DIALECTS]
    if unknown:
        raise CheckerError(f"no such dialect: {', '.join(unknown)}. Known: {', '.join(DIALECTS)}")
    instances = [parse_instance(text) for text in given.instances.split(",")]
    return instances, [DIALECTS[name] for name in names]


def main() -> int:
    try:
        instances, dialects = read_arguments()
        if absent := missing():
            raise CheckerError(absent)
        rows = []
        for instance in instances:
            for dialect in dialects:
                if sys.stderr.isatty():
                    print(f"{instance} {dialect.name} …", file=sys.stderr)
                rows.append(measure(instance, dialect))
    except CheckerError as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    report(rows, Console(width=120))
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
