"""Generated calls, laid out as a formatter would: on one line, or with a line for each argument."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import FunctionType, SimpleNamespace

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Brackets:
    """Something in brackets: a call, or a list."""

    opening: str
    """All up to the opening bracket, with it."""
    items: tuple[Code, ...]
    closing: str

    def __str__(self) -> str:
        return f"{self.opening}{', '.join(map(str, self.items))}{self.closing}"


Code = str | Brackets
"""Code that may be spread over lines at its brackets."""


def call(function: str, *arguments: Code) -> Brackets:
    return Brackets(f"{function}(", arguments, ")")


def listed(items: Sequence[Code]) -> Brackets:
    return Brackets("[", tuple(items), "]")


def argument(name: str, value: Code) -> Code:
    if isinstance(value, Brackets):
        return Brackets(f"{name}={value.opening}", value.items, value.closing)
    return f"{name}={value}"


def literal(value: object) -> Code:
    """A value as code: plain values, namespaces of them, functions by their names."""
    if isinstance(value, SimpleNamespace):
        fields = vars(value).items()
        return call("SimpleNamespace", *(argument(name, literal(each)) for name, each in fields))
    if isinstance(value, Brackets):
        return value
    if isinstance(value, FunctionType):
        return value.__name__
    if type(value) is object:
        return "object()"
    return quoted(value) if isinstance(value, str) else repr(value)


def lines_of(code: Code, indent: str = "", end: str = "") -> Iterator[str]:
    """The lines of a statement or an argument."""
    line = f"{indent}{code}{end}"
    if isinstance(code, str) or len(line) <= WIDTH:
        yield line
        return
    yield f"{indent}{code.opening}"
    for item in code.items:
        yield from lines_of(item, f"{indent}    ", ",")
    yield f"{indent}{code.closing}{end}"


def quoted(text: object) -> str:
    """A string, in the quotes that formatters prefer."""
    return json.dumps(str(text))


def ranges(tokens: Sequence[int]) -> Brackets:
    """A list of tokens as its runs of consecutive numbers: ``[*range(1, 17), *range(5, 6)]``."""
    runs = [
        [token for _, token in run]
        for _, run in groupby(enumerate(tokens), key=lambda pair: pair[1] - pair[0])
    ]
    return listed([f"*range({run[0]}, {run[-1] + 1})" for run in runs])


def plain(words: str) -> str:
    """Text of others as it may stand in a docstring: it can neither end it nor escape."""
    printable = "".join(character if character.isprintable() else " " for character in words)
    return printable.replace("\\", "/").replace('"', "'")
