"""The abstract machine searched by rumur, a checker for Murphi."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from xml.etree import ElementTree

from specs.exhaustive.checkers.errors import CheckerError
from specs.exhaustive.checkers.run import Count, Finished, build, finish

MACHINE = Path(__file__).with_name("machine.m").read_text(encoding="utf-8")
CAPACITY = Path(__file__).with_name("capacity.m").read_text(encoding="utf-8")

Symmetry = Literal["off", "exhaustive"]
"""``exhaustive`` tries every renaming of blocks and requests, so what it counts is exact."""


def count(
    constants: Mapping[str, int],
    symmetry: Symmetry = "off",
    source: str = MACHINE,
    *,
    level: str = "-O2",
) -> Count:
    """All states, or all up to renaming. Raises CheckerError if it did not see them all."""
    done = _search(source, constants, symmetry, level)
    summary = _summary(done)
    if done.status or summary["errors"] != "0":
        raise CheckerError(f"rumur did not finish its search: {done.last_words()}")
    return Count(int(summary["states"]), int(summary["rules_fired"]), done.seconds)


def shortest_violation(
    constants: Mapping[str, int], source: str = MACHINE, *, level: str = "-O2"
) -> int | None:
    """Steps to the nearest violation, in breadth; None if there is none."""
    done = _search(source + CAPACITY, constants, "off", level)
    if _summary(done)["errors"] == "0":
        return None
    error = _tree(done).find("error")
    assert error is not None
    return sum("Rule" in (step.text or "") for step in error.iter("transition"))


def _search(source: str, constants: Mapping[str, int], symmetry: Symmetry, level: str) -> Finished:
    """One thread: only then is rumur's search strictly in breadth."""
    given = "".join(f"const {name}: {value};\n" for name, value in constants.items())
    options = [f"--symmetry-reduction={symmetry}", "--deadlock-detection=off", "--threads=1"]
    with TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "machine.m").write_text(given + source, encoding="utf-8")
        translate = ["rumur", *options, "--output-format=machine-readable", "--output=checker.c"]
        build([*translate, "machine.m"], here)
        compile_ = ["gcc", level, "-march=native", "-o", "checker", "checker.c"]
        build([*compile_, "-lpthread", "-latomic"], here)
        return finish(["./checker"], here)


def _tree(done: Finished) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(done.output)
    except ElementTree.ParseError as error:
        raise CheckerError(f"cannot read rumur's answer ({error}): {done.last_words()}") from error


def _summary(done: Finished) -> Mapping[str, str]:
    summary = _tree(done).find("summary")
    if summary is None:
        raise CheckerError(f"rumur gave no summary: {done.last_words()}")
    return summary.attrib
