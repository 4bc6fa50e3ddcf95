"""The canonical snapshot of an engine's KV-cache manager, whoever drives it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kvproof.engines.vllm.inside.view import EngineView, Name, PoolView, Spill, ids
from model.snapshot import PoolState, RequestState, Snapshot, TransferState


class RequestFacts(Protocol):
    """What a snapshot says of a request beside its blocks. ``contents`` names its full blocks."""

    @property
    def id(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def computed(self) -> int: ...
    @property
    def contents(self) -> Sequence[int]: ...


class Capture:
    """Reads one engine between two calls.

    ``numbers`` are the requests' numbers by the engine's keys; they are the driver's and may grow.
    """

    def __init__(self, view: EngineView, numbers: Mapping[str, int], name: Name) -> None:
        self._view = view
        self._numbers = numbers
        self._name = name
        self._gpu_names = PoolNames(name)
        self._host_names = PoolNames(name)

    def snapshot(
        self,
        requests: Sequence[RequestFacts],
        scheduled: Mapping[int, int],
        deferred: Sequence[Any],
        held: Iterable[Any] = (),
    ) -> Snapshot:
        """``scheduled``: tokens of this step by request; ``deferred``: releases to come."""
        view, host = self._view, self._view.host
        return Snapshot(
            gpu=_pool_state(view.gpu, self._gpu_names),
            host=None if host is None else _pool_state(host, self._host_names),
            requests=tuple([self._request_state(r, scheduled.get(r.id, 0)) for r in requests]),
            copies=tuple(sorted([(self._name(key)[1], *found) for key, found in view.copies()])),
            readers=tuple(
                sorted([(block, self._numbers[key], page) for block, key, page in view.readers()])
            ),
            transfers=tuple([self._transfer_state(spill) for spill in view.spills()]),
            unsent=tuple(view.unsent()),
            deferred=tuple([_held(blocks, view.gpu) for blocks in deferred]),
            deferred_host=tuple([_held(blocks, host) for blocks in deferred]),
            held=tuple(ids(held)),
        )

    def _request_state(self, request: RequestFacts, scheduled: int) -> RequestState:
        key, view = str(request.id), self._view
        rows = view.rows(key)
        held = bool(rows[view.indexer_group])
        no_rows: tuple[tuple[int, ...], ...] = ((), ()) if view.hisparse else ((),)
        return RequestState(
            id=request.id,
            status=int(request.status),
            num_tokens=request.num_tokens,
            computed=request.computed,
            scheduled=scheduled,
            contents=tuple(request.contents),
            tables=tuple([tuple(row) for row in rows]) if held else no_rows,
            resident=tuple([tuple(row) for row in view.resident_rows(key, rows)]) if held else (),
            host_cached=view.host_cached(key) if view.hisparse else 0,
            indexer_cached=view.indexer_cached(key),
            wants_hot=int(view.wants_hot(key)),
            **self._residency(key),
        )

    def _residency(self, key: str) -> dict[str, Any]:
        state = self._view.residency(key)
        if state is None:
            return _NO_RESIDENCY
        return {
            "valid": tuple(sorted(state.valid)),
            "ready": state.ready,
            "pending": tuple(sorted(state.pending.items())),
            "pinned_clean": tuple(sorted(state.pinned_clean)),
            "unpinned": tuple(sorted(state.unpinned)),
            "to_adopt": state.to_adopt,
            "recorded": state.recorded,
            "publication": () if state.publication is None else (state.publication,),
        }

    def _transfer_state(self, spill: Spill) -> TransferState:
        return TransferState(
            id=spill.id,
            request=self._numbers[spill.key],
            page=spill.page,
            host_block=spill.host_block.block_id,
            blocks=tuple(ids(spill.resident_blocks)),
            expected=spill.expected,
            done=spill.done,
            lease=tuple(ids(spill.lease or ())),
            lease_cached=spill.lease_cached,
        )


class PoolNames:
    """The keys of one pool under canonical names: named again only when the hashes moved."""

    def __init__(self, name: Name) -> None:
        self._name = name
        self._hashes: list[Any] = []
        self._keys: tuple[tuple[int, int, int], ...] = ()
        self._found: list[tuple[Any, list[int]]] = []
        self._cached: tuple[tuple[int, ...], ...] = ()

    def keys(self, pool: PoolView) -> tuple[tuple[int, int, int], ...]:
        hashes = pool.hashes()
        if hashes != self._hashes:
            self._hashes = hashes
            self._keys = tuple(
                [(block, *self._name(key)) for block, key in enumerate(hashes) if key is not None]
            )
        return self._keys

    def cached(self, pool: PoolView) -> tuple[tuple[int, ...], ...]:
        """What the hash map finds: blocks under each key."""
        found = pool.found()
        if found != self._found:
            self._found = found
            self._cached = tuple(sorted([(*self._name(key), *blocks) for key, blocks in found]))
        return self._cached


_NO_RESIDENCY: dict[str, Any] = {
    "valid": (),
    "ready": 0,
    "pending": (),
    "pinned_clean": (),
    "unpinned": (),
    "to_adopt": 0,
    "recorded": 0,
    "publication": (),
}


def _pool_state(pool: PoolView, names: PoolNames) -> PoolState:
    return PoolState(
        free=tuple(pool.free()),
        num_free=pool.num_free(),
        counts=tuple(pool.counts()),
        keys=names.keys(pool),
        cached=names.cached(pool),
        watched=tuple(sorted(pool.watched())),
    )


def _held(blocks: Iterable[Any], pool: PoolView | None) -> tuple[int, ...]:
    """Those of a deferred release that are of one pool."""
    if pool is None:
        return ()
    return tuple(ids(b for b in blocks if b.pool is pool.pool and not b.is_null))
