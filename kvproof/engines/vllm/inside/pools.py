"""The pools of a running scheduler, read whole: counts, queue, hashes, and every holder.

It reads attributes of the engine's objects and imports nothing of the engine.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from model.scheduler.plan import PoolState

Holder = tuple[Any, str]
"""(block, what holds it)."""


def pool_states(scheduler: Any, coordinator: Any) -> tuple[PoolState, ...]:
    """The GPU pool, and with HiSparse the host pool."""
    pools = {"gpu": scheduler.kv_cache_manager.block_pool}
    if coordinator is not None:
        pools["host"] = coordinator.get_host_block_pool()
    holders: dict[str, dict[int, list[str]]] = {name: defaultdict(list) for name in pools}
    names = {id(pool): name for name, pool in pools.items()}
    single = next(iter(pools.values()))
    for block, holder in _holders(scheduler, coordinator):
        if not block.is_null:
            name = names[id(getattr(block, "pool", single))]
            holders[name][block.block_id].append(holder)
    copies = {"gpu": _copies(coordinator)}
    return tuple([
        _state(name, pool, holders[name], copies.get(name, frozenset()))
        for name, pool in pools.items()
    ])  # fmt: skip


def _copies(coordinator: Any) -> frozenset[int]:
    if coordinator is None:
        return frozenset()
    return frozenset(block.block_id for blocks in coordinator.copies.values() for block in blocks)


def _state(
    name: str, pool: Any, holders: dict[int, list[str]], copies: frozenset[int]
) -> PoolState:
    found: dict[int, object] = {}
    for key, blocks in pool.cached_block_hash_to_block._cache.items():
        for block in blocks.values() if isinstance(blocks, dict) else (blocks,):
            found[block.block_id] = key
    return PoolState(
        name=name,
        counts=tuple([block.ref_cnt for block in pool.blocks]),
        free=tuple([block.block_id for block in pool.free_block_queue.get_all_free_blocks()]),
        num_free=pool.get_num_free_blocks(),
        holders={block: tuple(who) for block, who in holders.items()},
        keyed={b.block_id: b.block_hash for b in pool.blocks if b.block_hash is not None},
        found=found,
        null=pool.null_block.block_id,
        copies=copies,
    )


def _holders(scheduler: Any, coordinator: Any) -> Iterator[Holder]:
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    resident = coordinator.resident_managers if coordinator is not None else ()
    for group, manager in enumerate(managers):
        if manager not in resident:
            for key, row in manager.req_to_blocks.items():
                yield from ((block, f"request {key} (group {group})") for block in row)
        for pair in getattr(manager, "_pending_cow_copies", ()):
            yield from ((block, "a copy on write") for block in pair)
    for _, blocks in scheduler.deferred_frees:
        yield from ((block, "a deferred release") for block in blocks)
    if coordinator is not None:
        yield from _residency_holders(coordinator)


def _residency_holders(coordinator: Any) -> Iterator[Holder]:
    for manager in coordinator.resident_managers:
        read = getattr(manager, "get_residency_row", None) or manager.req_to_blocks.get
        for key in manager.req_to_blocks:
            state = coordinator.request_states.get(key)
            unpinned = state.unpinned_pages if state is not None else ()
            for page, block in enumerate(read(key)):
                if page not in unpinned:
                    yield block, f"request {key} (page {page})"
    leases: dict[int, Any] = {}
    for spill in coordinator.pending_spills.values():
        yield spill.host_block, f"transfer {spill.transfer_id}"
        for block in spill.resident_blocks:
            yield block, f"transfer {spill.transfer_id}"
        publication = spill.request_state.publication
        leases[id(publication)] = getattr(publication, "detached_blocks", None) or ()
    for blocks in leases.values():
        yield from ((block, "a publication to come") for block in blocks)
    for pair in coordinator._retained_copies.values():
        yield from ((block, "a host copy") for block in pair)
