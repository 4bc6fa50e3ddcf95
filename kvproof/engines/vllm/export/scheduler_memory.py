"""The part of an exported file that says what a worker's blocks hold; see ``export_serving_text``.

It is there for the rules of contents (I7) and of concurrent writers (I15).
"""

from __future__ import annotations

MEMORY = '''\
class Memory:
#if contents
    """What the workers' blocks hold: in place of KV rows, what these were computed from.

    That is (group of the cache, page, salt, all tokens up to the last in the block), since a row
    depends on the whole prefix. A block is (where, id).
    """
#fi
#if !contents
    """The block tables as the workers know them."""
#fi

    def __init__(self):
        self.tables = {}  # request id → block ids, a row per group of the cache
#if hisparse
        self.resident = {}  # request id → blocks in which its pages are resident, a row per group
#fi
#if contents
        self.holds = {}
        self.prefixes = {}  # request id → salt, text
#fi

    def note(self, output):
        """What a step says before it runs: who ended, block tables, blocks to zero or to copy."""
        for request_id in (*output.finished_req_ids, *(output.preempted_req_ids or ())):
            self.tables.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = [list(row) for row in new.block_ids]
#if hisparse
            self.resident[new.req_id] = [[] for _ in RESIDENT]
#fi
        cached = output.scheduled_cached_reqs
        for request_id, rows in zip(cached.req_ids, cached.new_block_ids, strict=True):
            for row, blocks in zip(self.tables[request_id], rows or (), strict=False):
                row.extend(blocks)
#if hisparse
        metadata = parts_of(output)[0]
        self.note_residency(output, metadata)
#fi
#if contents
        for block in output.new_block_ids_to_zero or ():
            self.holds.pop(("gpu", block), None)
        for copy in output.kv_cache_block_copies or ():
            self.copy(("gpu", copy.src_block_id), ("gpu", copy.dst_block_id))
#fi
#if contents&hisparse
        for copy in metadata.host_block_copies:
            for group in RESIDENT:
                self.copy(host(group, copy.src_block_id), host(group, copy.dst_block_id))
        for transfer in metadata.command.page_transfers if metadata.command else ():
            if transfer.restore:
                for group, block in zip(RESIDENT, transfer.resident_block_ids, strict=True):
                    self.copy(host(group, transfer.host_block_id), ("gpu", block))
#fi
#if hisparse

    def note_residency(self, output, metadata):
        if not hasattr(metadata, "residency_updates"):  # up to 0.31.0: whole tables
            for request_id, rows in (output.block_table_updates or {}).items():
                if request_id in self.tables:
                    self.tables[request_id] = [list(row) for row in rows]
            return
        for request_id, update in metadata.residency_updates.items():
            if request_id in self.tables:
                rows = zip(self.resident[request_id], update.block_ids, strict=True)
                for row, blocks in rows:
                    for page, block in zip(update.pages, blocks, strict=True):
                        row.extend([0] * (page + 1 - len(row)))
                        row[page] = block
#fi
#if reach

    def reach(self, shares):
        """The blocks that a step reads or writes."""
        reached = set()
        for request_id, start, end in shares:
            table, pages = self.tables[request_id], -(-end // BLOCK_SIZE)
#if sliding
            first = max(0, start - SLIDING_WINDOW + 1) // BLOCK_SIZE
            reached |= cells([table[0][:pages], table[1][first:pages]])
#fi
#if mamba
            states = [table[1][(position - 1) // BLOCK_SIZE] for position in (start or end, end)]
            reached |= cells([table[0][:pages], states])
#fi
#if hisparse
            reached |= cells([row[:pages] for row in table[: RESIDENT[-1] + 1]])
            for row in self.resident[request_id]:
                reached |= {("gpu", block) for block in row[:pages] if block}
#fi
#if full
            reached |= cells([table[0][:pages]])
#fi
        return reached
#fi
#if contents

    def content(self, request_id, group, end):
        """What the page of the last of ``end`` tokens holds then."""
        salt, text = self.prefixes[request_id]
        return (group, (end - 1) // BLOCK_SIZE, salt, *text[:end])

    def copy(self, source, target):
        self.holds[target] = self.holds.get(source, ())

    def write(self, block, content, start):
        """Rows from position ``start`` on; what is before them in the page must be there."""
        old = self.holds.get(block, ())
        if old[: len(content)] == content or block[1] == 0:
            return
        if start % BLOCK_SIZE and old[: 3 + start] != content[: 3 + start]:
            content = old if old[:1] == ("lost",) else ("torn",)
        self.holds[block] = content

    def fill(self, load):
        """The store writes what it has, and what it fails to load is lost."""
        lost = ("lost", load.request_id)
#if hisparse
        rows = [("gpu", INDEXER, load.blocks[INDEXER])]
        rows += [(f"host of group {group}", group, load.blocks[HOST]) for group in RESIDENT]
#fi
#if sliding
        rows = [("gpu", group, row) for group, row in enumerate(load.blocks)]
#fi
#if full|mamba
        rows = [("gpu", 0, load.blocks[0])]
#fi
        for where, group, row in rows:
            for page, _, last in pages_of(load.start, load.good_until):
                if row[page]:
                    self.holds[where, row[page]] = self.content(load.request_id, group, last)
            for page, _, _ in pages_of(load.good_until, load.end):
                if row[page]:
                    self.holds[where, row[page]] = lost
#if mamba
        good = load.good_until == load.end
        state = load.blocks[1][(load.end - 1) // BLOCK_SIZE]
        self.holds["gpu", state] = self.content(load.request_id, 1, load.end) if good else lost
#fi

    def run(self, output, shares):
        """All writes of a step, then its reads; returns what was misread, see ``read``."""
        wrong = []
#if mamba
        for request_id, start, end in shares:
            wrong += self.advance_state(request_id, start, end)
#fi
        for request_id, start, end in shares:
            for group in $paged_groups:
                row = self.tables[request_id][group]
                for page, first, last in pages_of(start, end):
                    if page < len(row):
                        content = self.content(request_id, group, last)
                        self.write(("gpu", row[page]), content, first)
        wrong += self.read(shares)
#if hisparse
        self.save(parts_of(output)[0])
#fi
        return wrong

    def read(self, shares):
        """(request id, content, message) of each page that does not hold what its reader needs."""
        wrong = []
        for request_id, start, end in shares:
            for group in $paged_groups:
#if sliding
                first = max(0, start - SLIDING_WINDOW + 1) if group == 1 else 0
                for page, _, last in pages_of(first, end):
#fi
#if !sliding
                for page, _, last in pages_of(0, end):
#fi
                    block = self.block_read(request_id, group, page)
                    wrong += self.compare(request_id, group, page, block, last)
        return wrong

    def block_read(self, request_id, group, page):
        row = self.tables[request_id][group]
#if hisparse
        if group in RESIDENT:
            if any(self.resident[request_id]):
                row = self.resident[request_id][group - RESIDENT[0]]
            if page >= len(row) or not row[page]:
                hosts = self.tables[request_id][HOST]
                return host(group, hosts[page] if page < len(hosts) else 0)
#fi
        return ("gpu", row[page] if page < len(row) else 0)

    def compare(self, request_id, group, page, block, end):
        expected, found = self.content(request_id, group, end), self.holds.get(block, ())
#if mamba
        # Pages may hold more than is read; a state is that of one length.
        part = found if group == 1 else found[: len(expected)]
        if part != expected:
#fi
#if !mamba
        if found[: len(expected)] != expected:
#fi
            where, number = block
            place = f"block {number} ({where})" if number else "the null block"
            message = (
                f"request {request_id} reads page {page} of group {group} from {place}, "
                f"which holds {described(found)} instead of {described(expected)}"
            )
            yield request_id, found, message
#if lost

    def spoil(self, request_id, shares, lost):
        """What was computed from a failed load is as useless."""
        start, end = next((start, end) for r, start, end in shares if r == request_id)
        for group in $paged_groups:
            row = self.tables[request_id][group]
            for page, _, _ in pages_of(start, end):
                if page < len(row) and row[page]:
                    self.holds["gpu", row[page]] = lost
#if mamba
        self.holds["gpu", self.tables[request_id][1][(end - 1) // BLOCK_SIZE]] = lost
#fi
#fi
#if mamba

    def advance_state(self, request_id, start, end):
        """Read the state where the last token left it, and leave the new one."""
        row, wrong = self.tables[request_id][1], []
        if start:
            page = (start - 1) // BLOCK_SIZE
            wrong += self.compare(request_id, 1, page, ("gpu", row[page]), start)
        self.holds["gpu", row[(end - 1) // BLOCK_SIZE]] = self.content(request_id, 1, end)
        return wrong
#fi
#if hisparse

    def save(self, metadata):
        """After the step: rows mirrored to the host, and pages copied there."""
        for mirrors in metadata.row_mirrors.values():
            for mirror in mirrors:
                for group, source in zip(RESIDENT, mirror.source_starts, strict=True):
                    content = self.holds.get(("gpu", source // BLOCK_SIZE), ())
                    self.mirror(group, content, mirror.destination_start, mirror.num_rows)
        for transfer in metadata.command.page_transfers if metadata.command else ():
            if not transfer.restore:
                for group, block in zip(RESIDENT, transfer.resident_block_ids, strict=True):
                    self.copy(("gpu", block), host(group, transfer.host_block_id))

    def mirror(self, group, content, destination, rows):
        target, offset = divmod(destination, BLOCK_SIZE)
        if content[:1] in (("lost",), ("torn",), ()):
            self.holds[host(group, target)] = content
            return
        start = content[1] * BLOCK_SIZE + offset
        if len(content) < 3 + start + rows:
            self.holds[host(group, target)] = ("torn",)
        else:
            self.write(host(group, target), content[: 3 + start + rows], start)
#fi


def pages_of(start, end):
    """The pages of tokens [start, end): (page, its first token among them, and after its last)."""
    return [
        (page, max(start, page * BLOCK_SIZE), min(end, (page + 1) * BLOCK_SIZE))
        for page in range(start // BLOCK_SIZE, -(-end // BLOCK_SIZE))
        if start < end
    ]


def described(content):
    if content[:1] == ("lost",):
        return f"what the failed load of request {content[1]} left"
    if content in ((), ("torn",)):
        return "nothing" if not content else "a page written in part over another"
    return f"tokens {list(content[3:])} of group {content[0]}"
#if hisparse


def host(group, block):
    """A block of the host pool, which holds the pages of all resident groups."""
    return (f"host of group {group}", block)
#fi
#fi
'''
