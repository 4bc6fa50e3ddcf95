"""The arithmetic of admission: how many blocks an allocation is promised to take.

Written once, for plain integers and for any other numbers with the same operations: the caller
hands in an ``Arithmetic``. Units are tokens, pages (blocks of one group) and blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Number = Any
"""An ``int``, or a term of whatever the ``Arithmetic`` works on."""
Truth = Any
"""A ``bool``, or a formula of whatever the ``Arithmetic`` works on."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The operations that symbolic numbers do not share with integers."""

    ceil_div: Callable[[Number, Number], Number]
    maximum: Callable[[Number, Number], Number]
    minimum: Callable[[Number, Number], Number]
    choose: Callable[[Truth, Number, Number], Number]


INTEGERS = Arithmetic(
    ceil_div=lambda number, divisor: -(-number // divisor),
    maximum=max,
    minimum=min,
    choose=lambda condition, then, otherwise: then if condition else otherwise,
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request asks for and holds, at one call of the predictor."""

    pages: Number
    """Pages that the tokens need a slot in, those held included."""
    computed_pages: Number
    """Pages of the tokens computed before this step, a new hit included."""
    hit_pages: Number
    """Pages of a new prefix hit; 0 for a request that already holds blocks."""
    hit_free: Number
    """Indexer blocks of the hit with reference count 0: touching takes them from the pool."""
    host_hit_free: Number
    """Host blocks of the hit with reference count 0."""
    copies_free: Number
    """Free GPU copies of the hit's host pages."""
    held_host: Number
    held_indexer: Number
    held_resident: Number
    """Pages in the row of each resident group."""
    held_hot: Number
    """Blocks in the row of each hot group."""
    wants_hot: Truth
    """Whether the request reads from the host: it resumes a host prefix or asked for a region."""


def full_attention_need(
    pages: Number, hit_pages: Number, held: Number, hit_free: Number, a: Arithmetic = INTEGERS
) -> Number:
    """Blocks for a group that keeps every page: new pages, and free hit blocks to be touched."""
    return a.maximum(pages - hit_pages - held, 0) + hit_free


def resident_need(
    pages: Number, computed_pages: Number, held: Number, a: Arithmetic = INTEGERS
) -> Number:
    """Blocks for one resident group: pages computed before may stay on the host."""
    return a.maximum(pages - a.maximum(held, computed_pages), 0)


def hot_need(wants: Truth, region: Number, held: Number, a: Arithmetic = INTEGERS) -> Number:
    """Blocks for one hot region of ``region`` blocks."""
    return a.choose(wants, a.maximum(region - held, 0), 0)


def gpu_need(
    demand: Demand,
    resident_groups: Number,
    region: Number,
    resident_cap: Number | None,
    charge_copies: bool,
    a: Arithmetic = INTEGERS,
) -> Number:
    """Blocks of the GPU pool that an allocation takes, over all groups.

    ``resident_cap`` is the in-flight window, in pages, that the full-sequence gate reserves per
    resident group; the gate of one step has none. ``charge_copies`` adds the copies that a hit
    pins before it pops (#57457).
    """
    d = demand
    resident_pages = d.pages if resident_cap is None else a.minimum(d.pages, resident_cap)
    need = full_attention_need(d.pages, d.hit_pages, d.held_indexer, d.hit_free, a)
    need += resident_groups * resident_need(resident_pages, d.computed_pages, d.held_resident, a)
    need += resident_groups * hot_need(d.wants_hot, region, d.held_hot, a)
    return need + d.copies_free if charge_copies else need


def host_shortage(
    demand: Demand, host_free: Number, num_blocks: Number, a: Arithmetic = INTEGERS
) -> Number:
    """The sentinel of a host shortage: more blocks than the GPU pool has, or 0."""
    need = full_attention_need(
        demand.pages, demand.hit_pages, demand.held_host, demand.host_hit_free, a
    )
    return a.choose(need > host_free, num_blocks + 1, 0)


def admits(need: Number, watermark: Number, free: Number) -> Truth:
    """Whether the pool has the blocks, and ``watermark`` more."""
    return need + watermark <= free


def kept_copies(
    free: Number, taken: Number, copies: Number, behind: Number, a: Arithmetic = INTEGERS
) -> Number:
    """Free GPU copies of a hit that survive its own allocation, to be adopted at its end.

    ``taken`` blocks of ``free`` leave the queue: those of the hit by touching, others from its
    head. The copies lie together, ``behind`` other free blocks between them and the tail.
    """
    return a.minimum(copies, a.maximum(free - taken - behind, 0))
