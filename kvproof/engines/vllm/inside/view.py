"""The one reader of an engine's insides: pools, block tables and residency, as plain values.

What is not for others to read in the engine's objects is read here and nowhere else, so that a
release that moves it is met in one file. It imports nothing of the engine; what it needs is
checked when it is made.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from kvproof.engines.vllm.inside.missing import require

Name = Callable[[Any], tuple[int, int]]
"""A key of the engine's hash map → (group, content)."""
ROWS_BEFORE_RESIDENT = 2
"""Host source and indexer are the first groups of a HiSparse engine."""


class Residency(NamedTuple):
    """Where the pages of a request are, as its engine keeps it: not to be changed."""

    valid: Set[int]
    ready: int
    pending: Mapping[int, int]
    pinned_clean: Set[int]
    unpinned: Set[int]
    to_adopt: int
    recorded: int
    publication: int | None


class Spill(NamedTuple):
    """A page on its way to the host."""

    id: int
    key: str
    """The engine's id of the request."""
    page: int
    host_block: Any
    resident_blocks: tuple[Any, ...]
    expected: int
    done: int
    publication: Any
    """What waits for the transfer, the engine's own object; None if nothing does."""
    lease: tuple[Any, ...] | None
    """Host blocks that a request which ended left to its publication."""
    lease_cached: int


class PoolView:
    """One block pool."""

    __slots__ = ("pool",)

    def __init__(self, pool: Any) -> None:
        require(
            pool, "blocks", "free_block_queue", "get_num_free_blocks", "null_block",
            "cached_block_hash_to_block", "_reuse_watchers",
        )  # fmt: skip
        require(pool.free_block_queue, "get_all_free_blocks")
        require(pool.cached_block_hash_to_block, "_cache")
        require(pool.null_block, "block_id", "ref_cnt", "block_hash", "is_null")
        self.pool = pool

    def free(self) -> list[int]:
        """The free queue, first to be handed out first."""
        return ids(self.pool.free_block_queue.get_all_free_blocks())

    def num_free(self) -> int:
        return int(self.pool.get_num_free_blocks())

    def counts(self) -> list[int]:
        """References of each block."""
        return [block.ref_cnt for block in self.pool.blocks]

    def hashes(self) -> list[Any]:
        """Key of each block, None for a block without."""
        return [block.block_hash for block in self.pool.blocks]

    def num_keys(self) -> int:
        """Keys in the hash map."""
        return len(self.pool.cached_block_hash_to_block._cache)

    def found(self) -> list[tuple[Any, list[int]]]:
        """What the hash map finds: the blocks under each key, oldest first."""
        return [
            (key, list(found) if type(found) is dict else [found.block_id])
            for key, found in self.pool.cached_block_hash_to_block._cache.items()
        ]

    def watched(self) -> Set[int]:
        """Free blocks that somebody still reads."""
        watched: Set[int] = self.pool._reuse_watchers.keys()
        return watched

    @property
    def null(self) -> int:
        return int(self.pool.null_block.block_id)


class EngineView:
    """One KV-cache manager, with its HiSparse coordinator if it has one."""

    def __init__(self, manager: Any, coordinator: Any) -> None:
        require(manager, "coordinator", "block_pool")
        require(manager.coordinator, "single_type_managers")
        self._managers = manager.coordinator.single_type_managers
        for each in self._managers:
            require(each, "req_to_blocks", "num_cached_block", "kv_cache_group_id", "block_pool")
        self._coordinator = coordinator
        self.hisparse = coordinator is not None
        self.gpu = PoolView(manager.block_pool)
        self.host: PoolView | None = None
        self._residents: tuple[Any, ...] = ()
        self._hot: tuple[Any, ...] = ()
        self._resident_readers: list[Callable[[str], Any]] | None = None
        if self.hisparse:
            self._take_note_of_hisparse(coordinator)
        self._indexer = self._managers[1 if self.hisparse else 0]
        self.indexer_group = int(self._indexer.kv_cache_group_id)

    def _take_note_of_hisparse(self, coordinator: Any) -> None:
        require(
            coordinator, "resident_managers", "hot_managers", "request_states", "pending_spills",
            "spills_to_send", "copies", "_owners", "_retained_copies",
        )  # fmt: skip
        self.host = PoolView(self._managers[0].block_pool)
        self._residents, self._hot = coordinator.resident_managers, coordinator.hot_managers
        for manager in self._hot:
            require(manager, "hot_required")
        if hasattr(coordinator, "take_residency_updates"):
            for manager in self._residents:
                require(manager, "get_residency_row")
            self._resident_readers = [each.get_residency_row for each in self._residents]

    # Blocks of requests

    def rows(self, key: str) -> list[list[int]]:
        """A request's block table: a row for each group."""
        return [ids(manager.req_to_blocks.get(key, ())) for manager in self._managers]

    def resident_rows(self, key: str, rows: list[list[int]]) -> list[list[int]]:
        """What is read of each resident group: its row of the block table, where there is nothing
        beside it."""
        if self._resident_readers is None:
            return rows[ROWS_BEFORE_RESIDENT : ROWS_BEFORE_RESIDENT + len(self._residents)]
        return [ids(read(key)) for read in self._resident_readers]

    def num_holding(self) -> int:
        """Requests that hold blocks."""
        return sum(1 for row in self._indexer.req_to_blocks.values() if row)

    def indexer_cached(self, key: str) -> int:
        """Pages of the indexer's row that were given their hashes."""
        return int(self._indexer.num_cached_block.get(key, 0))

    def host_cached(self, key: str) -> int:
        return int(self._managers[0].num_cached_block.get(key, 0))

    def wants_hot(self, key: str) -> bool:
        return any(key in manager.hot_required for manager in self._hot)

    def num_free_of_hit(self, blocks: Any) -> int:
        """Blocks of a hit, in the indexer's group, that nobody holds."""
        return sum(block.ref_cnt == 0 for block in blocks.blocks[self.indexer_group])

    # HiSparse

    def residency(self, key: str) -> Residency | None:
        state = self._coordinator.request_states.get(key) if self.hisparse else None
        if state is None:
            return None
        waiting = state.publication
        return Residency(
            state.valid_pages,
            state.ready_prefix_pages,
            state.pending_pages,
            state.pinned_clean,
            state.unpinned_pages,
            getattr(state, "pages_to_adopt", 0),
            state.copies_recorded_blocks,
            None if waiting is None else waiting.num_pages,
        )

    def spills(self) -> list[Spill]:
        """Transfers that the workers have not completed, oldest first."""
        if not self.hisparse:
            return []
        return [_spill(*entry) for entry in self._coordinator.pending_spills.items()]

    def spill_ids(self) -> tuple[int, ...]:
        return tuple(self._coordinator.pending_spills) if self.hisparse else ()

    def page_of(self, transfer: int) -> tuple[str, int]:
        """The engine's id of the request, and the page, that a transfer in flight is about."""
        key, page = self._coordinator.pending_spills[transfer].page
        return key, page

    def unsent(self) -> list[int]:
        """Transfers that the next step sends."""
        if not self.hisparse:
            return []
        return [transfer.transfer_id for transfer in self._coordinator.spills_to_send]

    def copies(self) -> list[tuple[Any, list[int]]]:
        """Blocks of the GPU that hold what the host has under a key."""
        if not self.hisparse:
            return []
        return [(key, ids(blocks)) for key, blocks in self._coordinator.copies.items()]

    def readers(self) -> Iterator[tuple[int, str, int]]:
        """(block, request, page) for every page that is read and not pinned."""
        owners = self._coordinator._owners.items() if self.hisparse else ()
        return ((block, key, page) for block, pages in owners for key, page in pages)

    def retained_copies(self) -> Mapping[int, tuple[Any, Any]]:
        """Copies within the host that the workers have not reported, by destination."""
        copies: Mapping[int, tuple[Any, Any]] = (
            self._coordinator._retained_copies if self.hisparse else {}
        )
        return copies

    # For the audit: every row, as the engine's own blocks

    def tables(self) -> Iterator[tuple[int, str | None, Iterable[Any]]]:
        """(group, request, blocks) of every group that holds what is in its block table.

        Without a request, they are both blocks of a copy that no step has carried out.
        """
        for group, manager in enumerate(self._managers):
            if manager not in self._residents:
                for key, row in manager.req_to_blocks.items():
                    yield group, key, row
            for pair in getattr(manager, "_pending_cow_copies", ()):
                yield group, None, pair

    def resident_tables(self) -> Iterator[tuple[str, Iterable[Any]]]:
        """(request, blocks) of every resident group, as they are read."""
        for manager in self._residents:
            read = manager.req_to_blocks.get
            if self._resident_readers is not None:
                read = manager.get_residency_row
            for key in manager.req_to_blocks:
                yield key, read(key)

    def is_on_host(self, block: Any) -> bool:
        return self.host is not None and getattr(block, "pool", None) is self.host.pool


def _spill(number: int, spill: Any) -> Spill:
    key, page = spill.page
    waiting = spill.request_state.publication
    lease = getattr(waiting, "detached_blocks", None)
    return Spill(
        number,
        key,
        page,
        spill.host_block,
        spill.resident_blocks,
        spill.expected_worker_completions,
        spill.worker_completions,
        waiting,
        lease,
        waiting.num_cached_blocks if lease is not None else 0,
    )


def deferred_blocks(scheduler: Any) -> Iterator[Any]:
    """Blocks that are freed when the steps in flight have ended."""
    return (block for _, blocks in scheduler.deferred_frees for block in blocks)


def ids(blocks: Iterable[Any]) -> list[int]:
    return [block.block_id for block in blocks]
