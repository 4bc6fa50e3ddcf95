"""What an engine is configured with, for its scheduler and its KV cache.

A plain namespace of what they read, with the values of a real ``VllmConfig``: that one needs a
model and a GPU. What a single setup needs is a function of its own, for exported files.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from vllm.config.kv_transfer import KVTransferConfig
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

from kvproof.engines.vllm.inside.groups import (
    cache_of,
    full_groups,
    hisparse_groups,
    mamba_groups,
    sliding_groups,
)
from kvproof.engines.vllm.inside.settings import configured
from kvproof.engines.vllm.inside.store import StoreConnector
from model.scheduler.setup import Minimum, NotStartableError, SchedulerSetup

HISPARSE = {"kv_connector": "HiSparseConnector", "kv_connector_extra_config": {"host_pool_gib": 1}}
STORE = {
    "kv_connector": "StoreConnector",
    "kv_connector_module_path": StoreConnector.__module__,
}
ROLE = {"kv_role": "kv_both", "kv_buffer_device": "cpu"}


def engine_config(setup: SchedulerSetup) -> SimpleNamespace:
    """What the scheduler and the connectors read of a ``VllmConfig``, with a real one's values."""
    return configured(setup, transfer_config(setup))


def transfer_config(setup: SchedulerSetup) -> KVTransferConfig | None:
    """The connectors that a user would configure for these caches."""
    policy = setup.load_failure
    if setup.hisparse:
        return hisparse_beside_store(policy) if setup.external_store else hisparse_alone(policy)
    return store_alone(policy) if setup.external_store else None


def store_alone(load_failure: str) -> KVTransferConfig:
    return KVTransferConfig(
        **STORE, **ROLE, kv_load_failure_policy=load_failure, engine_id="kvproof"
    )


def hisparse_alone(load_failure: str) -> KVTransferConfig:
    return KVTransferConfig(
        **HISPARSE, **ROLE, kv_load_failure_policy=load_failure, engine_id="kvproof"
    )


def hisparse_beside_store(load_failure: str) -> KVTransferConfig:
    return KVTransferConfig(
        kv_connector="MultiConnector",
        kv_connector_extra_config={"connectors": [{**HISPARSE, **ROLE}, {**STORE, **ROLE}]},
        **ROLE,
        kv_load_failure_policy=load_failure,
        engine_id="kvproof",
    )


def cache_config(setup: SchedulerSetup) -> KVCacheConfig:
    return cache_of(groups_of(setup), setup.num_blocks, setup.num_host_blocks)


def groups_of(setup: SchedulerSetup) -> list[KVCacheGroupSpec]:
    if setup.cache == "sliding":
        return sliding_groups(setup.block_size, setup.sliding_window)
    if setup.cache == "mamba":
        return mamba_groups(setup.block_size)
    if setup.hisparse:
        return hisparse_groups(setup.block_size, setup.num_resident_groups, setup.hot_blocks)
    return full_groups(setup.block_size)


def startup_minimum(setup: SchedulerSetup) -> Minimum:
    """The engine's own start-up check, in blocks: the need of one request of the longest length.

    The sum over the groups of what each group's own specification asks for, and the null block.
    The host needs a block for every page, its null block and a copy-on-write tail.  The first
    release checks less for HiSparse (no resident pages, no hot region, no host pool): there, too,
    this is what a request needs.
    """
    config = engine_config(setup)
    groups = [group for group in groups_of(setup) if not group.host_resident]
    gpu = sum(_most_blocks(group.kv_cache_spec, config) for group in groups) + 1
    host = -(-setup.max_model_len // setup.block_size) + 2 if setup.hisparse else 0
    return Minimum(gpu, host)


def _most_blocks(spec: Any, config: Any) -> int:
    """Blocks that one request holds at most in a group."""
    bound = getattr(spec, "max_admission_blocks_per_request", None)
    if bound is not None:
        return int(
            bound(
                max_in_flight_tokens=config.max_in_flight_tokens,
                max_model_len=config.model_config.max_model_len,
            )
        )
    return int(-(-spec.max_memory_usage_bytes(config) // spec.page_size_bytes))


def check_startable(setup: SchedulerSetup) -> None:
    """Raise ``NotStartableError`` for a setup that the engine refuses when it starts."""
    least = startup_minimum(setup)
    if setup.num_blocks < least.gpu_blocks:
        raise NotStartableError(f"{setup.num_blocks} blocks; at least {least.gpu_blocks} needed")
    if setup.num_host_blocks < least.host_blocks:
        raise NotStartableError(
            f"{setup.num_host_blocks} host blocks; at least {least.host_blocks} needed"
        )
    if setup.hisparse and not setup.reserve_full_isl:
        raise NotStartableError("HiSparse requires that a request's whole prompt fits")
    if setup.cache == "mamba" and not setup.prefix_caching:
        raise NotStartableError("without a prefix cache the engine leaves Mamba's align mode")
    if setup.long_prefill_threshold > setup.max_model_len:
        raise NotStartableError("long_prefill_threshold must be at most max_model_len")
    if setup.max_num_batched_tokens < setup.max_num_seqs:
        raise NotStartableError("max_num_batched_tokens must be at least max_num_seqs")
