"""Residency: write pages back, adopt copies, unpin clean pages, ask for a hot region."""

from model.dialect import Moment
from model.holding import ACTIVE_TAIL_PAGES, Holding, Transfer
from model.pool import NULL
from model.request import Request
from model.state import HOST_GROUP, State


def advance_residency(state: State, request: Request, tokens: int, moment: Moment) -> None:
    """What is due at this moment for a request whose first ``tokens`` tokens the step computes."""
    holding = state.holdings[request.id]
    hooked = state.dialect.residency_hook == moment
    if hooked:
        plan_writes(state, request, tokens)
    if holding.to_adopt and state.dialect.adopt_at == moment:
        adopt_copies(state, holding, holding.to_adopt)
        holding.to_adopt = 0
    if hooked:
        settle_residency(state, holding)


def settle_residency(state: State, holding: Holding) -> None:
    """A request that can read from the host unpins its clean pages; one that cannot asks for a
    hot region when the pool runs low or its window is full."""
    if state.can_read_from_host(holding):
        unpin_clean_pages(state, holding)
    elif len(state.gpu.free) < state.low_pool or window_is_full(state, holding):
        holding.wants_hot = True


def window_is_full(state: State, holding: Holding) -> bool:
    """Whether the request holds as many resident pages as admission reserved for it."""
    cap = state.configuration.resident_cap
    return state.dialect.hot_when_window_full and any(len(row) >= cap for row in holding.resident)


def plan_writes(state: State, request: Request, tokens: int) -> None:
    """Start a host write of every sealed page that has none, within the budget of a step."""
    c = state.configuration
    holding = state.holdings[request.id]
    budget = c.max_model_len // c.block_size - len(state.unsent)
    for page in range(tokens // c.block_size):
        if budget <= 0:
            return
        if page not in holding.valid and page not in holding.pending:
            budget -= start_write(state, request.id, page)


def start_write(state: State, request_id: int, page: int) -> bool:
    """Start a host write of one page: it holds the page's blocks and its host block."""
    holding = state.holdings[request_id]
    blocks = holding.page_blocks(page)
    if blocks is None or page >= len(holding.host) or holding.host[page] == NULL:
        return False
    transfer = Transfer(state.next_transfer, request_id, page, holding, holding.host[page], blocks)
    state.next_transfer += 1
    state.host.touch([transfer.host_block])
    state.gpu.touch(blocks)
    state.transfers[transfer.id] = transfer
    holding.pending[page] = transfer.id
    state.unsent.append(transfer.id)
    return True


def adopt_copies(state: State, holding: Holding, pages: int) -> None:
    """Pin the GPU copies of the hit's first ``pages`` host pages that are still readable."""
    for page in range(min(pages, len(holding.host))):
        key = state.host.keys.get(holding.host[page])
        copy = state.copies.get(key[1]) if key else None
        if copy is None:
            continue
        for group, block in enumerate(copy):
            row, table = holding.resident[group], holding.table[group]
            if page >= len(row) or row[page] != NULL:
                continue
            row[page] = block
            if not state.dialect.resident_overlay:
                table[page] = block
            state.gpu.touch([block])
            holding.pinned_clean.add(page)
            if page < holding.synced:
                holding.stale.add(page)


def unpin_clean_pages(state: State, holding: Holding) -> None:
    tail_first = state.dialect.unpin_step_tail_first
    for page in sorted(holding.pinned_clean, reverse=tail_first):
        unpin_page(state, holding, page)


def unpin_page(state: State, holding: Holding, page: int) -> None:
    """Release a clean page's blocks, which stay readable, unless it may still be written."""
    blocks = holding.page_blocks(page)
    in_tail = any(page >= len(row) - ACTIVE_TAIL_PAGES for row in holding.resident)
    if blocks is None or in_tail or page in holding.pending or page not in holding.valid:
        return
    for block in blocks:
        state.gpu.unpin(block)
    holding.pinned_clean.discard(page)
    holding.unpinned.add(page)


def page_became_clean(state: State, holding: Holding, page: int) -> None:
    holding.valid.add(page)
    holding.pinned_clean.add(page)
    if state.can_read_from_host(holding):
        unpin_page(state, holding, page)


def free_copies(state: State, host_blocks: tuple[int, ...]) -> int:
    """Distinct free GPU blocks that are copies of these host pages: what adoption would pin."""
    copies: set[int] = set()
    for host_block in host_blocks:
        key = state.host.keys.get(host_block)
        if key is not None and key[0] == HOST_GROUP:
            copies.update(state.copies.get(key[1], ()))
    return state.gpu.num_free(copies)
