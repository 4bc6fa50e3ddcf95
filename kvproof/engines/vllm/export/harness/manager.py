"""What an exported sequence of calls of the KV-cache manager needs, beside the calls themselves."""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock, get_request_block_hasher, init_none_hash
from vllm.v1.hisparse.coordinator import HiSparseCoordinator
from vllm.v1.kv_cache_interface import KVCacheGroupSpec
from vllm.v1.request import Request

from kvproof.engines.vllm.inside.groups import cache_of
from kvproof.engines.vllm.inside.settings import sampling_parameters


def new_manager(
    groups: list[KVCacheGroupSpec],
    *,
    num_blocks: int,
    num_host_blocks: int = 0,
    max_model_len: int,
    max_in_flight_tokens: int,
    prefix_caching: bool = True,
    watermark_blocks: int = 0,
) -> KVCacheManager:
    init_none_hash(sha256)
    block_size = groups[0].kv_cache_spec.block_size
    return KVCacheManager(
        cache_of(groups, num_blocks, num_host_blocks),
        max_model_len=max_model_len,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        max_in_flight_tokens=max_in_flight_tokens,
        enable_caching=prefix_caching,
        # The engine rounds down: half a block more says exactly so many.
        watermark=(watermark_blocks + 0.5) / num_blocks if watermark_blocks else 0.0,
    )


def new_request(
    request_id: str, tokens: list[int], block_size: int, max_tokens: int, cache_salt: str = ""
) -> Request:
    return Request(
        request_id,
        tokens,
        sampling_parameters(max_tokens),
        None,
        arrival_time=0.0,
        cache_salt=cache_salt or None,
        block_hasher=get_request_block_hasher(block_size, sha256),
    )


def end_step(coordinator: HiSparseCoordinator, scheduled: list[tuple[str, int]]) -> list[int]:
    """Hand a step to the workers; returns the ids of the host writes that it carries.

    ``scheduled`` holds the id of each request of the step and its tokens computed after it.
    """
    if hasattr(coordinator, "advance_scheduled"):  # else a part of allocate_slots
        coordinator.advance_scheduled(scheduled)
    command = coordinator.build_offload_command()
    if hasattr(coordinator, "take_residency_updates"):
        coordinator.take_residency_updates(request_id for request_id, _ in scheduled)
    else:
        coordinator.take_block_table_updates()
    return [transfer.transfer_id for transfer in command.page_transfers]


def expect(step: int, seen: object, recorded: object) -> None:
    """Stop where this vLLM answers differently: later calls would be no engine's calls."""
    if seen != recorded:
        raise SkipTest(f"step {step} goes another way here: {seen} instead of {recorded}")


def metered(manager: KVCacheManager) -> tuple[list[int], list[KVCacheBlock]]:
    """Note what the admission predictor answers, and which blocks the pool hands out."""
    promised: list[int] = []
    taken: list[KVCacheBlock] = []
    predict = manager.coordinator.get_num_blocks_to_allocate
    take = manager.block_pool.get_new_blocks

    def noted_predict(*args: Any, **kwargs: Any) -> int:
        promised.append(predict(*args, **kwargs))
        return promised[-1]

    def noted_take(num_blocks: int) -> list[KVCacheBlock]:
        blocks: list[KVCacheBlock] = take(num_blocks)
        taken.extend(blocks)
        return blocks

    manager.coordinator.get_num_blocks_to_allocate = noted_predict
    manager.block_pool.get_new_blocks = noted_take
    return promised, taken
