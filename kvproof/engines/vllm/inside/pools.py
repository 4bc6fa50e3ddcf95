"""The pools of a running scheduler, read whole: counts, queue, hashes, and every holder."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from kvproof.engines.vllm.inside.view import EngineView, PoolView
from model.scheduler.plan import PoolState

Holder = tuple[Any, str]
"""(block, what holds it)."""


def pool_states(view: EngineView, deferred: Iterable[Any]) -> tuple[PoolState, ...]:
    """The GPU pool, and with HiSparse the host pool; ``deferred`` blocks are yet to be freed."""
    on_gpu: dict[int, list[str]] = defaultdict(list)
    on_host: dict[int, list[str]] = defaultdict(list)
    for block, holder in _holders(view, deferred):
        if not block.is_null:
            holders = on_host if view.is_on_host(block) else on_gpu
            holders[block.block_id].append(holder)
    copies = frozenset([block for _, blocks in view.copies() for block in blocks])
    gpu = _state("gpu", view.gpu, on_gpu, copies)
    return (gpu,) if view.host is None else (gpu, _state("host", view.host, on_host, frozenset()))


def _state(
    name: str, pool: PoolView, holders: dict[int, list[str]], copies: frozenset[int]
) -> PoolState:
    return PoolState(
        name=name,
        counts=tuple(pool.counts()),
        free=tuple(pool.free()),
        num_free=pool.num_free(),
        holders={block: tuple(who) for block, who in holders.items()},
        keyed={block: key for block, key in enumerate(pool.hashes()) if key is not None},
        found={block: key for key, blocks in pool.found() for block in blocks},
        null=pool.null,
        copies=copies,
    )


def _holders(view: EngineView, deferred: Iterable[Any]) -> Iterator[Holder]:
    for group, key, row in view.tables():
        holder = "a copy on write" if key is None else f"request {key} (group {group})"
        yield from ((block, holder) for block in row)
    yield from ((block, "a deferred release") for block in deferred)
    if view.hisparse:
        yield from _residency_holders(view)


def _residency_holders(view: EngineView) -> Iterator[Holder]:
    for key, row in view.resident_tables():
        state = view.residency(key)
        unpinned = () if state is None else state.unpinned
        for page, block in enumerate(row):
            if page not in unpinned:
                yield block, f"request {key} (page {page})"
    leases: dict[int, Iterable[Any]] = {}
    for spill in view.spills():
        yield spill.host_block, f"transfer {spill.id}"
        for block in spill.resident_blocks:
            yield block, f"transfer {spill.id}"
        leases[id(spill.publication)] = spill.lease or ()
    for blocks in leases.values():
        yield from ((block, "a publication to come") for block in blocks)
    for pair in view.retained_copies().values():
        yield from ((block, "a host copy") for block in pair)
