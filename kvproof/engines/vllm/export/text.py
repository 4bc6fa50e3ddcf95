"""The fixed parts of an exported file: it imports vLLM, and this module does not."""

from __future__ import annotations

from string import Template

STANDARD_IMPORTS = (
    "from collections import Counter",
    "from types import SimpleNamespace",
    "from unittest import SkipTest",
)
ENGINE_IMPORTS = (
    "import torch",
    "from vllm.utils.hashing import sha256",
    "from vllm.v1.core.kv_cache_manager import KVCacheManager",
    "from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash",
    "from vllm.v1.hisparse.coordinator import get_hisparse_coordinator",
)
INTERFACE_NAMES = (
    "FullAttentionSpec",
    "HiSparseHotSpec",
    "HiSparseResidentSpec",
    "KVCacheConfig",
    "KVCacheGroupRole",
    "KVCacheGroupSpec",
    "MLAAttentionSpec",
)

HEAD = Template('''\
"""$about

$rule

Written by kvproof from a trace$origin.
It needs vLLM and pytest, and no GPU:
    VLLM_LOGGING_LEVEL=ERROR pytest THIS_FILE
FAILED: the rule is broken. PASSED: it holds. SKIPPED: this vLLM answers an earlier step
differently, so the sequence says nothing about it.
"""
''')

MANAGER = Template("""\
def new_manager():
    $spec
    config = KVCacheConfig(
        num_blocks=$num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[
            $groups,
        ],$host
    )
    return KVCacheManager(
        config,
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        max_in_flight_tokens=$max_in_flight_tokens,
        enable_caching=$prefix_caching,
        watermark=$watermark,
    )
""")

PLAIN_SPEC = """\
full = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )"""
HISPARSE_SPECS = Template("""\
mla = MLAAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    page = dict(block_size=BLOCK_SIZE, page_size=4 * BLOCK_SIZE)
    resident = HiSparseResidentSpec(**page)
    hot = HiSparseHotSpec(**page, blocks_per_request=$hot_blocks)
    role = KVCacheGroupRole""")

REQUEST = """\
def new_request(request_id, tokens, cache_salt=None):
    parameters = SimpleNamespace(
        max_tokens=MAX_MODEL_LEN,
        extra_args=None,
        skip_reading_prefix_cache=None,
        structured_outputs=None,
    )
    return Request(
        request_id,
        tokens,
        parameters,
        None,
        arrival_time=0.0,
        cache_salt=cache_salt,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )
"""

END_STEP = '''\
def end_step(coordinator, scheduled):
    """Hand a step to the workers; returns the ids of the host writes that it carries.

    ``scheduled`` holds the id of each request of the step and its tokens computed after it.
    """
    if hasattr(coordinator, "advance_scheduled"):  # before 0.32.0 a part of allocate_slots
        coordinator.advance_scheduled(scheduled)
    command = coordinator.build_offload_command()
    if hasattr(coordinator, "take_residency_updates"):
        coordinator.take_residency_updates(request_id for request_id, _ in scheduled)
    else:
        coordinator.take_block_table_updates()
    return [transfer.transfer_id for transfer in command.page_transfers]
'''

EXPECT = '''\
def expect(step, seen, recorded):
    """Stop where this vLLM answers differently: later calls would be no engine's calls."""
    if seen != recorded:
        raise SkipTest(f"step {step} goes another way here: {seen} instead of {recorded}")
'''

METERED = '''\
def metered(manager):
    """Note what the admission predictor answers, and which blocks the pool hands out."""
    promised, taken = [], []
    predict = manager.coordinator.get_num_blocks_to_allocate
    take = manager.block_pool.get_new_blocks

    def noted_predict(*args, **kwargs):
        promised.append(predict(*args, **kwargs))
        return promised[-1]

    def noted_take(num_blocks):
        blocks = take(num_blocks)
        taken.extend(blocks)
        return blocks

    manager.coordinator.get_num_blocks_to_allocate = noted_predict
    manager.block_pool.get_new_blocks = noted_take
    return promised, taken
'''

POOLS = '''\
def pools(manager):
    """The GPU pool, and the host pool of a HiSparse engine."""
    found = [manager.block_pool]
    for group in manager.coordinator.single_type_managers:
        if all(group.block_pool is not pool for pool in found):
            found.append(group.block_pool)
    return found
'''

CONSERVATION = '''\
def check(manager, coordinator, held):
    """Every block but the null block is free, once in the queue and unreferenced, or held."""
    for pool in pools(manager):
        queue = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        assert len(queue) == len(set(queue)), "a block is in the free queue twice"
        assert len(queue) == pool.get_num_free_blocks(), "the free count is not the queue's"
        for block in pool.blocks:
            if not block.is_null:
                assert (block.block_id in queue) == (block.ref_cnt == 0), block
'''

ACCOUNTING = '''\
def holders_of_blocks(manager, coordinator, held):
    """References to each block, recomputed from whatever holds it."""
    holders = Counter(id(block) for blocks in held for block in blocks)
    for group in manager.coordinator.single_type_managers:
        resident = coordinator is not None and group in coordinator.resident_managers
        for request_id, row in group.req_to_blocks.items():
            unpinned = ()
            if resident:
                if hasattr(group, "get_residency_row"):
                    row = group.get_residency_row(request_id)
                state = coordinator.request_states.get(request_id)
                unpinned = () if state is None else state.unpinned_pages
            holders.update(id(block) for page, block in enumerate(row) if page not in unpinned)
    ended = {}
    for write in coordinator.pending_spills.values() if coordinator is not None else ():
        holders.update(map(id, (write.host_block, *write.resident_blocks)))
        ended[id(write.request_state)] = write.request_state.publication
    for publication in ended.values():
        holders.update(map(id, getattr(publication, "detached_blocks", None) or ()))
    return holders


def check(manager, coordinator, held):
    """Every reference count equals the holders."""
    holders = holders_of_blocks(manager, coordinator, held)
    for pool in pools(manager):
        for block in pool.blocks:
            if not block.is_null:
                assert block.ref_cnt == holders[id(block)], (block, holders[id(block)])
'''

HASH_MAP = '''\
def check(manager, coordinator, held):
    """The hash map and the blocks' own hashes agree."""
    for pool in pools(manager):
        own = {(b.block_id, b.block_hash) for b in pool.blocks if b.block_hash is not None}
        mapped = set()
        for key, found in pool.cached_block_hash_to_block._cache.items():
            ids = list(found) if isinstance(found, dict) else [found.block_id]
            mapped.update((block_id, key) for block_id in ids)
        assert own == mapped
'''

QUIESCENCE = '''\
def check(manager, coordinator, held):
    """Everything has ended, so every block but the null block is free."""
    for pool in pools(manager):
        assert pool.get_num_free_blocks() == len(pool.blocks) - 1
'''

NULL_BLOCK = '''\
def check(manager, coordinator, held):
    """The null block is never free and has no hash."""
    for pool in pools(manager):
        assert not any(block.is_null for block in pool.free_block_queue.get_all_free_blocks())
        assert pool.null_block.block_hash is None
'''

HOST_BLOCKS = '''\
def check(manager, coordinator, held):
    """Every page has a host block."""
    host, indexer = manager.coordinator.single_type_managers[:2]
    for request_id, row in indexer.req_to_blocks.items():
        host_row = host.req_to_blocks.get(request_id, ())
        assert len(host_row) == len(row)
        assert not any(block.is_null for block in host_row)
'''

CHECKS = {
    "I1": CONSERVATION,
    "I2": ACCOUNTING,
    "I10": HASH_MAP,
    "I12": QUIESCENCE,
    "I13": NULL_BLOCK,
    "I14": HOST_BLOCKS,
}
"""Rules that the state after the last step shows, with the predicate that judges it."""

JUDGED_BY_CALLS = ("I4", "I6", "I16", "I19", "crash")
"""Rules that the last call itself shows: it raises, or answers wrongly."""

BROKEN_BY_REFUSAL = ("I6", "I16")
