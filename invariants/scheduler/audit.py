"""The audit: rules on the whole state of the pools, for any cache, looked at now and then.

What costs a pass over the pool is not asked after every action; see ``Judge``.
"""

from collections.abc import Iterable, Iterator

from invariants.scheduler.found import Found
from invariants.violation import Cause
from model.scheduler.plan import PoolState, RequestView


def audit(pool: PoolState) -> Iterator[Found]:
    """What is wrong with a pool: conservation, accounting, the hash map, the null block."""
    yield from _conservation(pool)
    yield from _accounting(pool)
    yield from _hash_map(pool)
    if pool.null in pool.free or pool.null in pool.keyed:
        yield "I13", Cause.NULL_FREE, f"{pool.name}: the null block is free or has a hash"


def _conservation(pool: PoolState) -> Iterator[Found]:
    if pool.num_free != len(pool.free):
        yield (
            "I1",
            Cause.WRONG_COUNTER,
            f"{pool.name}: counter {pool.num_free}, {len(pool.free)} blocks in the queue",
        )
    free = set(pool.free)
    if len(free) != len(pool.free):
        twice = sorted({block for block in pool.free if pool.free.count(block) > 1})
        yield (
            "I1",
            Cause.QUEUED_TWICE,
            f"{pool.name}: excess: blocks {twice} are in the queue twice",
        )
    for block, count in enumerate(pool.counts):
        if block == pool.null:
            continue
        if block in free and count != 0:
            yield (
                "I1",
                Cause.FREE_AND_HELD,
                f"{pool.name}: excess: block {block} is free with {count} references",
            )
        if block not in free and count <= 0:
            yield "I1", Cause.LOST, f"{pool.name}: deficit: block {block} is neither free nor held"


def _accounting(pool: PoolState) -> Iterator[Found]:
    for block, count in enumerate(pool.counts):
        holders = pool.holders.get(block, ())
        if block != pool.null and count != len(holders):
            cause = Cause.EXCESS if count > len(holders) else Cause.DEFICIT
            held = ", ".join(holders) or "nothing"
            yield "I2", cause, f"{pool.name}: block {block} has {count} references, held by {held}"


def _hash_map(pool: PoolState) -> Iterator[Found]:
    for block in pool.keyed.keys() | pool.found.keys():
        if pool.keyed.get(block) != pool.found.get(block):
            yield (
                "I10",
                Cause.KEYS_DIFFER,
                f"{pool.name}: the hash of block {block} is not the one it is found by",
            )


def counters(views: Iterable[RequestView]) -> Iterator[Found]:
    """I17: what is counted of a request is never below zero."""
    for view in views:
        if min(view.computed, view.in_flight, view.placeholders) < 0:
            yield (
                "I17",
                Cause.BELOW_ZERO,
                f"a counter of request {view.id} is below zero: {view}",
            )


def quiescence(pool: PoolState) -> Iterator[Found]:
    """When everything has ended, everything is free."""
    lost = len(pool.counts) - 1 - len(set(pool.free))
    if lost:
        kept = sorted(set(range(len(pool.counts))) - set(pool.free) - {pool.null})
        yield (
            "I12",
            Cause.NOT_FREE,
            f"{pool.name}: all requests have ended, and blocks {kept} are not free",
        )
