"""A call log on disk: one JSON object a line. A killed engine may leave its last line torn."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from invariants.conformance.reading import CallLogError, read_call, read_header
from invariants.conformance.records import Call, Header

LONGEST_LINE = 1 << 26
"""Bytes: a request of the longest context has far less to say."""


class _TwiceError(Exception):
    """A record has a key twice, and which one counts nobody can say."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"it has the key {json.dumps(twice)} twice")
    return record


@dataclass(slots=True)
class CallLog:
    """Reads one log, as often as wanted, a line at a time."""

    path: Path
    torn: int | None = field(default=None, init=False)
    """Number of a last line that was not written to its end, once that was seen."""

    def header(self) -> Header:
        """Raises CallLogError."""
        for number, data in self._lines():
            with_line = f"{self.path}, line {number}"
            try:
                return read_header(data)
            except CallLogError as error:
                raise CallLogError(f"{with_line}: {error}") from None
        raise CallLogError(f"{self.path} holds no header")

    def calls(self) -> Iterator[tuple[int, Call]]:
        """Each call with the number of its line. Raises CallLogError."""
        lines = self._lines()
        next(lines, None)
        for number, data in lines:
            try:
                yield number, read_call(data)
            except CallLogError as error:
                raise CallLogError(f"{self.path}, line {number}: {error}") from None

    def _lines(self) -> Iterator[tuple[int, Any]]:
        try:
            with self.path.open("rb") as file:
                yield from self._parsed(file)
        except OSError as error:
            raise CallLogError(f"cannot read {self.path}: {error.strerror}") from error

    def _parsed(self, file: BinaryIO) -> Iterator[tuple[int, Any]]:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            try:
                yield number, json.loads(line, object_pairs_hook=_once)
            except _TwiceError as error:
                raise CallLogError(f"{self.path}, line {number}: {error}") from None
            except (ValueError, RecursionError):
                whole = line.endswith(b"\n")
                if whole or len(line) == LONGEST_LINE:
                    raise CallLogError(f"{self.path}, line {number} is not JSON") from None
                self.torn = number
