"""Words and lists of tokens as they may stand in an exported file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby


def plain(words: str) -> str:
    """Text from a trace as it may stand in a docstring: it can neither end it nor escape."""
    printable = "".join(character if character.isprintable() else " " for character in words)
    return printable.replace("\\", "/").replace('"', "'")


def ranges(tokens: Sequence[int]) -> str:
    """A list of tokens as its runs of consecutive numbers: ``[*range(1, 17), *range(5, 6)]``."""
    runs = [
        [token for _, token in run]
        for _, run in groupby(enumerate(tokens), key=lambda pair: pair[1] - pair[0])
    ]
    return f"[{', '.join(f'*range({run[0]}, {run[-1] + 1})' for run in runs)}]"
