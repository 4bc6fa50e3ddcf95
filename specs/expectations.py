"""Expectations of case files: subjects by name, and ranges of releases.

``vllm>=1.2,<1.5`` names every release in the range that has a row in ``model/releases.py``: a
row is somebody's word that the release was seen. Of a release without one nothing is expected.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from model.releases import VERSIONS

Expected = Literal["fails", "passes"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """On which subjects the program must break the rule, and on which it must not."""

    rule: str
    fails: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


ENGINE = "vllm"
EXACTLY = f"{ENGINE}=="
"""The name of one release, which is a range too, and stays a name."""
OPERATORS = ("<", ">", "=", "!", "~")


def is_range(text: str) -> bool:
    """Whether it is meant as a range, well written or not."""
    return text.removeprefix(ENGINE).startswith(OPERATORS) and not text.startswith(EXACTLY)


def range_of(text: str) -> SpecifierSet:
    """Raises ``InvalidSpecifier``."""
    return SpecifierSet(text.removeprefix(ENGINE), prereleases=True)


def named(entries: Iterable[str], versions: Iterable[str] = VERSIONS) -> tuple[str, ...]:
    """The subjects that are meant, each once, in their order; ranges name releases with a row."""
    names: list[str] = []
    for entry in entries:
        if is_range(entry):
            releases = sorted(range_of(entry).filter(versions), key=Version)
            names += [f"{EXACTLY}{version}" for version in releases]
        else:
            names.append(entry)
    return tuple(dict.fromkeys(names))


def expected(expect: Expectation, subject: str) -> Expected | None:
    """What must come of the program on a subject, if anything is said of it."""
    if subject in named(expect.fails):
        return "fails"
    return "passes" if subject in named(expect.passes) else None


def problems_of(expect: Expectation) -> Iterator[tuple[str, str]]:
    """(place in a case file, problem) of ranges that are none, and of what contradicts itself."""
    wrong = False
    for place, entries in (("fails", expect.fails), ("passes", expect.passes)):
        for index, entry in enumerate(entries):
            if is_range(entry) and not _is_written_well(entry):
                wrong = True
                yield f"expect.{place}[{index}]", f"{entry!r} is no range of versions"
    if not wrong:
        for name in named(expect.passes):
            if name in named(expect.fails):
                yield "expect.passes", f"{name!r} cannot both fail and pass"


def _is_written_well(entry: str) -> bool:
    try:
        range_of(entry)
    except InvalidSpecifier:
        return False
    return True
