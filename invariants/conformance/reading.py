"""Read records from plain data, whatever it holds: every field is checked before it is used."""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from invariants.conformance.records import CALLS, Call, Group, Header, Ints, Pairs, View
from model.allocator import Rows

FORMAT = 1
LARGEST = 2**53
"""Beyond this a number is none that an engine counted."""
MAX_BLOCKS = 1 << 24
MAX_TOKENS = 1 << 27
MAX_GROUPS = 64


class CallLogError(Exception):
    """The log cannot be read: what is wrong, in one line."""


Reader = Callable[[Any], Any]


def _integer(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= LARGEST:
        raise CallLogError(f"{_short(value)} is not a number of the range -1 to {LARGEST}")
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise CallLogError(f"{_short(value)} is neither true nor false")
    return value


def _word(value: Any) -> str:
    if type(value) is not str or len(value) > 200:
        raise CallLogError(f"{_short(value)} is not a word")
    return value


def _integers(value: Any) -> Ints:
    numbers = _list(value)
    for number in numbers:
        if type(number) is not int or not -1 <= number <= LARGEST:
            _integer(number)
    return tuple(numbers)


def _rows(value: Any) -> Rows:
    return tuple([_integers(row) for row in _list(value)])


def _pairs(value: Any) -> Pairs:
    rows = _rows(value)
    for row in rows:
        if len(row) != 2:
            raise CallLogError(f"{_short(row)} is not a pair")
    return cast(Pairs, rows)


def _words(value: Any) -> tuple[str, ...]:
    return tuple([_word(word) for word in _list(value)])


def _groups(value: Any) -> tuple[Group, ...]:
    return tuple([_fill(Group, group) for group in _list(value)])


def _list(value: Any) -> Any:
    if type(value) is not list and type(value) is not tuple:
        raise CallLogError(f"{_short(value)} is not a list")
    return value


def _or_none(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


_READERS: dict[Any, Reader] = {
    int: _integer,
    bool: _truth,
    str: _word,
    int | None: _or_none(_integer),
    str | None: _or_none(_word),
    Ints: _integers,
    Ints | None: _or_none(_integers),
    Pairs: _pairs,
    Rows: _rows,
    Rows | None: _or_none(_rows),
    tuple[str, ...]: _words,
    tuple[Group, ...]: _groups,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How one kind of record is read."""

    readers: tuple[tuple[str, Reader], ...]
    """Every field of the record itself but the view."""
    required: frozenset[str]
    has_view: bool


def _shape(cls: Any) -> Shape:
    fields = [field for field in dataclasses.fields(cls) if field.name != "view"]
    required = frozenset(f.name for f in fields if f.default is dataclasses.MISSING)
    readers = tuple((field.name, _READERS[field.type]) for field in fields)
    return Shape(readers, required, len(fields) != len(dataclasses.fields(cls)))


_SHAPES = {cls: _shape(cls) for cls in (*CALLS.values(), View, Header, Group)}


def _fill(cls: Any, data: Any) -> Any:
    if type(data) is not dict:
        raise CallLogError(f"{_short(data)} is not a record")
    shape = _SHAPES[cls]
    values: dict[str, Any] = {"view": _fill(View, data)} if shape.has_view else {}
    for name, reader in shape.readers:
        if name in data:
            try:
                values[name] = reader(data[name])
            except CallLogError as error:
                raise CallLogError(f"{name}: {error}") from None
    missing = shape.required.difference(values)
    if missing:
        raise CallLogError(f"{', '.join(sorted(missing))} is missing")
    return cls(**values)


def read_call(data: Any) -> Call:
    """One line after the header. Raises CallLogError."""
    word = data.get("call") if type(data) is dict else None
    cls = CALLS.get(word) if type(word) is str else None
    if type(data) is dict and "kvproof_calls" in data:
        raise CallLogError("a second log begins here: give each log its own file")
    if cls is None:
        raise CallLogError(f"there is no call {_short(word)}")
    return cast(Call, _fill(cls, data))


def trusted_call(record: dict[str, Any]) -> Call:
    """A record of this process's own recorder, whose fields need no check. It is used up."""
    cls: Any = CALLS[record.pop("call")]
    if _SHAPES[cls].has_view:
        record["view"] = View(
            record.pop("request"),
            record.pop("status"),
            record.pop("computed"),
            record.pop("in_flight"),
            record.pop("length"),
            record.pop("contents", ()),
            record.pop("hashes", None),
        )
    return cast(Call, cls(**record))


def read_header(data: Any) -> Header:
    """The first line. Raises CallLogError."""
    if type(data) is not dict or "kvproof_calls" not in data:
        raise CallLogError("this is no log of kvproof record: its first line is not a header")
    if data["kvproof_calls"] != FORMAT:
        found = _short(data["kvproof_calls"])
        raise CallLogError(f"format {found} of the log is not known, only {FORMAT} is")
    header = cast(Header, _fill(Header, data))
    limits = {
        "num_blocks": MAX_BLOCKS,
        "num_host_blocks": MAX_BLOCKS,
        "max_model_len": MAX_TOKENS,
        "max_in_flight_tokens": MAX_TOKENS,
        "watermark_blocks": MAX_BLOCKS,
    }
    for name, limit in limits.items():
        lowest = 0 if name in ("num_host_blocks", "watermark_blocks") else 1
        if not lowest <= getattr(header, name) <= limit:
            raise CallLogError(
                f"{name}: {getattr(header, name)} is not between {lowest} and {limit}"
            )
    if not 1 <= len(header.groups) <= MAX_GROUPS:
        raise CallLogError(f"groups: there are {len(header.groups)}, not 1 to {MAX_GROUPS}")
    return header
