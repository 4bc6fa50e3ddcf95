"""What a reference allocator did to its pools, in order: more than snapshots tell.

A ``Recorder`` stands between a session and the reference allocator, and a ``RecordedPool`` between
the allocator and each pool. Neither changes anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, cast

from model.allocation import NO_HIT
from model.capture import capture
from model.holding import Hit
from model.pool import Key, Pool
from model.reference import ReferenceAllocator
from model.request import Request
from model.snapshot import Snapshot
from model.state import State

POOL_OPERATIONS = ("take", "touch", "release", "unpin", "insert", "evict", "reset")
CALLS = (
    "allocate", "cache", "free", "pop", "free_popped", "end_step", "update_transfers", "evict",
    "reset", "hold",
)  # fmt: skip
"""Calls of an allocator that change its state."""

Which = Literal["gpu", "host"]


@dataclass(frozen=True, slots=True)
class View:
    """The part of a state that one operation on a pool may move beside that pool."""

    free: tuple[int, ...]
    """The free block queue of the GPU pool."""
    copies: frozenset[int]
    """Contents of which a GPU copy is recorded."""
    unpinned: frozenset[tuple[int, int]]
    """(request, page) that is read without being held."""
    published: frozenset[int]
    """Contents that are found on the host."""


@dataclass(frozen=True, slots=True)
class Operation:
    pool: Which
    name: str
    blocks: tuple[int, ...]
    """What it is about, or what it handed out."""
    before: View
    after: View
    key: Key | None = None
    asked: int = 0
    """Blocks that were to be handed out: more than were, if it raised."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a request: until it ends or is preempted."""

    request: int
    number: int
    finished: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.request, self.number


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    lives: tuple[Life, ...]
    """Of the requests that the call names, in its order."""
    hit: Hit
    operations: tuple[Operation, ...]
    before: Snapshot
    after: Snapshot


@dataclass(slots=True)
class Recorder:
    """Answers as its allocator does, and keeps the calls that change anything."""

    allocator: ReferenceAllocator
    requests: dict[int, Request] = field(default_factory=dict)
    """Every request that ever arrived."""
    _calls: list[Call] = field(default_factory=list)
    _operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = self.allocator.state
        state.gpu = cast("Pool", RecordedPool("gpu", state.gpu, state, self._operations))
        state.host = cast("Pool", RecordedPool("host", state.host, state, self._operations))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.allocator, name)
        if name == "register":
            return partial(self._register, method)
        return partial(self._call, name, method) if name in CALLS else method

    def drain(self) -> tuple[Call, ...]:
        """The calls since the last time."""
        calls, self._calls = tuple(self._calls), []
        return calls

    def _register(self, register: Any, request: Request) -> None:
        self.requests[request.id] = request
        register(request)

    def _call(self, name: str, method: Any, *arguments: Any) -> Any:
        before = self._snapshot()
        lives = tuple(Life(r.id, r.life, r.finished) for r in _requests_in(arguments))
        hit = next((each for each in arguments if isinstance(each, Hit)), NO_HIT)
        self._operations.clear()
        try:
            return method(*arguments)
        finally:
            done = tuple(self._operations)
            self._calls.append(Call(name, lives, hit, done, before, self._snapshot()))

    def _snapshot(self) -> Snapshot:
        state = self.allocator.state
        return capture(state, [self.requests[number] for number in state.holdings], {}, [])


def _requests_in(arguments: Sequence[Any]) -> Iterator[Request]:
    """Requests among the arguments of a call, alone or as (request, tokens) in a list."""
    for argument in arguments:
        if isinstance(argument, Request):
            yield argument
        elif isinstance(argument, list):
            yield from (each for each in chain(*argument) if isinstance(each, Request))


@dataclass(slots=True)
class RecordedPool:
    which: Which
    pool: Pool
    state: State
    record: list[Operation]

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.pool, name)
        return partial(self._operate, name, attribute) if name in POOL_OPERATIONS else attribute

    def _operate(self, name: str, method: Any, *arguments: Any) -> Any:
        before, result = view(self.state), None
        try:
            result = method(*arguments)
        finally:
            blocks, key, asked = _subject(name, arguments, result)
            after = view(self.state)
            self.record.append(Operation(self.which, name, blocks, before, after, key, asked))
        return result


def _subject(name: str, arguments: tuple[Any, ...], result: Any) -> tuple[Any, Key | None, int]:
    """The blocks of an operation, its key, and how many blocks it asked for."""
    match name, arguments:
        case "take", (count,):
            return tuple(result or ()), None, count
        case "touch" | "release", (blocks,):
            return tuple(blocks), None, 0
        case "insert", (key, block):
            return (block,), key, 0
        case _:
            return arguments, None, 0


def view(state: State) -> View:
    return View(
        free=tuple(state.gpu.free),
        copies=frozenset(state.copies),
        unpinned=frozenset(
            (request, page)
            for request, holding in state.holdings.items()
            for page in holding.unpinned
        ),
        published=frozenset(content for _, content in state.host.index),
    )
