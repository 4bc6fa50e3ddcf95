"""Lockstep up to renaming: the same behaviour with other block ids, and another queue order.

Two allocators that hand out different blocks at the same place are alike as long as everything
that follows is the same with those blocks exchanged. Blocks are matched when they are handed out;
the order of the free queue is not compared, only who is free and what can be found.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from model.manager.events import Allocated, Event, Response, StepEnded
from model.pool import NULL
from model.snapshot import PoolState, RequestState, Snapshot, TransferState

UNMATCHED = -1
"""Stands for any block that was never handed out, or whose match has a new one."""

Names = dict[int, int]
"""Block of a subject → block of the reference that it is matched with."""


@dataclass(slots=True)
class Renaming:
    """The matching of blocks along one pair of traces."""

    hisparse: bool
    gpu: Names = field(default_factory=dict)
    host: Names = field(default_factory=dict)

    def agrees(self, ours: tuple[Response, Snapshot], theirs: tuple[Response, Snapshot]) -> bool:
        """Whether a step of the subject is the reference's, with its blocks renamed."""
        self._match(ours[0], theirs[0])
        identity = Renaming(
            self.hisparse, {b: b for b in self.gpu.values()}, {b: b for b in self.host.values()}
        )
        return identity.normal(*ours) == self.normal(*theirs)

    def _match(self, ours: Response, theirs: Response) -> None:
        for our, their in zip(ours, theirs, strict=False):
            if not isinstance(our, Allocated) or not isinstance(their, type(our)):
                continue
            rows = zip(our.blocks, their.blocks, strict=False)
            for group, (mine, other) in enumerate(rows):
                names = self.host if self.hisparse and group == 0 else self.gpu
                for block, name in zip(other, mine, strict=False):
                    _pair(names, block, name)

    def normal(self, response: Response, snapshot: Snapshot) -> tuple[Any, ...]:
        """Response and state with names for blocks, free of what renaming does not keep."""
        s, host = snapshot, snapshot.host
        return (
            [self._event(event) for event in response],
            _pool(s.gpu, self.gpu),
            None if host is None else _pool(host, self.host),
            [self._request(request) for request in s.requests],
            [(content, *_named(blocks, self.gpu)) for content, *blocks in s.copies],
            sorted((_name(block, self.gpu), *reader) for block, *reader in s.readers),
            [self._transfer(transfer) for transfer in s.transfers],
            s.unsent,
            [sorted(_named(blocks, self.gpu)) for blocks in s.deferred],
            [sorted(_named(blocks, self.host)) for blocks in s.deferred_host],
            len(s.held),
        )

    def _event(self, event: Event) -> Any:
        """What workers are told of residency is left out."""
        if isinstance(event, Allocated):
            return replace(event, blocks=()), [len(blocks) for blocks in event.blocks]
        if isinstance(event, StepEnded):
            transfers = [
                (t, r, _name(h, self.host), *_named(b, self.gpu)) for t, r, h, *b in event.command
            ]
            return event.requests, transfers
        return event

    def _request(self, request: RequestState) -> RequestState:
        names = [self.host, *[self.gpu] * len(request.tables)]
        if not self.hisparse:
            names = names[1:]
        return request._replace(
            tables=tuple(_named(row, n) for row, n in zip(request.tables, names, strict=False)),
            resident=tuple(_named(row, self.gpu) for row in request.resident),
        )

    def _transfer(self, transfer: TransferState) -> TransferState:
        return transfer._replace(
            host_block=_name(transfer.host_block, self.host),
            blocks=_named(transfer.blocks, self.gpu),
            lease=_named(transfer.lease, self.host),
        )


def _pair(names: Names, block: int, name: int) -> None:
    """Match two blocks; whatever was matched with either is matched no more."""
    for other, taken in list(names.items()):
        if taken == name:
            del names[other]
    names[block] = name


def _name(block: int, names: Names) -> int:
    return NULL if block == NULL else names.get(block, UNMATCHED)


def _named(blocks: Any, names: Names) -> tuple[int, ...]:
    return tuple(_name(block, names) for block in blocks)


def _pool(pool: PoolState, names: Names) -> tuple[Any, ...]:
    """Who is free and who holds what, by name; keys by how many blocks are found under each."""
    return (
        Counter(_named(pool.free, names)),
        pool.num_free,
        sorted((_name(b, names), n) for b, n in enumerate(pool.counts) if n and b != NULL),
        sorted((group, content, len(found)) for group, content, *found in pool.cached),
        Counter(_named(pool.watched, names)),
    )
