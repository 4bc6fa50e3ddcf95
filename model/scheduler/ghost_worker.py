"""A ghost of the worker: it carries out steps on numbers that stand for contents.

It knows only what the engine tells a worker. A step runs in the order of the device's stream:
what it is told first, then loads, all writes, then all reads, then copies to the host. Reads are
compared with what the request's own prefix would have written.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from model.contents import EMPTY, Contents, Text
from model.groups import kinds_of, positions
from model.scheduler.plan import Load, Residency, Scheduled, StepPlan, Table, Transfer
from model.scheduler.setup import SchedulerSetup

Cell = tuple[str, int]
"""A block: the name of its pool, and its id."""

NULL = 0
FIRST_LOST = -1
"""Contents of failed loads are negative: one number for each load."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Positions of the cache's groups in a block table, by what they hold."""

    full: tuple[int, ...] = ()
    """Every page, on the GPU, found by the table: full attention, or the indexer."""
    sliding: tuple[int, ...] = ()
    state: tuple[int, ...] = ()
    """Mamba: one running state, in the block of the last token; after it that block alone."""
    host: int | None = None
    resident: tuple[int, ...] = ()
    hot: tuple[int, ...] = ()


def groups_of(setup: SchedulerSetup) -> Groups:
    kinds = kinds_of(setup.cache, setup.num_resident_groups)
    return Groups(
        full=positions(kinds, "full") or positions(kinds, "indexer"),
        sliding=positions(kinds, "sliding"),
        state=positions(kinds, "state"),
        host=next(iter(positions(kinds, "host")), None),
        resident=positions(kinds, "resident"),
        hot=positions(kinds, "hot"),
    )


@dataclass(slots=True)
class Rows:
    """Block ids of a request, as the worker knows them."""

    table: list[list[int]]
    """One row per group; it only grows, until the request is scheduled anew."""
    residency: list[list[int]]
    """Where the pages are read from, per resident group; the null block means the host."""


@dataclass(frozen=True, slots=True)
class Misread:
    """A page that did not hold what its reader needed."""

    request: int
    group: int
    page: int
    where: str
    """``block 3`` or ``host block 3``."""
    found: int
    """The content there."""
    expected: int


@dataclass(slots=True)
class GhostWorker:
    setup: SchedulerSetup
    contents: Contents
    groups: Groups = field(init=False)
    gpu: list[int] = field(init=False)
    """Content of each block of the GPU pool."""
    host: dict[int, list[int]] = field(init=False)
    """Group → content of each host block: those of resident groups."""
    rows: dict[int, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups = groups_of(self.setup)
        self.gpu = [EMPTY] * self.setup.num_blocks
        self.host = {group: [EMPTY] * self.setup.num_host_blocks for group in self.groups.resident}

    def execute(
        self, plan: StepPlan, texts: dict[int, Text], lost: dict[int, int]
    ) -> list[Misread]:
        """Carry out a step; return what was misread.

        ``lost`` names the requests whose load within this step fails: position of the first token
        that is not loaded.
        """
        self._take_note(plan)
        for load in plan.loads:
            if not load.asynchronous:
                self.fill(load, texts[load.request], lost.get(load.request))
        misread = [
            found
            for share in plan.scheduled
            for found in self._advance_state(share, texts[share.request])
        ]
        for share in plan.scheduled:
            self._write(share, texts[share.request])
        misread += [
            found for share in plan.scheduled for found in self.read(share, texts[share.request])
        ]
        for mirror in plan.mirrors:
            self._mirror(mirror.sources, mirror.destination, mirror.rows)
        for transfer in plan.transfers:
            if not transfer.restore:
                self._save(transfer)
        return misread

    @staticmethod
    def lost_by(content: int) -> int | None:
        """The request whose failed load left a content, if that is what it is."""
        return FIRST_LOST - content if content < 0 else None

    # What a step says before it runs

    def _take_note(self, plan: StepPlan) -> None:
        for request in (*plan.finished, *plan.preempted):
            self.rows.pop(request, None)
        for share in plan.scheduled:
            self._extend_table(share)
        for update in plan.residency:
            if update.request in self.rows:
                self._update_rows(self.rows[update.request], update)
        for block in plan.zeroed:
            self.gpu[block] = EMPTY
        for source, target in plan.copies:
            self.gpu[target] = self.gpu[source]
        for source, target in plan.host_copies:
            for blocks in self.host.values():
                blocks[target] = blocks[source]
        for transfer in plan.transfers:
            if transfer.restore:
                self._restore(transfer)

    def _extend_table(self, share: Scheduled) -> None:
        if share.kind != "running":
            table = [list(row) for row in share.blocks or ()]
            resident = [table[group] for group in self.groups.resident]
            self.rows[share.request] = Rows(table, [[] for _ in resident])
        elif share.blocks is not None:
            for row, new in zip(self.rows[share.request].table, share.blocks, strict=True):
                row.extend(new)

    def _update_rows(self, rows: Rows, update: Residency) -> None:
        """Note where pages are resident: some of them, or a whole new table."""
        if update.pages is None:
            rows.table = [list(row) for row in update.rows]
            return
        for row, blocks in zip(rows.residency, update.rows, strict=True):
            for page, block in zip(update.pages, blocks, strict=True):
                row.extend([NULL] * (page + 1 - len(row)))
                row[page] = block

    # Loads

    def fill(self, load: Load, text: Text, lost: int | None = None) -> None:
        """The store writes what it has; from position ``lost`` on it fails to.

        A page that held the same already still does: HiSparse lets loads go to published pages.
        """
        end = load.start + load.tokens
        good = end if lost is None else max(load.start, lost)
        for group, blocks, row in self._loaded(load.blocks):
            for page, filled in self._parts(load.start, good):
                there, new = blocks[row[page]], text.part(group, page, filled)
                _put(blocks, row[page], self.contents.write(max(there, EMPTY), new, 0))
            for page, filled in self._parts(good, end):
                if not self.contents.covers(blocks[row[page]], text.part(group, page, filled)):
                    _put(blocks, row[page], FIRST_LOST - load.request)
        for group in self.groups.state:
            page, filled = self._last(end)
            content = FIRST_LOST - load.request if good < end else text.part(group, page, filled)
            _put(self.gpu, load.blocks[group][page], content)

    def _loaded(self, table: Table) -> Iterator[tuple[int, list[int], tuple[int, ...]]]:
        """What a store fills: (group, contents of the pool, row); resident groups on the host."""
        for group in (*self.groups.full, *self.groups.sliding):
            yield group, self.gpu, table[group]
        if self.groups.host is not None:
            for group in self.groups.resident:
                yield group, self.host[group], table[self.groups.host]

    # The step itself

    def _write(self, share: Scheduled, text: Text) -> None:
        table, size = self.rows[share.request].table, self.setup.block_size
        end = share.computed + share.tokens
        for group in (*self.groups.full, *self.groups.sliding, *self.groups.resident):
            row = table[group]
            for page, filled in self._parts(share.computed, end):
                if page >= len(row) or row[page] == NULL:
                    continue
                offset = max(share.computed - page * size, 0)
                there, new = self.gpu[row[page]], text.part(group, page, filled)
                if offset == 0 or there >= 0:
                    self.gpu[row[page]] = self.contents.write(there, new, offset)

    def _advance_state(self, share: Scheduled, text: Text) -> Iterator[Misread]:
        """Read the state where the last token left it, and leave the new one."""
        rows, end = self.rows[share.request], share.computed + share.tokens
        for group in self.groups.state:
            row = rows.table[group]
            if share.computed:
                page, filled = self._last(share.computed)
                block, expected = row[page], text.part(group, page, filled)
                if self.gpu[block] != expected:
                    yield Misread(
                        share.request, group, page, f"block {block}", self.gpu[block], expected
                    )
            page, filled = self._last(end)
            _put(self.gpu, row[page], text.part(group, page, filled))

    def _last(self, tokens: int) -> tuple[int, int]:
        """The page of the last of so many tokens, and how far it is filled."""
        page = (tokens - 1) // self.setup.block_size
        return page, tokens - page * self.setup.block_size

    def spoil(self, share: Scheduled, content: int) -> None:
        """What a request wrote in a step was computed from ``content``, and is as useless."""
        table = self.rows[share.request].table
        end = share.computed + share.tokens
        for group in (*self.groups.full, *self.groups.sliding, *self.groups.resident):
            for page, _ in self._parts(share.computed, end):
                if page < len(table[group]):
                    _put(self.gpu, table[group][page], content)
        for group in self.groups.state:
            _put(self.gpu, table[group][self._last(end)[0]], content)

    def read(self, share: Scheduled, text: Text) -> Iterator[Misread]:
        size, end = self.setup.block_size, share.computed + share.tokens
        full, filled = divmod(end, size)
        pages = full + (filled > 0)
        rows = self.rows[share.request]
        for group in (*self.groups.full, *self.groups.sliding, *self.groups.resident):
            expected = text.pages(group, full)
            if filled:
                expected = [*expected, text.part(group, full, filled)]
            first = self._first_in_window(share) if group in self.groups.sliding else 0
            row = self._row_read(rows, group)
            found = [self.gpu[block] for block in row[first:pages]]
            if found != expected[first:]:
                yield from self._misread(share.request, group, rows, expected, first)

    def reach(self, share: Scheduled) -> Iterator[Cell]:
        """The blocks that a request's part of a step reads or writes."""
        rows, size = self.rows[share.request], self.setup.block_size
        end = share.computed + share.tokens
        pages = -(-end // size)
        for group in self.groups.full:
            yield from (("gpu", block) for block in rows.table[group][:pages])
        for group in self.groups.sliding:
            first = self._first_in_window(share)
            yield from (("gpu", block) for block in rows.table[group][first:pages])
        for group in self.groups.state:
            row, last = rows.table[group], self._last(end)[0]
            first = self._last(share.computed)[0] if share.computed else last
            yield from (("gpu", row[page]) for page in (first, last))
        written = slice(share.computed // size, pages)
        for group in self.groups.resident:  # an append-only row names blocks given away since
            yield from (("gpu", block) for block in rows.table[group][written])
            yield from (("gpu", block) for block in self._row_read(rows, group)[:pages])
        if self.groups.host is not None:
            yield from (("host", block) for block in rows.table[self.groups.host][:pages])

    def _first_in_window(self, share: Scheduled) -> int:
        """The first page that the first token of a chunk attends to, in a sliding window."""
        return max(0, share.computed - self.setup.sliding_window + 1) // self.setup.block_size

    def _row_read(self, rows: Rows, group: int) -> list[int]:
        if group in self.groups.resident and self._has_residency(rows):
            return rows.residency[group - self.groups.resident[0]]
        return rows.table[group]

    @staticmethod
    def _has_residency(rows: Rows) -> bool:
        return any(rows.residency)

    def _misread(
        self, request: int, group: int, rows: Rows, expected: list[int], first: int
    ) -> Iterator[Misread]:
        """The pages that are wrong, those found on the host left out."""
        row = self._row_read(rows, group)
        for page in range(first, len(expected)):
            block = row[page] if page < len(row) else NULL
            found, where = self.gpu[block], f"block {block}"
            if block == NULL and group in self.groups.resident:
                assert self.groups.host is not None
                hosts = rows.table[self.groups.host]
                block = hosts[page] if page < len(hosts) else NULL
                found, where = self.host[group][block], f"host block {block}"
            if not self.contents.covers(found, expected[page]):
                yield Misread(request, group, page, where, found, expected[page])

    # Copies between the GPU and the host

    def _save(self, transfer: Transfer) -> None:
        for group, block in zip(self.groups.resident, transfer.blocks, strict=True):
            self.host[group][transfer.host_block] = self.gpu[block]

    def _restore(self, transfer: Transfer) -> None:
        for group, block in zip(self.groups.resident, transfer.blocks, strict=True):
            self.gpu[block] = self.host[group][transfer.host_block]

    def _mirror(self, sources: Iterable[int], destination: int, rows: int) -> None:
        size = self.setup.block_size
        target, offset = divmod(destination, size)
        for group, source in zip(self.groups.resident, sources, strict=True):
            new = self.gpu[source // size]
            blocks = self.host[group]
            if new >= 0:
                blocks[target] = self.contents.overwrite(blocks[target], offset, new, rows)
            else:
                blocks[target] = new

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Pages of the tokens [start, end), and how far each is filled then."""
        size = self.setup.block_size
        if start < end:
            for page in range(start // size, -(-end // size)):
                yield page, min(end - page * size, size)


def _put(blocks: list[int], block: int, content: int) -> None:
    if block != NULL:
        blocks[block] = content
