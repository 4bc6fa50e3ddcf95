"""Rules that the pools of an engine show between two calls, each a predicate on vLLM's objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.hisparse.coordinator import HiSparseCoordinator


def pools_of(manager: KVCacheManager) -> list[BlockPool]:
    """The GPU pool, and the host pool of HiSparse."""
    pools = {id(manager.block_pool): manager.block_pool}
    for group in manager.coordinator.single_type_managers:
        pools[id(group.block_pool)] = group.block_pool
    return list(pools.values())


def check_conservation(manager: KVCacheManager) -> None:
    """Every block but the null block is free, once in the queue and unreferenced, or held."""
    for pool in pools_of(manager):
        queue = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        assert len(queue) == len(set(queue)), "a block is in the free queue twice"
        assert len(queue) == pool.get_num_free_blocks(), "the free count is not the queue's"
        for block in pool.blocks:
            if not block.is_null:
                assert (block.block_id in queue) == (block.ref_cnt == 0), block


def check_accounting(manager: KVCacheManager, held: Iterable[Iterable[KVCacheBlock]] = ()) -> None:
    """Every reference count equals the holders: the requests' rows, and what else is ``held``."""
    holders = Counter(id(block) for blocks in held for block in blocks)
    for group in manager.coordinator.single_type_managers:
        for row in group.req_to_blocks.values():
            holders.update(map(id, row))
    compare_references(manager, holders)


def check_hisparse_accounting(
    manager: KVCacheManager,
    coordinator: HiSparseCoordinator,
    held: Iterable[Iterable[KVCacheBlock]] = (),
) -> None:
    """Every reference count equals the holders: the requests' rows, but for resident pages that
    are not pinned, transfers under way, publications to come, and what else is ``held``."""
    holders = Counter(id(block) for blocks in held for block in blocks)
    for group in manager.coordinator.single_type_managers:
        if group not in coordinator.resident_managers:
            for row in group.req_to_blocks.values():
                holders.update(map(id, row))
            continue
        row_of = getattr(group, "get_residency_row", group.req_to_blocks.get)
        for request_id in group.req_to_blocks:
            state = coordinator.request_states.get(request_id)
            unpinned = () if state is None else state.unpinned_pages
            row = row_of(request_id)
            holders.update(id(block) for page, block in enumerate(row) if page not in unpinned)
    ended = {}
    for write in coordinator.pending_spills.values():
        holders.update(map(id, (write.host_block, *write.resident_blocks)))
        ended[id(write.request_state)] = write.request_state.publication
    for publication in ended.values():
        holders.update(map(id, getattr(publication, "detached_blocks", None) or ()))
    compare_references(manager, holders)


def compare_references(manager: KVCacheManager, holders: Counter[int]) -> None:
    for pool in pools_of(manager):
        for block in pool.blocks:
            if not block.is_null:
                assert block.ref_cnt == holders[id(block)], (block, holders[id(block)])


def check_hash_map(manager: KVCacheManager) -> None:
    """The hash map and the blocks' own hashes agree."""
    for pool in pools_of(manager):
        own = {(b.block_id, b.block_hash) for b in pool.blocks if b.block_hash is not None}
        mapped: set[tuple[int, bytes]] = set()
        for key, found in pool.cached_block_hash_to_block._cache.items():
            ids = list(found) if isinstance(found, dict) else [found.block_id]
            mapped.update((block_id, key) for block_id in ids)
        assert own == mapped


def check_quiescence(manager: KVCacheManager) -> None:
    """Everything has ended, so every block but the null block is free."""
    for pool in pools_of(manager):
        kept = [block for block in pool.blocks if block.ref_cnt and not block.is_null]
        assert not kept, f"all requests have ended, and these blocks are not free: {kept}"
        assert pool.get_num_free_blocks() == len(pool.blocks) - 1


def check_null_block(manager: KVCacheManager) -> None:
    """The null block is never free and has no hash."""
    for pool in pools_of(manager):
        assert not any(block.is_null for block in pool.free_block_queue.get_all_free_blocks())
        assert pool.null_block.block_hash is None


def check_host_blocks(manager: KVCacheManager) -> None:
    """Every page has a host block."""
    host, indexer = manager.coordinator.single_type_managers[:2]
    for request_id, row in indexer.req_to_blocks.items():
        host_row = host.req_to_blocks.get(request_id, ())
        assert len(host_row) == len(row)
        assert not any(block.is_null for block in host_row)
