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


def configured(setup: SchedulerSetup, transfer: KVTransferConfig | None) -> SimpleNamespace:
    """What a scheduler reads of a ``VllmConfig``, which itself needs a model and a device."""
    batches = 2 if setup.async_scheduling else 1
    return SimpleNamespace(
        scheduler_config=_scheduler_config(setup),
        cache_config=_cache_config(setup),
        model_config=_model_config(setup),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1,
            tensor_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            data_parallel_size=1,
            data_parallel_index=0,
        ),
        observability_config=SimpleNamespace(
            kv_cache_metrics=False,
            enable_mfu_metrics=False,
            enable_logging_iteration_details=False,
            per_request_spec_decode_metrics="none",
        ),
        attention_config=SimpleNamespace(hisparse_config=object() if setup.hisparse else None),
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=_no_encoder_cache),
        kv_transfer_config=transfer,
        ec_transfer_config=None,
        kv_events_config=None,
        lora_config=None,
        speculative_config=None,
        is_mm_encoder_only=False,
        use_v2_model_runner=True,
        max_concurrent_batches=batches,
        max_in_flight_tokens=batches * setup.max_num_batched_tokens,
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
    )


def _scheduler_config(setup: SchedulerSetup) -> SimpleNamespace:
    blocks = setup.watermark_blocks
    return SimpleNamespace(
        policy=setup.policy,
        async_scheduling=setup.async_scheduling,
        max_num_seqs=setup.max_num_seqs,
        max_num_active_seqs=None,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        max_num_scheduled_tokens=None,
        long_prefill_token_threshold=setup.long_prefill_threshold,
        long_prefill_token_threshold_adaptive=False,
        prefill_schedule_interval=1,
        enable_chunked_prefill=True,
        disable_chunked_mm_input=False,
        disable_hybrid_kv_cache_manager=False,
        scheduler_reserve_full_isl=setup.reserve_full_isl,
        # The engine rounds down: half a block more says exactly so many.
        watermark=(blocks + 0.5) / setup.num_blocks if blocks else 0.0,
    )


def _cache_config(setup: SchedulerSetup) -> SimpleNamespace:
    return SimpleNamespace(
        block_size=setup.block_size,
        num_gpu_blocks=setup.num_blocks,
        enable_prefix_caching=setup.prefix_caching,
        prefix_match_unit=None,
        mamba_cache_mode="align" if setup.cache == "mamba" else "none",
        enable_mamba_shared_prefix_checkpoint=False,
        enable_mamba_fine_grained_prefix_cache=False,
    )


def _model_config(setup: SchedulerSetup) -> SimpleNamespace:
    return SimpleNamespace(
        max_model_len=setup.max_model_len,
        runner_type="generate",
        uses_mrope=False,
        is_diffusion=False,
        is_encoder_decoder=False,
        is_multimodal_model=False,
        supports_multimodal_inputs=False,
        multimodal_config=None,
        return_sampling_mask=False,
        enable_return_routed_experts=False,
    )


def transfer_config(setup: SchedulerSetup) -> KVTransferConfig | None:
    """The connectors that a user would configure for these caches."""
    if setup.hisparse:
        return hisparse_beside_store(setup) if setup.external_store else hisparse_alone(setup)
    return store_alone(setup) if setup.external_store else None


def store_alone(setup: SchedulerSetup) -> KVTransferConfig:
    return KVTransferConfig(
        **STORE, **ROLE, kv_load_failure_policy=setup.load_failure, engine_id="kvproof"
    )


def hisparse_alone(setup: SchedulerSetup) -> KVTransferConfig:
    return KVTransferConfig(
        **HISPARSE, **ROLE, kv_load_failure_policy=setup.load_failure, engine_id="kvproof"
    )


def hisparse_beside_store(setup: SchedulerSetup) -> KVTransferConfig:
    return KVTransferConfig(
        kv_connector="MultiConnector",
        kv_connector_extra_config={"connectors": [{**HISPARSE, **ROLE}, {**STORE, **ROLE}]},
        **ROLE,
        kv_load_failure_policy=setup.load_failure,
        engine_id="kvproof",
    )


def _no_encoder_cache() -> None:
    """No encoder cache manager is configured, so the engine takes its own."""


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
    The host needs a block for every page, its null block and a copy-on-write tail.  0.30.0
    checks less for HiSparse (no resident pages, no hot region, no host pool): there, too, this
    is what a request needs.
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
