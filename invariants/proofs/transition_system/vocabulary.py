"""The vocabulary of the transition system: sorts, relations, counters.

A *slot* is the place of one block in a row of one life of one request: a page of a resident group,
a page of the indexer (or of full attention), or one block of a hot region. It holds at most one
block. Slots are never used twice: a request that comes back after a preemption has new ones. A
*page* is a content: a group and a prefix that ends at a page boundary. The null block is no block.
"""

from invariants.proofs.transition_system.formula import Counter, Relation, Sort, Term

BLOCK, SLOT, PAGE = Sort("Block"), Sort("Slot"), Sort("Page")

# What holds, writes and reads a block.
pins = Relation("pins", (SLOT, BLOCK))
"""The row of the slot holds a reference to the block."""
transfer = Relation("transfer", (SLOT, BLOCK))
"""A copy of the slot's page, to the host or from it, is under way and holds the block."""
restoring = Relation("restoring", (SLOT,))
"""That copy goes from the host to the block (the last page of an external import)."""
fresh = Relation("fresh", (SLOT, BLOCK))
"""The block was handed out to the slot, and its page is not yet complete: the slot writes it."""
reads = Relation("reads", (SLOT, BLOCK))
"""The slot reads its complete page from the block, pinned or not."""

# The pool.
queued = Relation("queued", (BLOCK,))
ahead = Relation("ahead", (BLOCK, BLOCK))
"""Both are in the free queue, and the first is handed out before the second."""
keyed = Relation("keyed", (BLOCK, PAGE))
"""The block is found by the key of the page."""
watched = Relation("watched", (BLOCK,))
"""The next hand-out of the block is announced."""
owner = Relation("owner", (BLOCK, SLOT))
"""The slot is registered as a reader that the announcement reaches."""
copy = Relation("copy", (BLOCK, PAGE))
"""The block is the recorded GPU copy of a published host page."""

# Slots and their pages. The first three never change.
page = Relation("page", (SLOT, PAGE))
"""The content of a slot that is complete, or will be; hot slots have none."""
resident = Relation("resident", (SLOT,))
"""The slot belongs to a resident group, so its page can be read from the host."""
before = Relation("before", (SLOT, SLOT))
"""Two slots of one row, in the order of the row."""
used = Relation("used", (SLOT,))
live = Relation("live", (SLOT,))
"""The request has the slot in its rows: it was admitted and not released."""
wanting = Relation("wanting", (SLOT,))
"""A page of a prefix hit that is to be adopted, if a copy is there."""
importing = Relation("importing", (SLOT,))
"""An external load is filling the host page."""
valid = Relation("valid", (SLOT,))
"""The request's own host page is complete."""
parting = Relation("parting", (SLOT,))
"""The request was released; this clean page is still to be unpinned."""
leased = Relation("leased", (SLOT,))
"""The request ended (it was not preempted): its pending writes are still published."""
cut = Relation("cut", (SLOT,))
"""The request was preempted while a write of this page was pending."""

# Pages on the host.
durable = Relation("durable", (PAGE,))
"""Ghost: a complete host copy of the page was made."""
published = Relation("published", (PAGE,))
"""A host page is found by the key of the page."""
offered = Relation("offered", (SLOT,))
"""Ghost: the slot's host page was published."""

# What one release left in the queue.
left = Relation("left", (BLOCK, SLOT))
"""Ghost: the release of the slot put the block into the queue, where it has been since."""
gone = Relation("gone", (SLOT,))
"""Ghost: a block that the release of the slot had left was handed out."""

# The allocation that is going on.
touching = Relation("touching", ())
popping = Relation("popping", ())
hit = Relation("hit", (BLOCK,))
"""A block of the prefix hit that is still to be touched."""
due = Relation("due", (BLOCK,))
"""A free copy of a page of the hit: what the predictor can charge."""

free = Counter("free")
"""Blocks in the free queue."""
to_touch = Counter("to_touch")
"""Blocks of the hit that are in the queue and still to be touched."""
to_pop = Counter("to_pop")
"""Blocks that the allocation still pops."""
to_pin = Counter("to_pin")
"""Blocks that are due."""

STATIC = (page, resident, before)
STATE = (
    pins, transfer, restoring, fresh, reads, queued, ahead, keyed, watched, owner, copy,
    used, live, wanting, importing, valid, parting, leased, cut, durable, published, offered,
    left, gone, touching, popping, hit, due,
)  # fmt: skip
COUNTERS = (free, to_touch, to_pop, to_pin)
SORTS = (BLOCK, SLOT, PAGE)

b, c, d = (Term(name, BLOCK) for name in "bcd")
s, t = (Term(name, SLOT) for name in "st")
p, q = (Term(name, PAGE) for name in "pq")
"""Variables for the formulas of this package."""

BLOCK_TAKEN, SLOT_TAKEN, PAGE_TAKEN = (
    Term(f"the_{sort.name.lower()}", sort, constant=True) for sort in SORTS
)
"""What an action is about: at most one slot, one block and one page."""
