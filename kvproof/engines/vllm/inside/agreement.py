"""Whether the engine's state is the model's, without writing either of them down.

It compares what two snapshots would hold, an order of magnitude faster: the shadow asks it after
every step and takes snapshots only now and then, and when this says no.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from invariants.conformance.mirror import Mirror
from kvproof.engines.vllm.inside.view import EngineView, Name, PoolView, Spill, ids
from model.holding import Holding, Transfer
from model.pool import Pool
from model.state import State


class Agreement:
    """``numbers`` are the requests' by the engine's ids, ``retained`` the deferred releases."""

    def __init__(
        self,
        view: EngineView,
        numbers: Mapping[str, int],
        retained: Mapping[int, Iterable[Any]],
        name: Name,
    ) -> None:
        self._view = view
        self._numbers = numbers
        self._retained = retained
        self._gpu = PoolAgreement(view.gpu, name)
        self._host = None if view.host is None else PoolAgreement(view.host, name)
        self._name = name

    def holds(self, mirror: Mirror) -> bool:
        state = mirror.allocator.state
        return (
            self._gpu.holds(state.gpu)
            and (self._host is None or self._host.holds(state.host))
            and self._same_holders(state)
            and all(self._same_request(str(n), h) for n, h in state.holdings.items())
            and (not self._view.hisparse or self._same_residency(state))
            and self._same_releases(mirror)
        )

    def _same_holders(self, state: State) -> bool:
        holding = sum(1 for held in state.holdings.values() if held.indexer)
        return self._view.num_holding() == holding

    def _same_request(self, key: str, held: Holding) -> bool:
        view = self._view
        rows = view.rows(key)
        if view.indexer_cached(key) != held.indexer_cached:
            return False
        if not view.hisparse:
            return rows == [held.indexer]
        return (
            rows == [held.host, held.indexer, *held.table, *held.hot]
            and view.resident_rows(key, rows) == held.resident
            and view.host_cached(key) == held.host_cached
            and view.wants_hot(key) == held.wants_hot
            and self._same_pages(key, held)
        )

    def _same_pages(self, key: str, held: Holding) -> bool:
        state = self._view.residency(key)
        if state is None:
            clean = held.valid or held.pending or held.pinned_clean or held.unpinned
            return not (clean or held.ready or held.to_adopt or held.publication is not None)
        return (
            state.valid == held.valid
            and state.ready == held.ready
            and state.pending == held.pending
            and state.pinned_clean == held.pinned_clean
            and state.unpinned == held.unpinned
            and state.to_adopt == held.to_adopt
            and state.recorded == held.recorded
            and state.publication == held.publication
        )

    def _same_residency(self, state: State) -> bool:
        copies = {self._name(key)[1]: blocks for key, blocks in self._view.copies()}
        spills = self._view.spills()
        return (
            copies == state.copies
            and self._view.unsent() == state.unsent
            and [spill.id for spill in spills] == list(state.transfers)
            and all(
                self._same_transfer(*both)
                for both in zip(spills, state.transfers.values(), strict=True)
            )
            and self._same_readers(state)
        )

    def _same_transfer(self, spill: Spill, transfer: Transfer) -> bool:
        return (
            (self._numbers[spill.key], spill.page) == (transfer.request, transfer.page)
            and spill.host_block.block_id == transfer.host_block
            and ids(spill.resident_blocks) == transfer.blocks
            and spill.expected == transfer.expected
            and spill.done == transfer.done
            and ids(spill.lease or ()) == (transfer.holding.lease or [])
            and (spill.lease is None or spill.lease_cached == transfer.holding.host_cached)
        )

    def _same_readers(self, state: State) -> bool:
        readers = {(block, self._numbers[key], page) for block, key, page in self._view.readers()}
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

    def __init__(self, pool: PoolView, name: Name) -> None:
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
            pool.num_free() == len(model.free)
            and pool.free() == model.free
            and pool.counts() == model.counts
            and pool.watched() == model.watched
            and self._keys == model.keys
            and (self._found == model.index or self._found_now() == model.index)
        )

    def _read_hashes(self) -> None:
        hashes, size = self._pool.hashes(), self._pool.num_keys()
        if hashes == self._hashes and size == self._size:
            return
        name = self._name
        self._hashes, self._size = hashes, size
        self._keys = {block: name(key) for block, key in enumerate(hashes) if key is not None}
        self._found = self._found_now()

    def _found_now(self) -> dict[tuple[int, int], list[int]]:
        return {self._name(key): found for key, found in self._pool.found()}
