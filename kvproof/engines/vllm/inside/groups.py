"""The engine's own descriptions of a cache's groups, one function for each kind of cache.

There are no tensors, so no GPU. Exported files hold the one that they need.
"""

from __future__ import annotations

import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    HiSparseHotSpec,
    HiSparseResidentSpec,
    KVCacheConfig,
    KVCacheGroupRole,
    KVCacheGroupSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)


def full_groups(block_size: int) -> list[KVCacheGroupSpec]:
    full = FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return [KVCacheGroupSpec(["full"], full)]


def sliding_groups(block_size: int, window: int) -> list[KVCacheGroupSpec]:
    sliding = SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=1,
        dtype=torch.float32,
        sliding_window=window,
    )
    return [*full_groups(block_size), KVCacheGroupSpec(["sliding"], sliding)]


def mamba_groups(block_size: int) -> list[KVCacheGroupSpec]:
    groups = full_groups(block_size)
    mamba = MambaSpec(
        block_size=block_size,
        shapes=((1,),),
        dtypes=(torch.float32,),
        page_size_padded=groups[0].kv_cache_spec.page_size_bytes,
        mamba_cache_mode="align",
    )
    return [*groups, KVCacheGroupSpec(["mamba"], mamba)]


def hisparse_groups(
    block_size: int, resident_groups: int = 1, hot_blocks: int = 1
) -> list[KVCacheGroupSpec]:
    mla = MLAAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    page = {"block_size": block_size, "page_size": mla.page_size_bytes}
    resident = HiSparseResidentSpec(**page)
    hot = HiSparseHotSpec(**page, blocks_per_request=hot_blocks)
    role, numbers = KVCacheGroupRole, range(resident_groups)
    return [
        KVCacheGroupSpec(["source"], mla, role=role.HISPARSE_SOURCE, host_resident=True),
        KVCacheGroupSpec(["indexer"], mla, role=role.HISPARSE_INDEXER),
        *(KVCacheGroupSpec([f"resident{n}"], resident, enable_kv_transfer=False) for n in numbers),
        *(KVCacheGroupSpec([f"hot{n}"], hot, enable_kv_transfer=False) for n in numbers),
    ]


def cache_of(
    groups: list[KVCacheGroupSpec], num_blocks: int, num_host_blocks: int = 0
) -> KVCacheConfig:
    hosts = {"hisparse_host_num_blocks": num_host_blocks} if num_host_blocks else {}
    return KVCacheConfig(
        num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups, **hosts
    )
