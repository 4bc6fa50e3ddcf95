"""The engine's own predictor as functions of integers, beside those of the model.

Each pair has one guard and the same parameters, so that CrossHair can look for integers on which
the two differ. The engine's managers are made without their constructors: a predictor reads a few
numbers and the lengths of rows, nothing else. Only that lengths, and how many blocks of a hit are
free, are numbers here is ours; the code that runs is the engine's.

``KVPROOF_ENGINE_SOURCE`` names the folder of the release. Loaded by
``tests/invariants/test_crosshair.py``, in a process of its own.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvproof.engines.vllm.inside.loading import install
from model.admission import (
    INTEGERS,
    Demand,
    full_attention_need,
    gpu_need,
    host_shortage,
    hot_need,
    resident_need,
)
from model.manager.configuration import Configuration
from model.releases import DIALECTS
from model.startup import minimum_blocks

install(Path(os.environ["KVPROOF_ENGINE_SOURCE"]))

from vllm.utils.math_utils import cdiv  # noqa: E402 - the loader comes first
from vllm.v1 import kv_cache_interface as interface  # noqa: E402
from vllm.v1.core import kv_cache_planning, kv_cache_utils  # noqa: E402
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator  # noqa: E402
from vllm.v1.core.single_type_kv_cache_manager import (  # noqa: E402
    FullAttentionManager,
    HiSparseHotManager,
    HiSparseResidentManager,
    HiSparseSourceManager,
)

REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Row:
    """Blocks of which only the number counts."""

    length: int
    free: int = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, wanted: slice) -> Row:
        """The engine leaves out blocks before an attention window: none, without a window."""
        if wanted.start:
            raise IndexError(wanted.start)
        return self


def manager_of(kind: Any, block_size: int, held: int, running: bool, **more: Any) -> Any:
    """A manager that knows one request, which holds ``held`` blocks."""
    manager = object.__new__(kind)
    manager.block_size = block_size
    manager.max_admission_blocks_per_request = None
    manager._max_admission_blocks_per_request = None
    manager.req_to_blocks = {REQUEST: Row(held)}
    manager.num_cached_block = {REQUEST: 0} if running else {}
    for name, value in more.items():
        setattr(manager, name, value)
    return manager


def count_free(blocks: Row) -> int:
    return blocks.free


def ask(
    manager: Any, tokens: int, hit: Row | tuple[()], computed: int, capped: bool = False
) -> Any:
    """The predictor of one manager; all that is computed was computed here."""
    return manager.get_num_blocks_to_allocate(
        REQUEST, tokens, hit, computed, computed, tokens, apply_admission_cap=capped
    )


# Division


def model_ceil_div(number: int, divisor: int) -> int:
    assert divisor >= 1
    return int(INTEGERS.ceil_div(number, divisor))


def engine_ceil_div(number: int, divisor: int) -> int:
    assert divisor >= 1
    return int(cdiv(number, divisor))


def mutant_ceil_div(number: int, divisor: int) -> int:
    assert divisor >= 1
    return number // divisor + 1


# A group that keeps every page: the indexer's, and that of an engine without HiSparse


def legal_full(
    tokens: int, size: int, hit_pages: int, hit_free: int, held: int, running: bool
) -> bool:
    """Only a request that holds nothing has a hit, and the hit ends before the last token."""
    return (
        size >= 1
        and tokens >= 1
        and 0 <= hit_free <= hit_pages
        and hit_pages * size < tokens
        and held >= 0
        and (hit_pages == 0 if running else held == 0)
    )


def model_full(
    tokens: int, size: int, hit_pages: int, hit_free: int, held: int, running: bool
) -> int:
    assert legal_full(tokens, size, hit_pages, hit_free, held, running)
    return int(full_attention_need(INTEGERS.ceil_div(tokens, size), hit_pages, held, hit_free))


def engine_full(
    tokens: int, size: int, hit_pages: int, hit_free: int, held: int, running: bool
) -> int:
    assert legal_full(tokens, size, hit_pages, hit_free, held, running)
    manager = manager_of(
        FullAttentionManager, size, held, running, _get_num_evictable_blocks=count_free
    )
    hit = () if running else Row(hit_pages, hit_free)
    return int(ask(manager, tokens, hit, 0 if running else hit_pages * size))


def mutant_full(
    tokens: int, size: int, hit_pages: int, hit_free: int, held: int, running: bool
) -> int:
    """The hit's free blocks are not charged."""
    return model_full(tokens, size, hit_pages, hit_free, held, running) - hit_free


# Blocks of a hit, one by one: which of them are free


def model_free(one: int, two: int, three: int) -> int:
    assert min(one, two, three) >= 0
    return sum(count == 0 for count in (one, two, three))


def engine_free(one: int, two: int, three: int) -> int:
    assert min(one, two, three) >= 0
    blocks = [SimpleNamespace(ref_cnt=count, is_null=False) for count in (one, two, three)]
    return int(FullAttentionManager._get_num_evictable_blocks(blocks))


def mutant_free(one: int, two: int, three: int) -> int:
    """A block that one other request holds is taken for free."""
    assert min(one, two, three) >= 0
    return sum(count <= 1 for count in (one, two, three))


# A resident group, with and without the window of the full-sequence gate


def legal_resident(tokens: int, size: int, computed: int, held: int, cap: int) -> bool:
    return size >= 1 and tokens >= 0 and computed >= 0 and held >= 0 and cap >= 0


def model_resident(tokens: int, size: int, computed: int, held: int, cap: int, capped: bool) -> int:
    assert legal_resident(tokens, size, computed, held, cap)
    ceil_div = INTEGERS.ceil_div
    pages = ceil_div(tokens, size)
    pages = INTEGERS.minimum(pages, cap) if capped else pages
    return int(resident_need(pages, ceil_div(computed, size), held))


def engine_resident(
    tokens: int, size: int, computed: int, held: int, cap: int, capped: bool
) -> int:
    assert legal_resident(tokens, size, computed, held, cap)
    return int(ask(resident_manager(size, held, True, cap), tokens, (), computed, capped))


def mutant_resident(
    tokens: int, size: int, computed: int, held: int, cap: int, capped: bool
) -> int:
    """Resident pages are charged as if computed ones were to be fetched."""
    assert legal_resident(tokens, size, computed, held, cap)
    ceil_div = INTEGERS.ceil_div
    pages = min(ceil_div(tokens, size), cap) if capped else ceil_div(tokens, size)
    return int(max(pages - min(held, ceil_div(computed, size)), 0))


def resident_manager(size: int, held: int, running: bool, cap: int) -> Any:
    """0.30.0 keeps the window under a name of its own."""
    return manager_of(
        HiSparseResidentManager,
        size,
        held,
        running,
        max_admission_blocks_per_request=cap,
        _max_admission_blocks_per_request=cap,
    )


# A hot group


def legal_hot(computed: int, region: int, held: int) -> bool:
    return computed >= 0 and region >= 1 and 0 <= held <= region


def model_hot(computed: int, region: int, held: int, running: bool, asked: bool) -> int:
    assert legal_hot(computed, region, held)
    return int(hot_need(asked or (computed > 0 and not running), region, held))


def engine_hot(computed: int, region: int, held: int, running: bool, asked: bool) -> int:
    assert legal_hot(computed, region, held)
    return int(ask(hot_manager(region, held, running, asked), 1, (), computed))


def mutant_hot(computed: int, region: int, held: int, running: bool, asked: bool) -> int:
    """A region that is held is charged anew."""
    assert legal_hot(computed, region, held)
    return int(hot_need(asked or (computed > 0 and not running), region, 0))


def hot_manager(region: int, held: int, running: bool, asked: bool) -> Any:
    return manager_of(
        HiSparseHotManager,
        1,
        held,
        running,
        blocks_per_request=region,
        hot_required={REQUEST} if asked else set(),
    )


# The host source group: the sentinel of a shortage (from 0.31.0)


def legal_host(pages: int, hit_pages: int, hit_free: int, host_free: int, blocks: int) -> bool:
    return 0 <= hit_free <= hit_pages < pages and hit_free <= host_free and blocks >= 1


def model_host(pages: int, hit_pages: int, hit_free: int, host_free: int, blocks: int) -> int:
    assert legal_host(pages, hit_pages, hit_free, host_free, blocks)
    demand = Demand(pages, hit_pages, hit_pages, 0, hit_free, 0, 0, 0, 0, 0, hit_pages > 0)
    return int(host_shortage(demand, host_free, blocks))


def engine_host(pages: int, hit_pages: int, hit_free: int, host_free: int, blocks: int) -> int:
    assert legal_host(pages, hit_pages, hit_free, host_free, blocks)
    manager = source_manager(1, host_free, blocks)
    return int(ask(manager, pages, Row(hit_pages, hit_free), hit_pages))


def mutant_host(pages: int, hit_pages: int, hit_free: int, host_free: int, blocks: int) -> int:
    """One host block too many is taken for free."""
    assert legal_host(pages, hit_pages, hit_free, host_free, blocks)
    return model_host(pages, hit_pages, hit_free, host_free + 1, blocks)


def source_manager(size: int, host_free: int, blocks: int) -> Any:
    return manager_of(
        HiSparseSourceManager,
        size,
        0,
        False,
        _get_num_evictable_blocks=count_free,
        block_pool=SimpleNamespace(get_num_free_blocks=lambda: host_free),
        coordinator=SimpleNamespace(gpu_pool=SimpleNamespace(num_gpu_blocks=blocks)),
    )


# The whole predictor: all groups of a waiting request, at either gate

GROUPS = 2
"""Resident groups, and as many hot groups."""


def legal_waiting(
    tokens: int, size: int, hit_pages: int, hit_free: int, region: int, cap: int
) -> bool:
    return (
        size >= 1
        and 0 <= hit_free <= hit_pages
        and hit_pages * size < tokens
        and region >= 1
        and cap >= 1
    )


def model_waiting(
    tokens: int, size: int, hit_pages: int, hit_free: int, region: int, cap: int, whole: bool
) -> int:
    assert legal_waiting(tokens, size, hit_pages, hit_free, region, cap)
    demand = Demand(
        INTEGERS.ceil_div(tokens, size), hit_pages, hit_pages, hit_free, 0, 0, 0, 0, 0, 0,
        hit_pages > 0,
    )  # fmt: skip
    return int(gpu_need(demand, GROUPS, region, cap if whole else None, False))


def engine_waiting(
    tokens: int, size: int, hit_pages: int, hit_free: int, region: int, cap: int, whole: bool
) -> int:
    assert legal_waiting(tokens, size, hit_pages, hit_free, region, cap)
    enough = tokens
    managers = (
        source_manager(size, enough, 1),
        manager_of(FullAttentionManager, size, 0, False, _get_num_evictable_blocks=count_free),
        *(resident_manager(size, 0, False, cap) for _ in range(GROUPS)),
        *(hot_manager(region, 0, False, False) for _ in range(GROUPS)),
    )
    hit: tuple[Any, ...] = (Row(hit_pages), Row(hit_pages, hit_free), *[()] * (2 * GROUPS))
    computed = hit_pages * size
    return int(
        KVCacheCoordinator.get_num_blocks_to_allocate(
            SimpleNamespace(retention_interval=0, single_type_managers=managers),
            REQUEST,
            tokens,
            hit,
            0,
            computed,
            computed,
            tokens,
            apply_admission_cap=whole,
        )
    )


def mutant_waiting(
    tokens: int, size: int, hit_pages: int, hit_free: int, region: int, cap: int, whole: bool
) -> int:
    """The window is left out at both gates."""
    assert legal_waiting(tokens, size, hit_pages, hit_free, region, cap)
    return model_waiting(tokens, size, hit_pages, hit_free, region, cap, False)


# The in-flight window, and the start-up minimum (from 0.31.0)


def model_window(size: int, in_flight: int, longest: int) -> int:
    assert size >= 1
    assert in_flight >= 1
    assert longest >= 2
    configuration = Configuration(
        block_size=size, max_num_batched_tokens=in_flight, max_model_len=longest
    )
    return configuration.resident_cap


def engine_window(size: int, in_flight: int, longest: int) -> int:
    assert size >= 1
    assert in_flight >= 1
    assert longest >= 2
    spec = interface.HiSparseResidentSpec(block_size=size, page_size=1)
    return int(spec.max_admission_blocks_per_request(in_flight, longest))


def mutant_window(size: int, in_flight: int, longest: int) -> int:
    """The longest request does not bound the window."""
    assert size >= 1
    assert in_flight >= 1
    assert longest >= 2
    return int(INTEGERS.ceil_div(in_flight, size))


def legal_startup(size: int, in_flight: int, longest: int, region: int, groups: int) -> bool:
    return size >= 1 and in_flight >= 1 and longest >= 2 and region >= 1 and 1 <= groups <= 2


def model_startup(size: int, in_flight: int, longest: int, region: int, groups: int) -> int:
    """The null block is left out: the engine takes it off the pool before it compares."""
    assert legal_startup(size, in_flight, longest, region, groups)
    configuration = Configuration(
        block_size=size,
        max_num_batched_tokens=in_flight,
        max_model_len=longest,
        hot_blocks=region,
        num_resident_groups=groups,
    )
    return minimum_blocks(configuration, DIALECTS["vllm-0.33.0"]) - 1


def engine_startup(size: int, in_flight: int, longest: int, region: int, groups: int) -> int:
    assert legal_startup(size, in_flight, longest, region, groups)
    return int(blocks_of_the_longest(*described(size, in_flight, longest, region, groups)))


def mutant_startup(size: int, in_flight: int, longest: int, region: int, groups: int) -> int:
    """One hot region for all groups."""
    return model_startup(size, in_flight, longest, region, groups) - region * (groups - 1)


def described(
    size: int, in_flight: int, longest: int, region: int, groups: int
) -> tuple[Any, list[Any]]:
    """The engine's configuration, and its groups, whose blocks have one byte for each token."""
    settings = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=longest),
        max_in_flight_tokens=in_flight,
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, prefill_context_parallel_size=1
        ),
        attention_config=SimpleNamespace(hisparse_config=True),
    )
    indexer = interface.MLAAttentionSpec(
        block_size=size, num_kv_heads=1, head_size=1, dtype=SimpleNamespace(itemsize=1)
    )
    resident = interface.HiSparseResidentSpec(block_size=size, page_size=1)
    hot = interface.HiSparseHotSpec(block_size=size, page_size=1, blocks_per_request=region)
    specs = [("indexer", indexer)]
    specs += [(f"resident{n}", resident) for n in range(groups)]
    specs += [(f"hot{n}", hot) for n in range(groups)]
    return settings, [interface.KVCacheGroupSpec([name], spec) for name, spec in specs]


def blocks_of_the_longest(settings: Any, groups: list[Any]) -> int:
    """What the start-up check asks for; a block counts as one byte of the pool."""
    needed = PLANNING._max_memory_usage_bytes_from_groups
    takes_builder = len(inspect.signature(needed).parameters) == 3
    return int(needed(None, settings, groups) if takes_builder else needed(settings, groups))


def one_byte(*_: object) -> int:
    return 1


PLANNING: Any = kv_cache_planning if hasattr(kv_cache_planning, "__file__") else kv_cache_utils
PLANNING._pool_bytes_per_block = one_byte
