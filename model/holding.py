"""What the reference allocator keeps for one request that holds blocks."""

from dataclasses import dataclass, field

from model.pool import NULL

ACTIVE_TAIL_PAGES = 2
"""Pages at the end of a row that stay pinned: a step in flight may still write them."""


@dataclass(slots=True)
class Holding:
    """The rows of one request, from its admission to its release, and their residency.

    A resident page is dirty (only the GPU copy exists), pending (its host write is under way),
    clean (``valid``: the host copy is complete), and then unpinned: still read, but free.
    """

    host: list[int] = field(default_factory=list)
    indexer: list[int] = field(default_factory=list)
    resident: list[list[int]] = field(default_factory=list)
    """What each resident group reads; null means that the page is read from the host."""
    table: list[list[int]] = field(default_factory=list)
    """The block tables of the resident groups: append-only in some dialects."""
    hot: list[list[int]] = field(default_factory=list)
    host_cached: int = 0
    indexer_cached: int = 0
    wants_hot: bool = False
    valid: set[int] = field(default_factory=set)
    ready: int = 0
    pending: dict[int, int] = field(default_factory=dict)
    pinned_clean: set[int] = field(default_factory=set)
    unpinned: set[int] = field(default_factory=set)
    to_adopt: int = 0
    recorded: int = 0
    publication: int | None = None
    """Leading pages that are to be published once they are durable."""
    synced: int = 0
    """Resident pages that the workers know, but for the stale ones (residency updates)."""
    stale: set[int] = field(default_factory=set)
    lease: list[int] | None = None
    """Host blocks kept for the publication after the request ended."""

    def page_blocks(self, page: int) -> list[int] | None:
        """The blocks of a page in all resident groups, or None if any group has none."""
        blocks = [row[page] for row in self.resident if page < len(row)]
        complete = len(blocks) == len(self.resident) and NULL not in blocks
        return blocks if complete else None

    def advance_ready(self) -> None:
        while self.ready in self.valid:
            self.ready += 1


@dataclass(slots=True)
class Transfer:
    """One page being written to the host. It holds the page's blocks until it is done."""

    id: int
    request: int
    page: int
    holding: Holding
    host_block: int
    blocks: list[int]
    expected: int = 0
    """Workers that took it on; 0 until they said so."""
    done: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """The result of a prefix lookup: blocks found, not yet touched."""

    host: tuple[int, ...] = ()
    indexer: tuple[int, ...] = ()
    tokens: int = 0
