"""Whether the engine's state is the model's, without writing either of them down.

It compares what two snapshots would hold, an order of magnitude faster: the shadow asks it after
every step and takes snapshots only now and then, and when this says no. It reads attributes of
the engine's objects and imports nothing of the engine.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from invariants.conformance.mirror import Mirror
from model.holding import Holding, Transfer
from model.pool import Pool
from model.state import State

Name = Callable[[Any], tuple[int, int]]
"""A key of the engine's hash map → (group, content)."""
ROWS_BEFORE_RESIDENT = 2
"""Host source and indexer are the first groups of a HiSparse engine."""


class Agreement:
    """``requests`` are the numbers by the engine's ids, ``retained`` the deferred releases."""

    def __init__(
        self,
        manager: Any,
        coordinator: Any,
        requests: Mapping[str, int],
        retained: Mapping[int, Iterable[Any]],
        name: Name,
    ) -> None:
        self._managers = manager.coordinator.single_type_managers
        self._coordinator = coordinator
        self._requests = requests
        self._retained = retained
        self._gpu = PoolAgreement(manager.block_pool, name)
        self._host = PoolAgreement(self._managers[0].block_pool, name) if coordinator else None
        self._indexer = self._managers[1 if coordinator else 0]
        self._name = name

    def holds(self, mirror: Mirror) -> bool:
        state = mirror.allocator.state
        return (
            self._gpu.holds(state.gpu)
            and (self._host is None or self._host.holds(state.host))
            and self._same_holders(state)
            and all(self._same_request(str(n), h) for n, h in state.holdings.items())
            and (self._coordinator is None or self._same_residency(state))
            and self._same_releases(mirror)
        )

    def _same_holders(self, state: State) -> bool:
        holding = sum(1 for row in self._indexer.req_to_blocks.values() if row)
        return holding == sum(1 for held in state.holdings.values() if held.indexer)

    def _same_request(self, key: str, held: Holding) -> bool:
        rows = [_ids(manager.req_to_blocks.get(key, ())) for manager in self._managers]
        if self._indexer.num_cached_block.get(key, 0) != held.indexer_cached:
            return False
        if self._coordinator is None:
            return rows == [held.indexer]
        hot = self._coordinator.hot_managers
        return (
            rows == [held.host, held.indexer, *held.table, *held.hot]
            and self._resident_rows(key, rows) == held.resident
            and self._managers[0].num_cached_block.get(key, 0) == held.host_cached
            and any(key in manager.hot_required for manager in hot) == held.wants_hot
            and self._same_pages(key, held)
        )

    def _resident_rows(self, key: str, rows: list[list[int]]) -> list[list[int]]:
        """What is read: the block table itself, where there is nothing beside it."""
        residents = self._coordinator.resident_managers
        if not hasattr(residents[0], "get_residency_row"):
            return rows[ROWS_BEFORE_RESIDENT : ROWS_BEFORE_RESIDENT + len(residents)]
        return [_ids(manager.get_residency_row(key)) for manager in residents]

    def _same_pages(self, key: str, held: Holding) -> bool:
        state = self._coordinator.request_states.get(key)
        if state is None:
            clean = held.valid or held.pending or held.pinned_clean or held.unpinned
            return not (clean or held.ready or held.to_adopt or held.publication is not None)
        waiting = state.publication
        return (
            state.valid_pages == held.valid
            and state.ready_prefix_pages == held.ready
            and state.pending_pages == held.pending
            and state.pinned_clean == held.pinned_clean
            and state.unpinned_pages == held.unpinned
            and getattr(state, "pages_to_adopt", 0) == held.to_adopt
            and state.copies_recorded_blocks == held.recorded
            and (None if waiting is None else waiting.num_pages) == held.publication
        )

    def _same_residency(self, state: State) -> bool:
        coordinator = self._coordinator
        copies = {self._name(key)[1]: _ids(blocks) for key, blocks in coordinator.copies.items()}
        spills = coordinator.pending_spills
        return (
            copies == state.copies
            and [t.transfer_id for t in coordinator.spills_to_send] == state.unsent
            and list(spills) == list(state.transfers)
            and all(self._same_transfer(spills[n], t) for n, t in state.transfers.items())
            and self._same_readers(state)
        )

    def _same_transfer(self, spill: Any, transfer: Transfer) -> bool:
        publication = spill.request_state.publication
        lease = getattr(publication, "detached_blocks", None)
        key, page = spill.page
        return (
            (self._requests[key], page) == (transfer.request, transfer.page)
            and spill.host_block.block_id == transfer.host_block
            and _ids(spill.resident_blocks) == transfer.blocks
            and spill.expected_worker_completions == transfer.expected
            and spill.worker_completions == transfer.done
            and _ids(lease or ()) == (transfer.holding.lease or [])
            and (lease is None or publication.num_cached_blocks == transfer.holding.host_cached)
        )

    def _same_readers(self, state: State) -> bool:
        readers = {
            (block, self._requests[key], page)
            for block, pages in self._coordinator._owners.items()
            for key, page in pages
        }
        model = {
            (row[page], number, page)
            for number, held in state.holdings.items()
            for page in held.unpinned
            for row in held.resident
        }
        return readers == model

    def _same_releases(self, mirror: Mirror) -> bool:
        return all(
            [block.block_id for block in self._retained[number] if not block.is_null]
            == [block for block in chain(popped.host, popped.gpu) if block]
            for number, popped in mirror.deferred.items()
        )


class PoolAgreement:
    """One pool: queue, counts, hashes, hash map and watchers.

    The hash map is read again when a block's own hash or the map's size changed, and before this
    says no; that the map alone moved away from the model's is left to the audits with snapshots.
    """

    def __init__(self, pool: Any, name: Name) -> None:
        self._pool = pool
        self._name = name
        self._hashes: list[Any] = []
        self._size = 0
        self._keys: dict[int, tuple[int, int]] = {}
        self._found: dict[tuple[int, int], list[int]] = {}

    def holds(self, model: Pool) -> bool:
        pool = self._pool
        self._read_hashes()
        return (
            pool.get_num_free_blocks() == len(model.free)
            and _ids(pool.free_block_queue.get_all_free_blocks()) == model.free
            and [block.ref_cnt for block in pool.blocks] == model.counts
            and pool._reuse_watchers.keys() == model.watched
            and self._keys == model.keys
            and (self._found == model.index or self._found_now() == model.index)
        )

    def _read_hashes(self) -> None:
        entries = self._pool.cached_block_hash_to_block._cache
        hashes = [block.block_hash for block in self._pool.blocks]
        if hashes == self._hashes and len(entries) == self._size:
            return
        name = self._name
        self._hashes, self._size = hashes, len(entries)
        self._keys = {block: name(key) for block, key in enumerate(hashes) if key is not None}
        self._found = self._found_now()

    def _found_now(self) -> dict[tuple[int, int], list[int]]:
        entries = self._pool.cached_block_hash_to_block._cache.items()
        return {
            self._name(key): list(found) if type(found) is dict else [found.block_id]
            for key, found in entries
        }


def _ids(blocks: Iterable[Any]) -> list[int]:
    return [block.block_id for block in blocks]
