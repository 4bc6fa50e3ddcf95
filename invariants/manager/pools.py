"""Rules of one pool on its own: conservation, accounting, the hash map, the null block."""

from collections import Counter
from collections.abc import Iterator

from invariants.manager.transition import Transition, host_row, hot_rows, indexer_row
from invariants.violation import Cause, Seen
from model.pool import NULL
from model.snapshot import PoolState, Snapshot


def pools(transition: Transition) -> Iterator[tuple[str, PoolState]]:
    yield "GPU", transition.after.gpu
    if transition.after.host is not None:
        yield "host", transition.after.host


def conservation(transition: Transition) -> Iterator[Seen]:
    """I1."""
    for name, pool in pools(transition):
        queued = set(pool.free)
        if len(queued) != len(pool.free):
            twice = [block for block, count in Counter(pool.free).items() if count > 1]
            yield Seen(
                Cause.QUEUED_TWICE,
                f"excess: {name} blocks {twice} are in the free queue more than once",
            )
        if pool.num_free != len(pool.free):
            yield Seen(
                Cause.WRONG_COUNTER,
                f"the {name} pool counts {pool.num_free} free blocks, its queue has {pool.free}",
            )
        for block, count in enumerate(pool.counts):
            if block == NULL or (count == 0) == (block in queued):
                continue
            if count == 0:
                yield Seen(
                    Cause.LOST,
                    f"deficit: {name} block {block} has no holder and is not in the free queue",
                )
            elif count > 0:
                yield Seen(
                    Cause.FREE_AND_HELD,
                    f"excess: {name} block {block} is in the free queue with count {count}",
                )


def gpu_holders(snapshot: Snapshot, hisparse: bool, groups: int) -> Counter[int]:
    """References to each GPU block, recomputed: rows that hold, transfers, deferred frees."""
    holders: Counter[int] = Counter(snapshot.held)
    for request in snapshot.requests:
        holders.update(indexer_row(request, hisparse))
        unpinned = set(request.unpinned)
        for row in request.resident:
            holders.update([block for page, block in enumerate(row) if page not in unpinned])
        if hisparse:
            for row in hot_rows(request, groups):
                holders.update(row)
    for transfer in snapshot.transfers:
        holders.update(transfer.blocks)
    for blocks in snapshot.deferred:
        holders.update(blocks)
    return holders


def host_holders(snapshot: Snapshot) -> Counter[int]:
    """References to each host block: rows, transfers, leases of ended requests."""
    holders: Counter[int] = Counter()
    for request in snapshot.requests:
        holders.update(host_row(request, hisparse=True))
    leases = {transfer.request: transfer.lease for transfer in snapshot.transfers if transfer.lease}
    for lease in leases.values():
        holders.update(lease)
    for transfer in snapshot.transfers:
        holders[transfer.host_block] += 1
    for blocks in snapshot.deferred_host:
        holders.update(blocks)
    return holders


def accounting(transition: Transition) -> Iterator[Seen]:
    """I2."""
    c, after = transition.configuration, transition.after
    expected = {"GPU": gpu_holders(after, c.hisparse, c.num_resident_groups)}
    if c.hisparse:
        expected["host"] = host_holders(after)
    for name, pool in pools(transition):
        holders = expected[name]
        for block, count in enumerate(pool.counts):
            held = holders.get(block, 0)
            if block != NULL and count != held:
                word = "excess" if count > held else "deficit"
                yield Seen(
                    Cause.EXCESS if count > held else Cause.DEFICIT,
                    f"{word}: {name} block {block} has count {count}, holders {held}",
                )


def hash_map(transition: Transition) -> Iterator[Seen]:
    """I10, first half: the map and the blocks' own keys agree."""
    for name, pool in pools(transition):
        by_block = set(pool.keys)
        by_key = {
            (block, group, content) for group, content, *found in pool.cached for block in found
        }
        for block, group, content in sorted(by_block - by_key):
            yield Seen(
                Cause.KEY_NOT_FOUND,
                f"{name} block {block} has key ({group}, {content}) and is not found by it",
            )
        for block, group, content in sorted(by_key - by_block):
            yield Seen(
                Cause.FOUND_WITHOUT_KEY,
                f"{name} block {block} is found by key ({group}, {content}) and does not have it",
            )


def equal_keys(transition: Transition) -> Iterator[Seen]:
    """I10, second half: equal keys mean equal tokens and equal salts, and the other way round."""
    names: dict[int, int] = {}
    contents: dict[int, int] = {}
    for request in transition.after.requests:
        for page, content in enumerate(request.contents):
            name = transition.ghost.prefix_name(request.id, page)
            if names.setdefault(content, name) != name:
                yield Seen(
                    Cause.ONE_HASH_TWO_PREFIXES,
                    f"two different prefixes have one block hash, content {content}",
                )
            if contents.setdefault(name, content) != content:
                yield Seen(
                    Cause.ONE_PREFIX_TWO_HASHES,
                    f"one prefix has two block hashes, contents {contents[name]} and {content}",
                )


def null_block(transition: Transition) -> Iterator[Seen]:
    """I13."""
    for name, pool in pools(transition):
        if NULL in pool.free:
            yield Seen(Cause.NULL_FREE, f"the null block is in the free queue of the {name} pool")
        if pool.keys and pool.keys[0][0] == NULL:
            yield Seen(Cause.NULL_KEYED, f"the null block of the {name} pool has a key")
    if NULL in transition.new_gpu_blocks:
        yield Seen(Cause.NULL_HANDED_OUT, "the null block was handed out")


def quiescence(transition: Transition) -> Iterator[Seen]:
    """I12."""
    after = transition.after
    if after.requests or after.transfers or after.deferred or after.held:
        return
    for name, pool in pools(transition):
        if len(pool.free) != len(pool.counts) - 1:
            missing = sorted(set(range(1, len(pool.counts))) - set(pool.free))
            yield Seen(
                Cause.NOT_FREE, f"nothing is left to do, and {name} blocks {missing} are not free"
            )
    if after.readers or after.unsent:
        yield Seen(
            Cause.LEFT_OVER, f"nothing is left to do, and {after.readers or after.unsent} remain"
        )
