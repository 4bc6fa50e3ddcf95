"""The tables of ``specs/README.md``, and how the rows of the releases are told in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from model.dialect import Dialect
from model.releases import RELEASES

BOOK = Path(__file__).parents[1] / "specs" / "README.md"


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its head left out."""
    lines = text.split(f"\n{heading}\n", 1)[1].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|"))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows[2:]


def span(holds: Callable[[Dialect], bool]) -> str:
    """Of which releases something holds: ``from 0.31.0``, so that a new one changes nothing."""
    return ", ".join(_spans([holds(release.dialect) for release in RELEASES])) or "none"


def _spans(holding: list[bool]) -> Iterator[str]:
    start = None
    for index, holds in enumerate([*holding, False]):
        if holds and start is None:
            start = index
        elif not holds and start is not None:
            yield _worded(start, index - 1)
            start = None


def _worded(first: int, last: int) -> str:
    if last == len(RELEASES) - 1:
        return f"from {RELEASES[first].version}" if first else "all"
    if first == last:
        return RELEASES[first].version
    return f"{RELEASES[first].version} to {RELEASES[last].version}"


def values(field: str) -> str:
    """What a switch of the dialect is, of which releases."""
    found = dict.fromkeys(getattr(release.dialect, field) for release in RELEASES)
    if set(found) <= {True, False}:
        return span(lambda dialect: bool(getattr(dialect, field)))
    return "; ".join(
        f"`{value}` {span(lambda d, value=value: getattr(d, field) == value)}"  # type: ignore[misc]
        for value in found
    )
