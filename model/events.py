"""Events: what happened during an action, as small records that are read by name.

Every event has a word. Its plain form, a tuple of the word and the values, is what JSON, digests
and texts hold; each level says what its events are: ``model.manager.events`` and
``model.scheduler.events``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar


class Event(Protocol):
    """A frozen dataclass whose fields are integers, words and tuples of them."""

    word: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


EventT = TypeVar("EventT", bound=Event)

PlainEvent = tuple[Any, ...]
"""A word, then what the event's fields hold."""
PlainResponse = tuple[PlainEvent, ...]


def plain_event(event: Event) -> PlainEvent:
    return (event.word, *[getattr(event, name) for name in _names_of(type(event))])


@cache
def _names_of(kind: type[Event]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def event_of(kinds: Mapping[str, type[EventT]], data: PlainEvent) -> EventT:
    """Read a plain event; raises ``ValueError`` or ``TypeError`` if it is none."""
    word, *values = data
    kind = kinds.get(word)
    if kind is None:
        raise ValueError(f"no event has the word {word!r}")
    return kind(*values)


def as_tuples(values: Sequence[Any]) -> tuple[Any, ...]:
    """Lists to tuples, all the way down: JSON knows no tuples."""
    return tuple([as_tuples(value) if type(value) is list else value for value in values])
