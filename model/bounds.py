"""The numbers of a deployment, as formulas: what it admits, where it crashes, what it keeps.

``kvproof bounds`` prints them. ``invariants.proofs`` proves what they mean in the functions of
``model.admission``, which the model runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from model.admission import INTEGERS, Arithmetic, Demand, Number, kept_copies
from model.dialect import Dialect
from model.holding import ACTIVE_TAIL_PAGES
from model.manager.configuration import Configuration

# What a deployment admits, where it crashes, what it keeps


def least_free(
    step_need: Number, full_need: Number, watermark: Number, a: Arithmetic = INTEGERS
) -> Number:
    """Least free blocks that pass both gates: that of the step, and that of the full sequence."""
    return a.maximum(step_need, full_need) + watermark


def crash_end(step_need: Number, copies: Number) -> Number:
    """From this count of free blocks on, ``copies`` pinned before the pops leave enough.

    From ``least_free`` up to it, an admitted hit with so many free copies, or fewer, can crash.
    """
    return step_need + copies


def least_free_keeping_all(
    admitted: Number, taken: Number, copies: Number, behind: Number, a: Arithmetic = INTEGERS
) -> Number:
    """Least free blocks at which a hit is admitted and all its copies survive its own pops.

    ``admitted`` is ``least_free``; it takes ``taken`` blocks; ``behind`` other free blocks lie
    between the copies and the tail of the queue.
    """
    return a.maximum(admitted, taken + copies + behind)


def pages_kept(
    free: Number,
    taken: Number,
    pages: Number,
    groups: Number,
    behind: Number,
    a: Arithmetic = INTEGERS,
    kept: Callable[..., Number] = kept_copies,
) -> Number:
    """Pages of a hit all of whose copies, one in each resident group, survive its own pops.

    One release left them, group by group and tail first, so the pops take one group's copies
    first. Copies that were unpinned page by page lose no more pages.
    """
    return kept(free, taken, pages, behind + (groups - 1) * pages, a)


def waiting(pages: int, hit_pages: int, hit_free: int, copies: int = 0) -> Demand:
    """A waiting request whose hit has ``hit_pages`` pages; cold if it has none."""
    return Demand(
        pages=pages,
        computed_pages=hit_pages,
        hit_pages=hit_pages,
        hit_free=hit_free,
        host_hit_free=0,
        copies_free=copies,
        held_host=0,
        held_indexer=0,
        held_resident=0,
        held_hot=0,
        wants_hot=hit_pages > 0,
    )


# The least pool on which a lone request finishes


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the least pool depends on, as integers or terms."""

    pages: Number
    """Pages that the longest request computes: its last token is sampled, never computed."""
    window: Number
    """Resident pages that admission reserves at most, in each group."""
    chunk_pages: Number
    """Pages of one step's token budget."""
    two_chunks_pages: Number
    """Pages of two steps' token budgets."""
    groups: Number
    region: Number


def held_when_asking(sizes: Sizes, when_window_full: bool, a: Arithmetic = INTEGERS) -> Number:
    """Most pages of a request when it gets its hot region.

    It can be one page short of the window, fill it with one chunk, and bring another; in
    the first release nothing but a low pool makes it ask, perhaps at its last page.
    """
    if not when_window_full:
        return sizes.pages
    return a.minimum(sizes.pages, sizes.window - 1 + sizes.two_chunks_pages)


def least_pool(sizes: Sizes, when_window_full: bool, a: Arithmetic = INTEGERS) -> Number:
    """Blocks of the GPU pool, the null block included, on which a lone cold request finishes.

    Enough for every prompt and every way of cutting it into chunks within the budget, whenever
    its writes complete. The three terms are its full-sequence gate, the step that brings its hot
    region, and any later step, before which all but the last two resident pages are given back.
    """
    s = sizes
    gate = s.pages + s.groups * a.minimum(s.pages, s.window)
    held = held_when_asking(s, when_window_full, a)
    asking = held + s.groups * (held + s.region)
    pinned = a.minimum(s.pages, s.chunk_pages + ACTIVE_TAIL_PAGES)
    later = s.pages + s.groups * (pinned + s.region)
    return 1 + a.maximum(gate, a.maximum(asking, later))


def sizes_of(configuration: Configuration) -> Sizes:
    c, ceil_div = configuration, INTEGERS.ceil_div
    return Sizes(
        pages=ceil_div(c.max_model_len - 1, c.block_size),
        window=c.resident_cap,
        chunk_pages=ceil_div(c.max_num_batched_tokens, c.block_size),
        two_chunks_pages=ceil_div(2 * c.max_num_batched_tokens, c.block_size),
        groups=c.num_resident_groups,
        region=c.hot_blocks,
    )


def least_blocks(configuration: Configuration, dialect: Dialect) -> int:
    """``least_pool`` of an engine with HiSparse and a host pool that holds the request."""
    return int(least_pool(sizes_of(configuration), dialect.hot_when_window_full))


def is_reached(configuration: Configuration, dialect: Dialect) -> bool:
    """Whether one block less than ``least_blocks`` makes some lone request stall.

    Not proved otherwise only where the request cannot outgrow its window and its last page holds
    one token, or where a tenth of the pool is more than the hot regions (then a request asks
    earlier, because the pool is low).
    """
    c = configuration
    outgrows = c.max_model_len - 1 >= (c.resident_cap - 1) * c.block_size + 2
    if dialect.hot_when_window_full and outgrows:
        return True
    ceil_div = INTEGERS.ceil_div
    pages = ceil_div(c.max_model_len - 1, c.block_size)
    shares_last_page = ceil_div(c.max_model_len - 2, c.block_size) == pages
    low = (least_blocks(c, dialect) - 1) // 10
    return shares_last_page and low <= c.num_resident_groups * c.hot_blocks
