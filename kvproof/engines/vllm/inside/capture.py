"""The canonical snapshot of an engine's KV-cache manager, whoever drives it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

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
    """Reads one manager, and its HiSparse coordinator if it has one, between two calls.

    ``ids`` are the requests' numbers by the engine's keys, ``contents`` the names of block hashes;
    both are the driver's and may grow.
    """

    def __init__(
        self,
        manager: Any,
        coordinator: Any,
        ids: Mapping[str, int],
        contents: Mapping[bytes, int],
    ) -> None:
        self._coordinator = coordinator
        self._managers = manager.coordinator.single_type_managers
        self._pool = manager.block_pool
        self._host_pool = self._managers[0].block_pool if coordinator else None
        self._indexer = self._managers[1 if coordinator else 0]
        self._resident_rows = [
            getattr(manager, "get_residency_row", None) or _row_reader(manager)
            for manager in (coordinator.resident_managers if coordinator else ())
        ]
        self._hot = coordinator.hot_managers if coordinator else ()
        self._ids = ids
        self._contents = contents
        self._key_names: dict[Any, tuple[int, int]] = {}
        self._gpu_names = PoolNames(self._key_name)
        self._host_names = PoolNames(self._key_name)

    def snapshot(
        self,
        requests: Sequence[RequestFacts],
        scheduled: Mapping[int, int],
        deferred: Sequence[Any],
        held: Iterable[Any] = (),
    ) -> Snapshot:
        """``scheduled``: tokens of this step by request; ``deferred``: releases to come."""
        host = self._host_pool
        transfers = self._coordinator.pending_spills.values() if self._coordinator else ()
        unsent = self._coordinator.spills_to_send if self._coordinator else ()
        return Snapshot(
            gpu=self._pool_state(self._pool, self._gpu_names),
            host=None if host is None else self._pool_state(host, self._host_names),
            requests=tuple([self._request_state(r, scheduled.get(r.id, 0)) for r in requests]),
            copies=self._copies() if self._coordinator else (),
            readers=self._readers() if self._coordinator else (),
            transfers=tuple([self._transfer_state(transfer) for transfer in transfers]),
            unsent=tuple([transfer.transfer_id for transfer in unsent]),
            deferred=tuple([_held(blocks, self._pool) for blocks in deferred]),
            deferred_host=tuple([_held(blocks, host) for blocks in deferred]),
            held=_ids(held),
        )

    def _pool_state(self, pool: Any, names: "PoolNames") -> PoolState:
        return PoolState(
            free=_ids(pool.free_block_queue.get_all_free_blocks()),
            num_free=pool.get_num_free_blocks(),
            counts=tuple([block.ref_cnt for block in pool.blocks]),
            keys=names.keys(pool),
            cached=names.cached(pool),
            watched=tuple(sorted(pool._reuse_watchers)),
        )

    def _key_name(self, key: Any) -> tuple[int, int]:
        name = self._key_names.get(key)
        if name is None:
            name = (get_group_id(key), self._contents[bytes(get_block_hash(key))])
            self._key_names[key] = name
        return name

    def _request_state(self, request: RequestFacts, scheduled: int) -> RequestState:
        key = str(request.id)
        tables = tuple([_ids(m.req_to_blocks.get(key, ())) for m in self._managers])
        hisparse = self._coordinator is not None
        held = bool(tables[self._indexer.kv_cache_group_id])
        return RequestState(
            id=request.id,
            status=int(request.status),
            num_tokens=request.num_tokens,
            computed=request.computed,
            scheduled=scheduled,
            contents=tuple(request.contents),
            tables=tables if held else ((),) * (1 if not hisparse else 2),
            resident=tuple([_ids(row(key)) for row in self._resident_rows]) if held else (),
            host_cached=self._managers[0].num_cached_block.get(key, 0) if hisparse else 0,
            indexer_cached=self._indexer.num_cached_block.get(key, 0),
            wants_hot=int(any(key in manager.hot_required for manager in self._hot)),
            **self._residency(key),
        )

    def _residency(self, key: str) -> dict[str, Any]:
        state = self._coordinator.request_states.get(key) if self._coordinator else None
        if state is None:
            return _NO_RESIDENCY
        waiting = state.publication
        return {
            "valid": tuple(sorted(state.valid_pages)),
            "ready": state.ready_prefix_pages,
            "pending": tuple(sorted(state.pending_pages.items())),
            "pinned_clean": tuple(sorted(state.pinned_clean)),
            "unpinned": tuple(sorted(state.unpinned_pages)),
            "to_adopt": getattr(state, "pages_to_adopt", 0),
            "recorded": state.copies_recorded_blocks,
            "publication": () if waiting is None else (waiting.num_pages,),
        }

    def _copies(self) -> tuple[tuple[int, ...], ...]:
        copies = self._coordinator.copies.items()
        return tuple(sorted([(self._key_name(key)[1], *_ids(blocks)) for key, blocks in copies]))

    def _readers(self) -> tuple[tuple[int, int, int], ...]:
        owners = self._coordinator._owners.items()
        return tuple(
            sorted(
                [(block, self._ids[key], page) for block, pages in owners for key, page in pages]
            )
        )

    def _transfer_state(self, transfer: Any) -> TransferState:
        waiting = transfer.request_state.publication
        lease = getattr(waiting, "detached_blocks", None)
        return TransferState(
            id=transfer.transfer_id,
            request=self._ids[transfer.page[0]],
            page=transfer.page[1],
            host_block=transfer.host_block.block_id,
            blocks=_ids(transfer.resident_blocks),
            expected=transfer.expected_worker_completions,
            done=transfer.worker_completions,
            lease=_ids(lease or ()),
            lease_cached=waiting.num_cached_blocks if lease is not None else 0,
        )


class PoolNames:
    """The keys of one pool under canonical names: named again only when the hashes moved."""

    def __init__(self, name: Callable[[Any], tuple[int, int]]) -> None:
        self._name = name
        self._hashes: list[Any] = []
        self._keys: tuple[tuple[int, int, int], ...] = ()
        self._found: list[tuple[Any, ...]] = []
        self._cached: tuple[tuple[int, ...], ...] = ()

    def keys(self, pool: Any) -> tuple[tuple[int, int, int], ...]:
        hashes = [block.block_hash for block in pool.blocks]
        if hashes != self._hashes:
            self._hashes = hashes
            self._keys = tuple(
                [
                    (block.block_id, *self._name(block_hash))
                    for block, block_hash in zip(pool.blocks, hashes, strict=True)
                    if block_hash is not None
                ]
            )
        return self._keys

    def cached(self, pool: Any) -> tuple[tuple[int, ...], ...]:
        """What the hash map finds: blocks under each key."""
        entries = pool.cached_block_hash_to_block._cache.items()
        found = [(key, *_block_ids(blocks)) for key, blocks in entries]
        if found != self._found:
            self._found = found
            self._cached = tuple(sorted([(*self._name(key), *ids) for key, *ids in found]))
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


def _row_reader(manager: Any) -> Callable[[str], Any]:
    """Reads resident rows where the block table is what is read."""
    return lambda key: manager.req_to_blocks.get(key, ())


def _ids(blocks: Any) -> tuple[int, ...]:
    return tuple([block.block_id for block in blocks])


def _held(blocks: Any, pool: Any) -> tuple[int, ...]:
    return _ids(block for block in blocks if block.pool is pool and not block.is_null)


def _block_ids(found: Any) -> tuple[int, ...]:
    """Ids of the one or several blocks under a key, oldest first."""
    return tuple(found) if isinstance(found, dict) else (found.block_id,)
