"""Allocation: ask the predictor, refuse or commit the hit, pop the blocks, give them keys."""

from model.admission import INTEGERS, Demand, admits, gpu_need, host_shortage
from model.allocator import Allocation, AllocationFailedError, Rows
from model.holding import Hit, Holding
from model.pool import NULL, OutOfBlocksError
from model.publication import cache_indexer, register_publication
from model.request import Request
from model.residency import adopt_copies, advance_residency, free_copies
from model.state import State

NO_HIT = Hit()


def allocate(
    state: State, request: Request, new_tokens: int, hit: Hit | None, beside_running: bool
) -> Allocation:
    """Allocate slots for ``new_tokens`` tokens after those computed and those of the hit."""
    c = state.configuration
    waiting = hit is not None
    hit = hit or NO_HIT
    if new_tokens == 0 and not (hit.tokens and state.dialect.zero_tokens_with_hit):
        raise AllocationFailedError("ValueError", "no new tokens to allocate")
    computed = request.computed + hit.tokens
    watermark = c.watermark_blocks if waiting and beside_running else 0
    promised: list[int] = []
    gates = [(min(computed + new_tokens, c.max_model_len), False)]
    if waiting and c.full_sequence_must_fit:
        gates.insert(0, (min(request.num_tokens, c.max_model_len), True))
    for tokens, full_sequence in gates:
        need = predict(state, request, tokens, hit, full_sequence)
        promised.append(need)
        if not admits(need, watermark, len(state.gpu.free)):
            return Allocation(tuple(promised), 0, None)

    popped_before = state.gpu.popped
    hit_free = state.gpu.num_free(hit.indexer)
    tokens, _ = gates[-1]
    try:
        if request.id not in state.holdings:
            commit_hit(state, request, hit)
        new_blocks = pop_new_blocks(state, state.holdings[request.id], tokens)
    except OutOfBlocksError as error:
        raise AllocationFailedError("OutOfBlocks", str(error)) from error
    taken = state.gpu.popped - popped_before + hit_free
    cache_blocks(state, request, min(computed + new_tokens, request.num_tokens))
    return Allocation(tuple(promised), taken, new_blocks)


def predict(state: State, request: Request, tokens: int, hit: Hit, full_sequence: bool) -> int:
    """Blocks that the predictor promises, host sentinel included."""
    c, d = state.configuration, state.dialect
    holding = state.holdings.get(request.id)
    held = holding or Holding(resident=[[]], hot=[[]])
    ceil_div = INTEGERS.ceil_div
    demand = Demand(
        pages=ceil_div(tokens, c.block_size),
        computed_pages=ceil_div(request.computed + hit.tokens, c.block_size),
        hit_pages=len(hit.indexer),
        hit_free=state.gpu.num_free(hit.indexer),
        host_hit_free=state.host.num_free(hit.host),
        copies_free=free_copies(state, hit.host) if d.charge_copies else 0,
        held_host=len(held.host),
        held_indexer=len(held.indexer),
        held_resident=len(held.resident[0]) if held.resident else 0,
        held_hot=len(held.hot[0]) if held.hot else 0,
        wants_hot=held.wants_hot or (hit.tokens > 0 and holding is None),
    )
    groups = c.num_resident_groups if c.hisparse else 0
    cap = c.resident_cap if full_sequence else None
    need = int(gpu_need(demand, groups, c.hot_blocks, cap, d.charge_copies))
    if c.hisparse and not d.host_best_effort:
        need += int(host_shortage(demand, len(state.host.free), c.num_blocks))
    return need


def commit_hit(state: State, request: Request, hit: Hit) -> None:
    """The request now holds the blocks of its hit; its resident pages start on the host."""
    c = state.configuration
    pages = len(hit.indexer)
    groups = c.num_resident_groups if c.hisparse else 0
    state.host.touch(hit.host)
    state.gpu.touch(hit.indexer)
    holding = Holding(
        host=list(hit.host),
        indexer=list(hit.indexer),
        resident=[[NULL] * pages for _ in range(groups)],
        table=[[NULL] * pages for _ in range(groups)],
        hot=[[] for _ in range(groups)],
        host_cached=len(hit.host),
        indexer_cached=pages,
    )
    state.holdings[request.id] = holding
    if not c.hisparse or not pages:
        return
    holding.wants_hot = True
    holding.valid = set(range(pages))
    holding.ready = holding.recorded = pages
    if state.dialect.adopt_at == "commit":
        adopt_copies(state, holding, pages)
    else:
        holding.to_adopt = pages


def pop_new_blocks(state: State, holding: Holding, tokens: int) -> Rows:
    """Lengthen every row to hold ``tokens`` tokens: host, indexer, resident, hot, in this order.

    Raises OutOfBlocksError in the middle, when admission promised too little.
    """
    c = state.configuration
    pages = INTEGERS.ceil_div(tokens, c.block_size)
    new: list[list[int]] = []
    if c.hisparse:
        new.append(take_host_blocks(state, holding, pages))
    new.append(lengthen(state, holding.indexer, pages))
    for row, table in zip(holding.resident, holding.table, strict=True):
        new.append(lengthen(state, row, pages))
        table.extend(new[-1])
    for row in holding.hot:
        new.append(lengthen(state, row, c.hot_blocks if holding.wants_hot else 0))
    return tuple(tuple(blocks) for blocks in new)


def lengthen(state: State, row: list[int], length: int) -> list[int]:
    new = state.gpu.take(max(length - len(row), 0))
    row.extend(new)
    return new


def take_host_blocks(state: State, holding: Holding, pages: int) -> list[int]:
    """Host blocks for new pages; with best effort, pages that find none get a null entry."""
    missing = max(pages - len(holding.host), 0)
    count = min(missing, len(state.host.free)) if state.dialect.host_best_effort else missing
    new = state.host.take(count)
    holding.host.extend(new + [NULL] * (missing - count))
    return new


def cache_blocks(state: State, request: Request, tokens: int) -> None:
    """The first ``tokens`` tokens are allocated (or final): give keys, and do residency work."""
    c = state.configuration
    if c.prefix_caching:
        if c.hisparse:
            register_publication(state, request, tokens)
        cache_indexer(state, request, tokens)
    if c.hisparse:
        advance_residency(state, request, tokens, "allocation")
