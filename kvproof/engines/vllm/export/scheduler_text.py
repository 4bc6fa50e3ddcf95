"""The fixed parts of an exported file of whole engine steps: it imports vLLM, this module does not.

Lines between ``#if FLAG`` and ``#fi`` are kept where a flag is set; ``a|b`` is either, ``!a`` none.
``$name`` is filled in.
"""

from __future__ import annotations

HEAD = '''\
"""$about

$rule

Written by kvproof from a trace$origin.
It needs vLLM and pytest, and no GPU:
    VLLM_LOGGING_LEVEL=ERROR pytest THIS_FILE
The scheduler is the real one. The test comes first; below it are workers that do what each step
says and sample the tokens that the test gives. They print what was scheduled and what came of it,
which pytest shows when the test fails.
"""
'''

IMPORTS = """\
import sys
#if accounting
from collections import Counter
#fi
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import MagicMock

# Code for GPUs that the scheduler's modules import and never use.
for module in (
    "vllm.model_executor.layers.fused_moe.routed_experts_capturer",
#if hisparse
    "vllm.distributed.kv_transfer.kv_connector.v1.hisparse.worker",
#fi
):
    try:
        import_module(module)
    except ImportError:
        sys.modules[module] = MagicMock()

import torch
#if connector
from vllm.config.kv_transfer import KVTransferConfig
#fi
#if store
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
#fi
#if hisparse
from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import (
    HiSparseConnectorWorkerMetadata,
)
#fi
#if both
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorWorkerMetadata,
)
#fi
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
#if async
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
#fi
#if !async
from vllm.v1.core.sched.scheduler import Scheduler
#fi
#if hisparse&checked&!debt
from vllm.v1.hisparse.coordinator import get_hisparse_coordinator
#fi
from vllm.v1.kv_cache_interface import (
#if !hisparse
    FullAttentionSpec,
#fi
#if hisparse
    HiSparseHotSpec,
    HiSparseResidentSpec,
#fi
    KVCacheConfig,
#if hisparse
    KVCacheGroupRole,
#fi
    KVCacheGroupSpec,
#if mamba
    MambaSpec,
#fi
#if hisparse
    MLAAttentionSpec,
#fi
#if sliding
    SlidingWindowSpec,
#fi
)
#if connector
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
#fi
#if !connector
from vllm.v1.outputs import ModelRunnerOutput
#fi
#if abort
from vllm.v1.request import Request, RequestStatus
#fi
#if !abort
from vllm.v1.request import Request
#fi
"""

CONSTANTS = """\
init_none_hash(sha256)

BLOCK_SIZE = $block_size
NUM_BLOCKS = $num_blocks  # with the null block
#if hisparse
NUM_HOST_BLOCKS = $num_host_blocks  # with the null block
#fi
MAX_MODEL_LEN = $max_model_len
MAX_NUM_BATCHED_TOKENS = $max_num_batched_tokens
#if sliding
SLIDING_WINDOW = $sliding_window
#fi
STEPS_IN_FLIGHT = $steps_in_flight
#if drain
PATIENCE = $patience  # steps within which some request gets a token, even if each starts anew
#fi
#if tables&hisparse
HOST, INDEXER, RESIDENT = 0, 1, $resident
#fi
"""

CACHE = """\
def kv_cache_config():
#if hisparse
    mla = MLAAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    page = {"block_size": BLOCK_SIZE, "page_size": mla.page_size_bytes}
    resident = HiSparseResidentSpec(**page)
    hot = HiSparseHotSpec(**page, blocks_per_request=$hot_blocks)
    role = KVCacheGroupRole
#fi
#if !hisparse
    attention = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **attention)
#fi
#if sliding
    sliding = SlidingWindowSpec(
        block_size=BLOCK_SIZE, **attention, sliding_window=SLIDING_WINDOW
    )
#fi
#if mamba
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((1,),),
        dtypes=(torch.float32,),
        page_size_padded=full.page_size_bytes,
        mamba_cache_mode="align",
    )
#fi
    return KVCacheConfig(
        num_blocks=NUM_BLOCKS,
        kv_cache_tensors=[],
        kv_cache_groups=[
#if hisparse
            KVCacheGroupSpec(["source"], mla, role=role.HISPARSE_SOURCE, host_resident=True),
            KVCacheGroupSpec(["indexer"], mla, role=role.HISPARSE_INDEXER),
            $resident_groups
#fi
#if !hisparse
            KVCacheGroupSpec(["full"], full),
#fi
#if sliding
            KVCacheGroupSpec(["sliding"], sliding),
#fi
#if mamba
            KVCacheGroupSpec(["mamba"], mamba),
#fi
        ],
#if hisparse
        hisparse_host_num_blocks=NUM_HOST_BLOCKS,
#fi
    )
"""

CONFIGURATION = '''\
def vllm_config():
    """What the scheduler reads of a VllmConfig, which itself needs a model and a device."""
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            policy="$policy",
            async_scheduling=$async_scheduling,
            max_num_seqs=$max_num_seqs,
            max_num_active_seqs=None,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            max_num_scheduled_tokens=None,
            long_prefill_token_threshold=$long_prefill_threshold,
            long_prefill_token_threshold_adaptive=False,
            prefill_schedule_interval=1,
            enable_chunked_prefill=True,
            disable_chunked_mm_input=False,
            disable_hybrid_kv_cache_manager=False,
            scheduler_reserve_full_isl=$reserve_full_isl,
            watermark=$watermark,
        ),
        cache_config=SimpleNamespace(
            block_size=BLOCK_SIZE,
            num_gpu_blocks=NUM_BLOCKS,
            enable_prefix_caching=$prefix_caching,
            prefix_match_unit=None,
            mamba_cache_mode="$mamba_mode",
            enable_mamba_shared_prefix_checkpoint=False,
            enable_mamba_fine_grained_prefix_cache=False,
        ),
        model_config=SimpleNamespace(
            max_model_len=MAX_MODEL_LEN,
            runner_type="generate",
            uses_mrope=False,
            is_diffusion=False,
            is_encoder_decoder=False,
            is_multimodal_model=False,
            supports_multimodal_inputs=False,
            multimodal_config=None,
            return_sampling_mask=False,
            enable_return_routed_experts=False,
        ),
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
        attention_config=SimpleNamespace(hisparse_config=$hisparse_config),
        aux_output_config=SimpleNamespace(enabled=False),
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
#if both
        kv_transfer_config=KVTransferConfig(
            kv_connector="MultiConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "connectors": [
                    {
                        "kv_connector": "HiSparseConnector",
                        "kv_role": "kv_both",
                        "kv_connector_extra_config": {"host_pool_gib": 1},
                    },
                    {
                        "kv_connector": "Store",
                        "kv_connector_module_path": __name__,
                        "kv_role": "kv_both",
                    },
                ]
            },
            kv_load_failure_policy="$load_failure",
            kv_buffer_device="cpu",
            engine_id="test",
        ),
#fi
#if hisparse&!store
        kv_transfer_config=KVTransferConfig(
            kv_connector="HiSparseConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"host_pool_gib": 1},
            kv_buffer_device="cpu",
            engine_id="test",
        ),
#fi
#if store&!hisparse
        kv_transfer_config=KVTransferConfig(
            kv_connector="Store",
            kv_connector_module_path=__name__,
            kv_role="kv_both",
            kv_load_failure_policy="$load_failure",
            kv_buffer_device="cpu",
            engine_id="test",
        ),
#fi
#if !connector
        kv_transfer_config=None,
#fi
        ec_transfer_config=None,
        kv_events_config=None,
        lora_config=None,
        speculative_config=None,
        is_mm_encoder_only=False,
        use_v2_model_runner=True,
        max_concurrent_batches=STEPS_IN_FLIGHT,
        max_in_flight_tokens=STEPS_IN_FLIGHT * MAX_NUM_BATCHED_TOKENS,
        num_speculative_tokens=0,
        num_lookahead_tokens=0,
        num_prefill_lookahead_tokens=0,
        num_hash_lookahead_tokens=0,
    )


def new_scheduler():
    return $scheduler(
        vllm_config=vllm_config(),
        kv_cache_config=kv_cache_config(),
        structured_output_manager=SimpleNamespace(accept_tokens=lambda request, tokens: True),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda model_config: False),
    )


def new_request(request_id, prompt, max_tokens, priority, cache_salt):
    parameters = SimpleNamespace(
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
    return Request(
        request_id,
        prompt,
        parameters,
        None,
        arrival_time=float(request_id),
        priority=priority,
        cache_salt=cache_salt,
        block_hasher=$hasher,
    )
'''
