"""What an engine's scheduler and connectors read of a ``VllmConfig``, as a plain namespace.

With the values of a real one, which itself needs a model and a GPU. It imports nothing of the
engine, so that an exported file can have the values of its own case.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from model.scheduler.setup import SchedulerSetup


def configured(setup: SchedulerSetup, transfer: Any) -> SimpleNamespace:
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


def _no_encoder_cache() -> None:
    """No encoder cache manager is configured, so the engine takes its own."""


def sampling_parameters(max_tokens: int) -> SimpleNamespace:
    """What a request and a scheduler read of ``SamplingParams``."""
    return SimpleNamespace(
        max_tokens=max_tokens,
        min_tokens=0,
        eos_token_id=None,
        stop_token_ids=(),
        repetition_detection=None,
        num_logprobs=None,
        extra_args=None,
        skip_reading_prefix_cache=None,
        structured_outputs=None,
    )
