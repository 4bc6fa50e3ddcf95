"""Publication: host pages become findable once they are durable, and their GPU copies recorded."""

from model.holding import Holding, Transfer
from model.pool import NULL
from model.request import Request
from model.residency import page_became_clean
from model.state import HOST_GROUP, State


def cache_indexer(state: State, request: Request, tokens: int) -> None:
    """Give keys to the indexer (or full-attention) blocks of full pages, as soon as allocated."""
    holding = state.holdings[request.id]
    pages = tokens // state.configuration.block_size
    for page in range(holding.indexer_cached, pages):
        state.gpu.insert((state.indexer_group, request.contents[page]), holding.indexer[page])
    holding.indexer_cached = max(holding.indexer_cached, pages)


def register_publication(state: State, request: Request, tokens: int) -> None:
    """The host pages of the first ``tokens`` tokens are to be published when durable."""
    holding = state.holdings[request.id]
    holding.publication = tokens // state.configuration.block_size
    publish_if_ready(state, request)


def publish_if_ready(state: State, request: Request) -> None:
    holding = state.holdings[request.id]
    if holding.publication is None:
        return
    pages = holding.publication
    complete = holding.ready >= pages
    if not complete and not state.dialect.publish_prefix:
        return
    publish_host_pages(state, request.contents, holding, holding.host, min(pages, holding.ready))
    record_copies(state, request, holding, min(pages, holding.ready))
    if complete:
        holding.publication = None


def publish_host_pages(
    state: State, contents: list[int], holding: Holding, blocks: list[int], pages: int
) -> None:
    for page in range(holding.host_cached, pages):
        if blocks[page] != NULL:
            state.host.insert((HOST_GROUP, contents[page]), blocks[page])
    holding.host_cached = max(holding.host_cached, pages)


def record_copies(state: State, request: Request, holding: Holding, pages: int) -> None:
    """Remember the GPU blocks of published pages as copies; a newer copy replaces an older."""
    for page in range(holding.recorded, pages):
        blocks = holding.page_blocks(page)
        published = page < len(holding.host) and holding.host[page] in state.host.keys
        if blocks is not None and published and page not in holding.pending:
            state.copies[request.contents[page]] = blocks
    holding.recorded = max(holding.recorded, pages)


def complete_transfers(state: State, requests: dict[int, Request]) -> None:
    """Finish every transfer that all workers have completed."""
    finished = [t for t in state.transfers.values() if t.expected and t.done >= t.expected]
    for transfer in finished:
        for block in transfer.blocks:
            state.gpu.release([block])
    alive: list[int] = []
    for transfer in finished:
        del state.transfers[transfer.id]
        transfer.holding.pending.pop(transfer.page, None)
        if state.holdings.get(transfer.request) is transfer.holding:
            page_became_clean(state, transfer.holding, transfer.page)
            alive.append(transfer.request)
        elif transfer.holding.lease is not None:
            transfer.holding.valid.add(transfer.page)
            publish_lease(state, requests[transfer.request], transfer)
        state.host.release([transfer.host_block])
    for request_id in dict.fromkeys(alive):
        state.holdings[request_id].advance_ready()
        publish_if_ready(state, requests[request_id])


def publish_lease(state: State, request: Request, transfer: Transfer) -> None:
    """After the last write of an ended request: publish its durable prefix, drop the lease."""
    holding = transfer.holding
    if holding.pending or holding.lease is None or holding.publication is None:
        return
    holding.advance_ready()
    pages = min(holding.ready, len(holding.lease))
    publish_host_pages(state, request.contents, holding, holding.lease, pages)
    state.host.release(holding.lease[::-1])
    holding.lease = None
    holding.publication = None
