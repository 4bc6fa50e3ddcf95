"""The whole state of the reference allocator: two pools, the holdings, copies and transfers."""

from dataclasses import dataclass, field

from model.dialect import Dialect
from model.holding import Holding, Transfer
from model.manager.configuration import Configuration
from model.pool import Pool

HOST_GROUP = 0
"""The host source is the first group of a HiSparse engine, the indexer the second."""


@dataclass(slots=True)
class State:
    configuration: Configuration
    dialect: Dialect
    gpu: Pool
    host: Pool
    holdings: dict[int, Holding] = field(default_factory=dict)
    """Holding of each request that has been admitted and not released."""
    copies: dict[int, list[int]] = field(default_factory=dict)
    """Content id of a published host page → its GPU copy in each resident group."""
    transfers: dict[int, Transfer] = field(default_factory=dict)
    unsent: list[int] = field(default_factory=list)
    """Transfers planned and not yet in a step's command."""
    next_transfer: int = 0
    lost_pages: set[int] = field(default_factory=set)
    """Requests whose block tables must be sent again (dialects without residency updates)."""
    held: list[int] = field(default_factory=list)

    @property
    def indexer_group(self) -> int:
        """Group of the blocks that every request keeps: the indexer, or full attention."""
        return 1 if self.configuration.hisparse else 0

    @property
    def low_pool(self) -> int:
        """Free blocks below which requests move to reading from the host."""
        c = self.configuration
        return max(c.num_resident_groups * c.hot_blocks, c.num_blocks // 10)

    def can_read_from_host(self, holding: Holding) -> bool:
        """Whether a request has its whole hot region, so that resident pages may go."""
        region = self.configuration.hot_blocks
        return bool(holding.hot) and all(len(row) == region for row in holding.hot)


def new_state(configuration: Configuration, dialect: Dialect) -> State:
    def on_reuse(block: int) -> None:
        stop_reading(state, block)

    caching, counted = configuration.prefix_caching, dialect.null_block_counted
    gpu = Pool(configuration.num_blocks, caching, counted, on_reuse)
    host = Pool(max(configuration.num_host_blocks, 1), caching, counted, lambda block: None)
    state = State(configuration, dialect, gpu, host)
    return state


def stop_reading(state: State, block: int) -> None:
    """A watched block is handed out: forget the copy it is, and end all reading of it."""
    for content, blocks in list(state.copies.items()):
        if block in blocks:
            del state.copies[content]
    for request_id, page in readers_of(state, block):
        lose_page(state, request_id, page)


def readers_of(state: State, block: int) -> list[tuple[int, int]]:
    """(request, page) of each page that is read from this block without holding it."""
    return [
        (request_id, page)
        for request_id, holding in state.holdings.items()
        for page in sorted(holding.unpinned)
        if any(page < len(row) and row[page] == block for row in holding.resident)
    ]


def lose_page(state: State, request_id: int, page: int) -> None:
    """A request stops reading a page from the GPU; from now on it needs its hot region."""
    holding = state.holdings[request_id]
    for row, table in zip(holding.resident, holding.table, strict=True):
        row[page] = 0
        if not state.dialect.resident_overlay:
            table[page] = 0
    holding.unpinned.discard(page)
    holding.wants_hot = True
    if page < holding.synced:
        holding.stale.add(page)
    state.lost_pages.add(request_id)
