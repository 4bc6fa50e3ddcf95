"""Who shrinks better: Hypothesis with its database, or our passes on the program itself?

Both start from the same failing programs, the first that a seed of the level's Hypothesis machine
comes to. Measured is the time to shrink, and what is left: its actions, and the sum of the numbers
in them. Then the failure is asked for again: from Hypothesis' database, as it is and with one more
rule in the machine, which is what an edit of the generator does to it.

    uv run python benchmarks/shrinking.py --subject reference:eager --rule I4
    uv run python benchmarks/shrinking.py --subject vllm==0.33.0 --level scheduler --rule K1
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from statistics import median
from typing import Any
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test, rule

from kvproof.levels.level import Examiner, Options
from kvproof.levels.table import LEVELS
from kvproof.search.hypothesis_rounds import PROFILE
from model.program import AnyProgram

Fails = Callable[[AnyProgram], bool]


class FoundError(Exception):
    """The program fails."""


class PatienceError(BaseException):
    """Shrinking takes too long."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What was left of a program, and after how long (seconds)."""

    program: AnyProgram
    seconds: float

    @property
    def actions(self) -> int:
        return len(self.program.actions)

    @property
    def numbers(self) -> int:
        return sum(int(n) for a in self.program.actions for n in astuple(a))


@dataclass(slots=True)
class Watched:
    """The failure, with what was seen of it: the first failing program, and the smallest."""

    fails: Fails
    patience: float
    first: AnyProgram | None = None
    smallest: AnyProgram | None = None
    since: float = 0.0

    def __call__(self, program: AnyProgram) -> None:
        if self.first is not None and time.monotonic() - self.since > self.patience:
            raise PatienceError
        if not self.fails(program):
            return
        if self.first is None:
            self.first, self.since = program, time.monotonic()
        if self.smallest is None or _size(program) < _size(self.smallest):
            self.smallest = program
        raise FoundError


def _size(program: AnyProgram) -> tuple[int, int]:
    return Shrunk(program, 0.0).actions, Shrunk(program, 0.0).numbers


def failure(examiner: Examiner, name: str) -> Fails:
    """Whether a program breaks the rule, or shows the known defect, of that name."""

    def fails(program: AnyProgram) -> bool:
        seen = examiner.examine(program).violations
        return bool(program.actions) and any(name in (v.rule, v.known) for v in seen)

    return fails


def play(machine: type[RuleBasedStateMachine], number: int, phases: tuple[Phase, ...],
         database: InMemoryExampleDatabase) -> None:  # fmt: skip
    chosen = settings(
        settings.get_profile(PROFILE),
        database=database,
        phases=phases,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with suppress(FoundError, PatienceError, SkipTest):  # which says that nothing was in it
        test = seed(number)(get_state_machine_test(machine, settings=chosen))
        test._hypothesis_internal_use_settings = chosen  # a seed takes the database away
        test()


def edited(machine: type[RuleBasedStateMachine]) -> type[RuleBasedStateMachine]:
    """The same machine with one more rule."""

    def another(self: Any) -> None:
        """Does nothing."""

    return type("Machine", (machine,), {"aaa": rule()(another)})


@dataclass(frozen=True, slots=True)
class Row:
    drawn: int
    hypothesis: Shrunk
    ours: Shrunk
    again: bool
    again_seconds: float
    after_edit: bool


def rows(examiner: Examiner, name: str, count: int, patience: float) -> Iterator[Row]:
    number = 0
    while count:
        number += 1
        row = measured(examiner, failure(examiner.exact(name), name), number, patience)
        if row is not None:
            count -= 1
            yield row


def measured(examiner: Examiner, fails: Fails, number: int, patience: float) -> Row | None:
    database = InMemoryExampleDatabase()
    seen = Watched(fails, patience)
    play(examiner.machine(seen), number, (Phase.generate, Phase.shrink), database)
    if seen.first is None or seen.smallest is None:
        return None
    theirs = Shrunk(seen.smallest, time.monotonic() - seen.since)
    again, again_seconds = repeated(examiner, fails, number, database, lambda machine: machine)
    after_edit, _ = repeated(examiner, fails, number, database, edited)
    started = time.monotonic()
    ours = examiner.shrink(seen.first, fails)
    mine = Shrunk(ours, time.monotonic() - started)
    return Row(len(seen.first.actions), theirs, mine, again, again_seconds, after_edit)


def repeated(
    examiner: Examiner,
    fails: Fails,
    number: int,
    database: InMemoryExampleDatabase,
    edit: Callable[[type[RuleBasedStateMachine]], type[RuleBasedStateMachine]],
) -> tuple[bool, float]:
    """Whether what the database holds fails again, and after how long (seconds)."""
    seen, copy = Watched(fails, 60.0), InMemoryExampleDatabase()
    copy.data = {key: set(values) for key, values in database.data.items()}
    started = time.monotonic()
    play(edit(examiner.machine(seen)), number, (Phase.reuse,), copy)
    return seen.first is not None, time.monotonic() - started


def show(found: list[Row]) -> None:
    for name, each in (
        ("Hypothesis", [r.hypothesis for r in found]),
        ("ours", [r.ours for r in found]),
    ):
        print(
            f"{name:10}  seconds {median(s.seconds for s in each):6.1f} "
            f"(most {max(s.seconds for s in each):.1f})  "
            f"actions {median(s.actions for s in each):4g} (most {max(s.actions for s in each)})  "
            f"sum of numbers {median(s.numbers for s in each):5g}"
        )
    again, edited_too = sum(row.again for row in found), sum(row.after_edit for row in found)
    drawn, seconds = (
        median(x) for x in zip(*((r.drawn, r.again_seconds) for r in found), strict=True)
    )
    print(
        f"{len(found)} programs of {drawn:g} actions; from the database {again} fail again, after "
        f"{seconds:.1f} s; with one more rule in the machine {edited_too}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subject", default="reference:eager")
    parser.add_argument("--level", choices=sorted(LEVELS), default="manager")
    parser.add_argument("--rule", default="I4", help="a rule, or a known defect")
    parser.add_argument("--programs", type=int, default=12)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for Hypothesis")
    options = parser.parse_args()
    found: list[Row] = []
    with LEVELS[options.level].open(options.subject, Options(rule=options.rule)) as examiner:
        for row in rows(examiner, options.rule, options.programs, options.patience):
            print(row.drawn, "actions;", "Hypothesis", row.hypothesis.actions, "in",
                  f"{row.hypothesis.seconds:.1f} s; ours", row.ours.actions, "in",
                  f"{row.ours.seconds:.1f} s", flush=True)  # fmt: skip
            found.append(row)
    show(found)


if __name__ == "__main__":
    main()
