"""Ghost contents: what the workers really write into the blocks, and read back.

A step writes the tokens that it computes through the block tables of the indexer and of each
resident group; a host write copies a page as it is after the step that carries it. All writes of
a step come before its reads: requests of one step may share a prefix that the step computes.
"""

from model.contents import Contents, Text
from model.manager.actions import Action, Arrive, Preempt
from model.manager.events import Allocated, Arrived, Preempted, Response, StepEnded
from model.pool import NULL
from model.snapshot import RequestState, Snapshot

Page = tuple[int, int, tuple[int, ...]]
"""(group, number of the prefix before the page, tokens written from its first slot on)."""

GARBAGE: Page = (-1, -1, ())


class Ghost:
    """Contents of all blocks, kept up to date along one trace."""

    def __init__(self, block_size: int, hisparse: bool) -> None:
        self.block_size = block_size
        self.hisparse = hisparse
        self.gpu: dict[int, Page] = {}
        self.host: dict[int, tuple[Page, ...]] = {}
        """Contents of a host block, a page for each resident group."""
        self.cancelled: dict[int, int] = {}
        """GPU block → request whose scheduled write into it was cancelled by a preemption."""
        self.contents = Contents(block_size)
        """Only prefixes are numbered: what is in a page is compared token by token."""
        self.texts: dict[int, Text] = {}
        self.writes: dict[int, tuple[Page, ...]] = {}
        """Transfer → what it carries, from the end of the step that carries it."""

    # Prefixes

    def expected(self, request: int, page: int, upto: int, group: int) -> Page:
        """What a page of a request's context of ``upto`` tokens must contain."""
        start = page * self.block_size
        text = self.texts[request]
        return group, text.prefix(page), text.tokens(start, min(upto, start + self.block_size))

    def prefix_name(self, request: int, page: int) -> int:
        """A number that is the same for pages that end equal prefixes with equal salts."""
        return self.texts[request].prefix(page + 1)

    # Events

    def advance(
        self, before: Snapshot, action: Action, response: Response, after: Snapshot
    ) -> None:
        """Follow one action; reads are checked afterwards, see ``invariants.manager.contents``."""
        for event in response:
            if isinstance(event, Arrived) and isinstance(action, Arrive):
                self.texts[event.request] = Text(
                    self.contents, event.request, action.family, action.shared, action.salt
                )
            elif isinstance(event, Preempted) and isinstance(action, Preempt):
                self._cancel(before, event.request)
            elif isinstance(event, StepEnded):
                self._write(before, event)
            elif isinstance(event, Allocated) and self.hisparse:
                for block in event.blocks[0]:
                    self.host.pop(block, None)
        self._complete(before, after)

    def _cancel(self, before: Snapshot, victim: int) -> None:
        """A scheduled request is preempted: what the step was to write is never written."""
        for request in before.requests:
            if request.id == victim and request.scheduled:
                for _, blocks in self._written_rows(request):
                    for page in self._written_pages(request):
                        self.cancelled[blocks[page]] = victim

    def _write(self, before: Snapshot, step: StepEnded) -> None:
        scheduled = [request for request in before.requests if request.scheduled]
        for request in scheduled:
            for page in self._written_pages(request):
                for group, row in self._written_rows(request):
                    self._write_page(request, page, group, row[page])
        for transfer, _, _, *blocks in step.command:
            self.writes[transfer] = tuple(self.gpu.get(block, GARBAGE) for block in blocks)

    def _written_pages(self, request: RequestState) -> range:
        """Pages that the step being built writes for a request."""
        last = request.computed + request.scheduled - 1
        return range(request.computed // self.block_size, last // self.block_size + 1)

    def _written_rows(self, request: RequestState) -> list[tuple[int, tuple[int, ...]]]:
        """(group, row) of each group that a step writes: group 1 is the indexer."""
        indexer = request.tables[1 if self.hisparse else 0]
        return [(1, indexer), *enumerate(request.resident, start=2)]

    def _write_page(self, request: RequestState, page: int, group: int, block: int) -> None:
        if block == NULL:
            return
        start = page * self.block_size
        first = max(request.computed - start, 0)
        upto = request.computed + request.scheduled
        whole = self.expected(request.id, page, upto, group)
        if first and self.gpu.get(block, GARBAGE) != (*whole[:2], whole[2][:first]):
            whole = GARBAGE
        self.gpu[block] = whole
        self.cancelled.pop(block, None)

    def _complete(self, before: Snapshot, after: Snapshot) -> None:
        if len(before.transfers) <= len(after.transfers) and before.transfers == after.transfers:
            return
        left = {transfer.id for transfer in after.transfers}
        for transfer in before.transfers:
            if transfer.id not in left:
                contents = self.writes.pop(transfer.id, ())
                self.host[transfer.host_block] = contents
