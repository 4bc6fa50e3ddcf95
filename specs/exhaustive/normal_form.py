"""The normal form of a session: equal for states that have the same futures up to renaming.

GPU blocks, host blocks, requests and transfers are named anew. The free queue decides the names of
free blocks, since its order decides who gets which block; so two states whose queues hold
different blocks in the same order are one, and two orders never are. Requests are named by their
places in the queues of the scheduler, which their order decides as well. Blocks that are held are
named as they occur in the rows of the requests.

What cannot change anything any more is left out: see ``specs/README.md``. All requests must have
the same text, so that a content is known by its page.
"""

import marshal
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from invariants.manager.ghost import Ghost
from model.holding import Holding, Transfer
from model.pool import NULL, Pool
from model.request import Request
from model.state import State
from specs.exhaustive.checkpoint import Played
from specs.manager.generator import ReferenceSession

Value = tuple[Any, ...]

DIGEST_BYTES = 16
MARSHAL_WITHOUT_REFERENCES = 2
"""Newer formats write equal values differently, depending on which objects are shared."""


def key_of(played: Played) -> bytes:
    """A fingerprint of the normal form, long enough to stand for it."""
    form = marshal.dumps(normal_form(played), MARSHAL_WITHOUT_REFERENCES)
    return blake2b(form, digest_size=DIGEST_BYTES).digest()


def normal_form(played: Played) -> Value:
    return _NormalForm(played.session, ghost_of(played)).value()


def ghost_of(played: Played) -> Ghost:
    assert played.judge is not None
    return played.judge.ghost


def state_of(session: ReferenceSession) -> State:
    return session.allocator.state  # type: ignore[attr-defined, no-any-return]


def forget_unreadable(played: Played) -> None:
    """Forget what is in blocks that nobody can find or hold: it counts as garbage from now on.

    Garbage read is a violation all the same, so nothing is overlooked by it.
    """
    session, ghost = played.session, ghost_of(played)
    gpu = readable_gpu_blocks(session)
    for block in ghost.gpu.keys() - gpu:
        del ghost.gpu[block]
    for block in ghost.cancelled.keys() - gpu:
        del ghost.cancelled[block]
    for block in ghost.host.keys() - readable_host_blocks(session):
        del ghost.host[block]


def readable_gpu_blocks(session: ReferenceSession) -> set[int]:
    """Blocks in rows, under keys, recorded as copies, or being written; hot regions left out."""
    state = state_of(session)
    blocks = set(state.gpu.keys)
    for holding in state.holdings.values():
        blocks.update(holding.indexer, *holding.resident, *holding.table)
    for rows in (state.copies.values(), (t.blocks for t in state.transfers.values())):
        blocks.update(*rows)
    return blocks.union(*(popped.gpu for _, popped in session._deferred))


def readable_host_blocks(session: ReferenceSession) -> set[int]:
    state = state_of(session)
    blocks = set(state.host.keys)
    for holding in _all_holdings(state):
        blocks.update(holding.host, holding.lease or ())
    blocks.update(transfer.host_block for transfer in state.transfers.values())
    return blocks.union(*(popped.host for _, popped in session._deferred))


def _all_holdings(state: State) -> list[Holding]:
    """Those of requests, and those that only writes under way still know."""
    return [*state.holdings.values(), *(t.holding for t in state.transfers.values())]


class _Names:
    """New names of the members of one kind, in the order in which they are asked for."""

    def __init__(self, first: Iterable[int] = ()) -> None:
        self._names: dict[int, int] = {NULL: NULL}
        for member in first:
            self.of(member)

    def of(self, member: int) -> int:
        return self._names.setdefault(member, len(self._names))

    def row(self, members: Iterable[int]) -> Value:
        return tuple([self.of(member) for member in members])

    def rows(self, rows: Iterable[Iterable[int]]) -> Value:
        return tuple([self.row(row) for row in rows])

    def members(self) -> list[int]:
        """All that have a name, by name; the null block is none."""
        return list(self._names)[1:]


class _NormalForm:
    """Names things in a fixed order of reading, and writes down what is left."""

    def __init__(self, session: ReferenceSession, ghost: Ghost) -> None:
        self._session = session
        self._ghost = ghost
        self._state = state_of(session)
        queued = [*session.running, *session.waiting]
        self._requests = _Names(request.id + 1 for request in queued)
        self._transfers = _Names(transfer + 1 for transfer in self._state.transfers)
        self._gpu = _Names(self._state.gpu.free)
        self._host = _Names(self._state.host.free)

    def value(self) -> Value:
        """Rows are written before pools: every block has its name by then."""
        session, state = self._session, self._state
        return (
            tuple([self._request(request) for request in (*session.running, *session.waiting)]),
            self._scheduler(),
            tuple([self._transfer(transfer) for transfer in state.transfers.values()]),
            tuple(
                [
                    (content, self._gpu.row(blocks))
                    for content, blocks in sorted(state.copies.items())
                ]
            ),
            self._transfer_row(state.unsent),
            self._pool(state.gpu, self._gpu, self._ghost.gpu),
            self._pool(state.host, self._host, self._ghost.host),
            tuple(sorted(self._gpu.row(self._ghost.cancelled))),
        )

    def _request_name(self, request_id: int) -> int:
        return self._requests.of(request_id + 1)

    def _transfer_row(self, transfers: Iterable[int]) -> Value:
        return self._transfers.row(transfer + 1 for transfer in transfers)

    def _request(self, request: Request) -> Value:
        fence = max(request.last_step - self._session._steps_done, 0)
        holding = self._state.holdings.get(request.id)
        return (
            request.num_tokens,
            request.computed,
            request.in_flight,
            request.placeholders,
            fence,
            () if holding is None else self._holding(holding),
        )

    def _holding(self, h: Holding) -> Value:
        pending = [(page, self._transfers.of(h.pending[page] + 1)) for page in sorted(h.pending)]
        return (
            self._host.row(h.host),
            self._gpu.row(h.indexer),
            self._gpu.rows(h.resident),
            self._gpu.rows(h.table),
            self._gpu.rows(h.hot),
            (h.host_cached, h.indexer_cached, h.wants_hot, h.ready, h.to_adopt, h.recorded),
            tuple(pending),
            tuple(sorted(h.valid)),
            tuple(sorted(h.pinned_clean)),
            tuple(sorted(h.unpinned)),
            h.publication,
        )

    def _scheduler(self) -> Value:
        s = self._session
        scheduled = tuple([(self._request_name(r), count) for r, count in s.scheduled.items()])
        refused = 0 if s.refused is None else self._request_name(s.refused)
        flight = [self._flight(step.scheduled, step.command) for step in s.flight]
        queues = [self._pairs(queue) for queue in s._queues]
        deferred = [
            (fence - s._steps_done, self._gpu.row(popped.gpu), self._host.row(popped.host))
            for fence, popped in s._deferred
        ]
        flags = (refused, s.preempted, s.admitting, s.dead, s._next_id, len(s.running))
        return (scheduled, flags, tuple(flight), tuple(queues), tuple(deferred))

    def _flight(
        self,
        scheduled: list[tuple[Request, int, int, bool]],
        command: tuple[tuple[int, int], ...],
    ) -> Value:
        entries = [
            (self._request_name(r.id), count, life == r.life, samples, r.finished)
            for r, count, life, samples in scheduled
        ]
        return tuple(entries), self._pairs(command)

    def _pairs(self, pairs: Iterable[tuple[int, int]]) -> Value:
        """(transfer, request) of each."""
        return tuple([(self._transfers.of(t + 1), self._request_name(r)) for t, r in pairs])

    def _transfer(self, transfer: Transfer) -> Value:
        alive = self._state.holdings.get(transfer.request) is transfer.holding
        written = self._ghost.writes.get(transfer.id, ())
        return (
            self._transfers.of(transfer.id + 1),
            self._request_name(transfer.request),
            transfer.page,
            self._host.of(transfer.host_block),
            self._gpu.row(transfer.blocks),
            (transfer.expected, transfer.done),
            written,
            () if alive else self._left_behind(transfer.holding),
        )

    def _left_behind(self, h: Holding) -> Value:
        """What a released request left to its last write: nothing, or a lease."""
        if h.lease is None:
            return (0,)
        pages = (h.host_cached, h.ready, h.publication, tuple(sorted(h.valid)))
        return (1, self._host.row(h.lease), pages, tuple(sorted(h.pending)))

    def _pool(self, pool: Pool, names: _Names, contents: dict[int, Any]) -> Value:
        found = [(key, names.row(blocks)) for key, blocks in sorted(pool.index.items())]
        held = names.row(b for b in range(1, len(pool.counts)) if pool.counts[b])
        blocks = [
            (pool.counts[b], pool.keys.get(b, ()), b in pool.watched, contents.get(b, ()))
            for b in names.members()
        ]
        return (len(pool.free), tuple(found), tuple(sorted(held)), tuple(blocks))
