"""What the workers' blocks hold, as far as the scheduler's steps say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import (
    HiSparseConnectorMetadata,
)
from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.engines.vllm.export.harness.connectors import parts_of
from kvproof.engines.vllm.export.harness.engine import Share
from model.scheduler.plan import Load

Block = tuple[str, int]
"""Where a block is, and its id."""
Content = tuple[Any, ...]
"""In place of KV rows, what these were computed from: (group of the cache, page, salt, all tokens
up to the last in the block), since a row depends on the whole prefix."""
Misread = tuple[str, Content, str]
"""The request that reads a page, what it holds, and a message that says so."""


class Tables:
    """The block tables as the workers know them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[list[int]]] = {}
        """Block ids of a request, a row per group of the cache."""

    def note(self, output: SchedulerOutput) -> None:
        for request_id in (*output.finished_req_ids, *(output.preempted_req_ids or ())):
            self.rows.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            self.rows[new.req_id] = [list(row) for row in new.block_ids]
        cached = output.scheduled_cached_reqs
        for request_id, rows in zip(cached.req_ids, cached.new_block_ids, strict=True):
            for row, blocks in zip(self.rows[request_id], rows or (), strict=False):
                row.extend(blocks)


HOST = 0
INDEXER = 1
FIRST_RESIDENT = 2


class HiSparseTables(Tables):
    """With where the pages of the resident groups are read from."""

    def __init__(self, resident_groups: int) -> None:
        super().__init__()
        self.resident_groups = resident_groups
        self.resident: dict[str, list[list[int]]] = {}
        """Blocks in which a request's pages are resident, a row per resident group."""

    def note(self, output: SchedulerOutput) -> None:
        super().note(output)
        for new in output.scheduled_new_reqs:
            self.resident[new.req_id] = [[] for _ in range(self.resident_groups)]
        metadata = parts_of(output)[0]
        if not hasattr(metadata, "residency_updates"):  # older: whole tables
            for request_id, rows in (output.block_table_updates or {}).items():
                if request_id in self.rows:
                    self.rows[request_id] = [list(row) for row in rows]
            return
        for request_id, update in metadata.residency_updates.items():
            if request_id in self.rows:
                for row, blocks in zip(self.resident[request_id], update.block_ids, strict=True):
                    for page, block in zip(update.pages, blocks, strict=True):
                        row.extend([0] * (page + 1 - len(row)))
                        row[page] = block

    def row_read(self, request_id: str, group: int) -> list[int]:
        """Where a resident group's pages are read; the null block means on the host."""
        if any(self.resident[request_id]):
            return self.resident[request_id][group - FIRST_RESIDENT]
        return self.rows[request_id][group]


class Pages:
    """A group whose pages are all kept, in the blocks of its row."""

    def __init__(self, group: int) -> None:
        self.group = group

    def first_read(self, share: Share) -> int:
        """The first token that the first token of a share attends to."""
        return 0

    def block_read(self, tables: Tables, request_id: str, page: int) -> Block:
        row = tables.rows[request_id][self.group]
        return ("gpu", row[page] if page < len(row) else 0)

    def write(self, memory: Memory, share: Share) -> None:
        row = memory.tables.rows[share.request_id][self.group]
        for page, first, last in memory.pages(share.start, share.end):
            if page < len(row):
                content = memory.content(share.request_id, self.group, last)
                memory.write(("gpu", row[page]), content, first)

    def read(self, memory: Memory, share: Share) -> Iterator[Misread]:
        for page, _, last in memory.pages(self.first_read(share), share.end):
            block = self.block_read(memory.tables, share.request_id, page)
            content = memory.content(share.request_id, self.group, last)
            if memory.holds.get(block, ())[: len(content)] != content:
                yield memory.misread(share.request_id, page, block, content)

    def row_loaded(self, load: Load) -> tuple[str, Sequence[int]]:
        """Where the store writes."""
        return "gpu", load.blocks[self.group]


class Window(Pages):
    """A group with a sliding window, which is read no further back than that."""

    def __init__(self, group: int, window: int) -> None:
        super().__init__(group)
        self.window = window

    def first_read(self, share: Share) -> int:
        return max(0, share.start - self.window + 1)


class Resident(Pages):
    """HiSparse: pages that are resident on the GPU, or are read from the host."""

    def block_read(self, tables: Any, request_id: str, page: int) -> Block:
        row = tables.row_read(request_id, self.group)
        if page < len(row) and row[page]:
            return ("gpu", row[page])
        hosts = tables.rows[request_id][HOST]
        return (host(self.group), hosts[page] if page < len(hosts) else 0)

    def row_loaded(self, load: Load) -> tuple[str, Sequence[int]]:
        return host(self.group), load.blocks[HOST]


def host(group: int) -> str:
    """The host pool holds the pages of all resident groups."""
    return f"host of group {group}"


class Memory:
    """What the workers' blocks hold: in place of KV rows, what these were computed from."""

    def __init__(self, tables: Tables, block_size: int, groups: Sequence[Pages]) -> None:
        self.tables = tables
        self.block_size = block_size
        self.groups = groups
        self.holds: dict[Block, Content] = {}
        self.texts: dict[str, list[int]] = {}
        self.salts: dict[str, str] = {}

    def note(self, output: SchedulerOutput) -> None:
        """What a step says before it runs: block tables, blocks to zero and to copy."""
        self.tables.note(output)
        for block in output.new_block_ids_to_zero or ():
            self.holds.pop(("gpu", block), None)
        for copy in output.kv_cache_block_copies or ():
            self.copy(("gpu", copy.src_block_id), ("gpu", copy.dst_block_id))

    def run(self, output: SchedulerOutput, shares: list[Share]) -> list[Misread]:
        """All writes of a step, then its reads; returns what was misread."""
        for share in shares:
            for group in self.groups:
                group.write(self, share)
        return self.read(shares)

    def read(self, shares: list[Share]) -> list[Misread]:
        return [each for s in shares for group in self.groups for each in group.read(self, s)]

    def pages(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """The pages of tokens [start, end): (page, its first token of these, after its last)."""
        size = self.block_size
        return [
            (page, max(start, page * size), min(end, (page + 1) * size))
            for page in range(start // size, -(-end // size))
            if start < end
        ]

    def content(self, request_id: str, group: int, end: int) -> Content:
        """What the page of the last of ``end`` tokens holds then."""
        page = (end - 1) // self.block_size
        return (group, page, self.salts[request_id], *self.texts[request_id][:end])

    def copy(self, source: Block, target: Block) -> None:
        self.holds[target] = self.holds.get(source, ())

    def write(self, block: Block, content: Content, start: int) -> None:
        """Rows from position ``start`` on; what is before them in the page must be there."""
        old = self.holds.get(block, ())
        if old[: len(content)] == content or block[1] == 0:
            return
        if start % self.block_size and old[: 3 + start] != content[: 3 + start]:
            content = old if old[:1] == ("lost",) else ("torn",)
        self.holds[block] = content

    def fill(self, load: Load, good: int) -> None:
        """The store writes what it has, and what it fails to load is lost."""
        request_id = str(load.request)
        for group in self.groups:
            where, row = group.row_loaded(load)
            for page, _, last in self.pages(load.start, good):
                if row[page]:
                    self.holds[where, row[page]] = self.content(request_id, group.group, last)
            for page, _, _ in self.pages(good, load.end):
                if row[page]:
                    self.holds[where, row[page]] = ("lost", request_id)

    def misread(self, request_id: str, page: int, block: Block, expected: Content) -> Misread:
        found = self.holds.get(block, ())
        place = f"block {block[1]} ({block[0]})" if block[1] else "the null block"
        message = (
            f"request {request_id} reads page {page} of group {expected[0]} from {place}, "
            f"which holds {described(found)} instead of {described(expected)}"
        )
        return request_id, found, message


class MambaMemory(Memory):
    """With a running state in group 1, in the block of the last token: that of one length."""

    def run(self, output: SchedulerOutput, shares: list[Share]) -> list[Misread]:
        """Before all else, read each state where the last token left it, and leave the new one."""
        wrong: list[Misread] = []
        for request_id, start, end in shares:
            if start:
                block, expected = self.state(request_id, start), self.content(request_id, 1, start)
                if self.holds.get(block, ()) != expected:
                    page = (start - 1) // self.block_size
                    wrong.append(self.misread(request_id, page, block, expected))
            self.holds[self.state(request_id, end)] = self.content(request_id, 1, end)
        return wrong + super().run(output, shares)

    def state(self, request_id: str, end: int) -> Block:
        return ("gpu", self.tables.rows[request_id][1][(end - 1) // self.block_size])

    def fill(self, load: Load, good: int) -> None:
        super().fill(load, good)
        block = ("gpu", load.blocks[1][(load.end - 1) // self.block_size])
        whole = self.content(str(load.request), 1, load.end)
        self.holds[block] = whole if good == load.end else ("lost", str(load.request))


class HiSparseMemory(Memory):
    """With copies within the host, to it, and back."""

    def note(self, output: SchedulerOutput) -> None:
        super().note(output)
        metadata = parts_of(output)[0]
        for group in self.residents():
            for copy in metadata.host_block_copies:
                self.copy((host(group), copy.src_block_id), (host(group), copy.dst_block_id))
        for there, here in self.transfers(metadata, restore=True):
            self.copy(there, here)

    def run(self, output: SchedulerOutput, shares: list[Share]) -> list[Misread]:
        """Then rows are mirrored to the host, and pages copied there."""
        wrong = super().run(output, shares)
        metadata = parts_of(output)[0]
        for mirrors in metadata.row_mirrors.values():
            for mirror in mirrors:
                for group, source in zip(self.residents(), mirror.source_starts, strict=True):
                    content = self.holds.get(("gpu", source // self.block_size), ())
                    self.mirror(group, content, mirror.destination_start, mirror.num_rows)
        for there, here in self.transfers(metadata, restore=False):
            self.copy(here, there)
        return wrong

    def residents(self) -> list[int]:
        return [each.group for each in self.groups if isinstance(each, Resident)]

    def transfers(
        self, metadata: HiSparseConnectorMetadata, restore: bool
    ) -> Iterator[tuple[Block, Block]]:
        """(block on the host, block on the GPU) of each page that moves one way."""
        for transfer in metadata.command.page_transfers if metadata.command else ():
            if transfer.restore == restore:
                for group, block in zip(self.residents(), transfer.resident_block_ids, strict=True):
                    yield (host(group), transfer.host_block_id), ("gpu", block)

    def mirror(self, group: int, content: Content, destination: int, rows: int) -> None:
        page, offset = divmod(destination, self.block_size)
        target = (host(group), page)
        if content[:1] in (("lost",), ("torn",), ()):
            self.holds[target] = content
            return
        start = content[1] * self.block_size + offset
        if len(content) < 3 + start + rows:
            self.holds[target] = ("torn",)
        else:
            self.write(target, content[: 3 + start + rows], start)


def described(content: Content) -> str:
    if content[:1] == ("lost",):
        return f"what the failed load of request {content[1]} left"
    if content in ((), ("torn",)):
        return "nothing" if not content else "a page written in part over another"
    return f"tokens {list(content[3:])} of group {content[0]}"
