"""The canonical state of an allocator, as a value: what lockstep compares and rules judge.

Every field is a tuple of integers in a canonical order, so that equal states are equal values
whatever subject they come from.
"""

import json
from hashlib import blake2b
from typing import Any, NamedTuple

from model.events import PlainResponse


class PoolState(NamedTuple):
    """One pool, over its blocks ``0 .. len(counts) - 1``; block 0 is the null block."""

    free: tuple[int, ...]
    """The free block queue, head first."""
    num_free: int
    """The pool's own count of free blocks."""
    counts: tuple[int, ...]
    """Reference counts by block."""
    keys: tuple[tuple[int, int, int], ...]
    """(block, group, content id) of each block that knows its key, by block."""
    cached: tuple[tuple[int, ...], ...]
    """(group, content id, blocks oldest first …) of each key in the hash map, by key."""
    watched: tuple[int, ...]
    """Blocks whose next hand-out is announced to their readers, by block."""


class RequestState(NamedTuple):
    """What an allocator holds for one request. Pages count from 0 in its context."""

    id: int
    status: int
    num_tokens: int
    computed: int
    scheduled: int
    """Tokens of the step being built, 0 if the request is not in it."""
    contents: tuple[int, ...]
    """Content id of each full block."""
    tables: tuple[tuple[int, ...], ...]
    """Block table of each group."""
    resident: tuple[tuple[int, ...], ...]
    """Blocks that resident pages are read from, in each resident group; null is "from host"."""
    host_cached: int
    """Leading pages whose host blocks were given keys."""
    indexer_cached: int
    wants_hot: int
    valid: tuple[int, ...]
    """Pages whose host copy is complete."""
    ready: int
    """Length, in pages, of the prefix of valid pages."""
    pending: tuple[tuple[int, int], ...]
    """(page, transfer) of host writes under way."""
    pinned_clean: tuple[int, ...]
    """Valid pages still counted as held on the GPU."""
    unpinned: tuple[int, ...]
    """Valid pages read from blocks that are free."""
    to_adopt: int
    """Prefix pages whose GPU copies are still to be adopted."""
    recorded: int
    """Pages below this one are not recorded again as copies."""
    publication: tuple[int, ...]
    """(leading pages,) waiting to be published, or ()."""


class TransferState(NamedTuple):
    """One host write under way."""

    id: int
    request: int
    page: int
    host_block: int
    blocks: tuple[int, ...]
    """Source block in each resident group."""
    expected: int
    """Workers that took the transfer on; 0 until they said so."""
    done: int
    """Workers that completed it."""
    lease: tuple[int, ...]
    """Host blocks that the ended request's publication still holds."""
    lease_cached: int


class Snapshot(NamedTuple):
    gpu: PoolState
    host: PoolState | None
    requests: tuple[RequestState, ...]
    """Requests that have not ended, by id."""
    copies: tuple[tuple[int, ...], ...]
    """(content id, block in each resident group …) of each recorded GPU copy, by content."""
    readers: tuple[tuple[int, int, int], ...]
    """(block, request, page) of each page that is read from an unpinned block."""
    transfers: tuple[TransferState, ...]
    unsent: tuple[int, ...]
    """Transfers planned and not yet in a step's command."""
    deferred: tuple[tuple[int, ...], ...]
    """GPU blocks that each deferred release still holds, oldest first."""
    deferred_host: tuple[tuple[int, ...], ...]
    held: tuple[int, ...]
    """Blocks that tables took away (``Hold``)."""


def digest_of(value: object) -> str:
    """A short fingerprint of a value of tuples and integers, equal in every process and Python."""
    return blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


class Digester:
    """Fingerprints the steps of one trace, in order; equal in every process and Python.

    Most steps leave most parts of the state alone, so a part is written out again only when it
    differs from the last one in its place.
    """

    def __init__(self) -> None:
        self._parts: list[object] = []
        self._texts: list[str] = []

    def digest(self, response: PlainResponse, snapshot: Snapshot) -> str:
        """A short fingerprint of what a step answered and of the state after it."""
        parts = _parts(snapshot)
        known = self._parts
        self._texts = [
            text if part is old or part == old else repr(part)
            for part, old, text in zip(parts, known, self._texts, strict=False)
        ] + [repr(part) for part in parts[len(known) :]]
        self._parts = parts
        text = "\n".join((repr(response), *self._texts))
        return blake2b(text.encode(), digest_size=8).hexdigest()


def _parts(snapshot: Snapshot) -> list[object]:
    """The state in parts of plain tuples and integers, whose ``repr`` is the same everywhere."""
    gpu, host, requests, copies, readers, transfers, *rest = snapshot
    return [
        *gpu,
        *(host or (None,)),
        copies,
        readers,
        tuple(map(tuple, transfers)),
        *rest,
        *map(tuple, requests),
    ]


def snapshot_from_json(data: list[Any]) -> Snapshot:
    """Read a snapshot that went through JSON, where every tuple became a list."""
    gpu, host, requests, copies, readers, transfers, *rest = data
    return Snapshot(
        PoolState(*_tuples(gpu)),
        None if host is None else PoolState(*_tuples(host)),
        tuple([RequestState(*_tuples(request)) for request in requests]),
        _tuples(copies),
        _tuples(readers),
        tuple([TransferState(*_tuples(transfer)) for transfer in transfers]),
        *_tuples(rest),
    )


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple([_tuples(value) if type(value) is list else value for value in values])
