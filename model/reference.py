"""The reference allocator: an executable model of pool, prefix cache and HiSparse."""

from collections.abc import Callable, Mapping, Sequence

from model.allocation import allocate, cache_blocks
from model.allocator import Allocation, Rows
from model.capture import capture
from model.dialect import Dialect
from model.holding import Hit
from model.manager.configuration import Configuration
from model.pool import Key
from model.publication import complete_transfers
from model.release import PoppedBlocks, free, free_popped, pop
from model.request import Request
from model.residency import advance_residency
from model.snapshot import Snapshot
from model.state import HOST_GROUP, new_state

Find = Callable[[Key], int | None]


class ReferenceAllocator:
    """Answers the calls of a session under one dialect."""

    def __init__(self, configuration: Configuration, dialect: Dialect) -> None:
        self.state = new_state(configuration, dialect)
        self._requests: dict[int, Request] = {}
        self._contents: dict[tuple[int, tuple[int, ...]], int] = {}
        """(content id before, or minus the salt at the start; tokens of a block) → content id."""

    def register(self, request: Request) -> None:
        self._requests[request.id] = request
        self._name_contents(request)

    def append(self, request: Request, token: int) -> None:
        self._name_contents(request)

    def _name_contents(self, request: Request) -> None:
        size = self.state.configuration.block_size
        for page in range(len(request.contents), request.num_tokens // size):
            before = request.contents[-1] if request.contents else -request.salt
            key = (before, tuple(request.tokens[page * size : (page + 1) * size]))
            request.contents.append(self._contents.setdefault(key, len(self._contents) + 1))

    def lookup(self, request: Request) -> tuple[Hit, int]:
        c, state = self.state.configuration, self.state
        if not c.prefix_caching:
            return Hit(), 0
        pages = (request.num_tokens - 1) // c.block_size
        host: list[int] = []
        if c.hisparse:
            host = self._longest(state.host.find, HOST_GROUP, request.contents[:pages])
            pages = len(host)
        indexer = self._longest(state.gpu.find, state.indexer_group, request.contents[:pages])
        tokens = len(indexer) * c.block_size
        return Hit(tuple(host[: len(indexer)]), tuple(indexer), tokens), tokens

    @staticmethod
    def _longest(find: Find, group: int, contents: Sequence[int]) -> list[int]:
        found: list[int] = []
        for content in contents:
            block = find((group, content))
            if block is None:
                break
            found.append(block)
        return found

    def allocate(
        self,
        request: Request,
        new_tokens: int,
        hit: Hit | None,
        hit_tokens: int,
        beside_running: bool,
    ) -> Allocation:
        return allocate(self.state, request, new_tokens, hit, beside_running)

    def cache(self, request: Request, tokens: int) -> None:
        if self.state.configuration.prefix_caching:
            cache_blocks(self.state, request, tokens)

    def free(self, request: Request) -> None:
        free(self.state, request)

    def pop(self, request: Request) -> PoppedBlocks | None:
        return pop(self.state, request)

    def free_popped(self, blocks: PoppedBlocks) -> None:
        free_popped(self.state, blocks)

    def end_step(self, scheduled: Sequence[tuple[Request, int]]) -> None:
        for request, tokens in scheduled:
            advance_residency(self.state, request, tokens, "end_of_step")

    def take_command(self) -> Rows:
        sent = [self.state.transfers[transfer] for transfer in self.state.unsent]
        self.state.unsent = []
        return tuple((t.id, t.request, t.host_block, *t.blocks) for t in sent)

    def take_updates(self, scheduled: Sequence[Request]) -> Rows:
        if self.state.dialect.residency_updates:
            return self._residency_updates(scheduled)
        lost, self.state.lost_pages = sorted(self.state.lost_pages), set()
        return tuple((request_id, *self._table_blocks(request_id)) for request_id in lost)

    def _table_blocks(self, request_id: int) -> list[int]:
        holding = self.state.holdings.get(request_id)
        if holding is None:
            return []
        rows = (holding.host, holding.indexer, *holding.table, *holding.hot)
        return [block for row in rows for block in row]

    def _residency_updates(self, scheduled: Sequence[Request]) -> Rows:
        updates: list[tuple[int, ...]] = []
        for request in scheduled:
            holding = self.state.holdings[request.id]
            pages = len(holding.resident[0])
            changed = [*sorted(holding.stale), *range(holding.synced, pages)]
            if not changed:
                continue
            blocks = [row[page] for row in holding.resident for page in changed]
            updates.append((request.id, *changed, *blocks))
            holding.stale = set()
            holding.synced = pages
        return tuple(updates)

    def update_transfers(self, enqueued: Mapping[int, int], completed: Mapping[int, int]) -> None:
        transfers = self.state.transfers
        for transfer_id, workers in enqueued.items():
            if transfer_id in transfers and not transfers[transfer_id].expected:
                transfers[transfer_id].expected = workers
        for transfer_id, workers in completed.items():
            if transfer_id in transfers:
                transfers[transfer_id].done += workers
        complete_transfers(self.state, self._requests)

    def pending_reclamation(self) -> bool:
        state = self.state
        for transfer in state.transfers.values():
            owner = state.holdings.get(transfer.request)
            if owner is not None and state.can_read_from_host(owner):
                return True
            last = state.host.counts[transfer.host_block] == 1
            if last and state.dialect.reclaims_host_blocks:
                return True
        return False

    def common_prefix(self, request: Request) -> tuple[int, ...]:
        state, c = self.state, self.state.configuration
        groups = (2 + 2 * c.num_resident_groups) if c.hisparse else 1
        holding = state.holdings.get(request.id)
        if holding is None or not (c.prefix_caching and state.dialect.common_prefix_counted):
            return (0,) * groups
        counted = [(state.gpu, holding.indexer)]
        if c.hisparse:
            counted.insert(0, (state.host, holding.host))
        shared: list[int] = []
        for pool, row in counted:
            everywhere = [pool.counts[block] == len(state.holdings) for block in row]
            shared.append((*everywhere, False).index(False))
        return (*shared, *(0,) * (groups - len(shared)))

    def evict(self, request: Request, page: int) -> None:
        holding = self.state.holdings.get(request.id)
        if holding is not None and page < len(holding.indexer):
            self.state.gpu.evict(holding.indexer[page])

    def reset(self) -> bool:
        """Each pool is tried, whatever another answered: a refused reset may reset one of them."""
        host_reset = not self.state.configuration.hisparse or self.state.host.reset()
        return self.state.gpu.reset() and host_reset

    def hold(self, free_blocks: int) -> None:
        excess = max(len(self.state.gpu.free) - free_blocks, 0)
        self.state.held += self.state.gpu.take(excess)

    def snapshot(
        self,
        requests: Sequence[Request],
        scheduled: Mapping[int, int],
        deferred: Sequence[PoppedBlocks],
    ) -> Snapshot:
        return capture(self.state, requests, scheduled, deferred)
