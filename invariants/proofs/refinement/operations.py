"""Operations on the pools, one by one, outside an allocation's own pops."""

from collections.abc import Sequence

from invariants.proofs.refinement.log import Call, Operation
from invariants.proofs.refinement.releases import follow_give_back, freeing_order
from invariants.proofs.refinement.system import NotAStepError, System
from invariants.proofs.transition_system.execute import Witness
from invariants.proofs.transition_system.interpretation import INDEXER, RESIDENT, Slot


def follow_operations(system: System, call: Call, operations: Sequence[Operation]) -> None:
    writers = _writers(system, operations)
    previous: Operation | None = None
    for operation in operations:
        if operation.pool == "host":
            follow_host(system, call, operation, writers)
        else:
            _follow_gpu(system, call, operation, previous)
        previous = operation


def _writers(system: System, operations: Sequence[Operation]) -> set[tuple[int, int]]:
    """(request, life) of the writes that are done in these operations."""
    released = [block for op in operations if op.name == "release" for block in op.blocks]
    return {slot[:2] for block in released for slot in system.slots("transfer", block)}


def _follow_gpu(
    system: System, call: Call, operation: Operation, previous: Operation | None
) -> None:
    match operation.name:
        case "touch":
            # A write holds its host block first; adoption touches no host block.
            writes = previous is not None and (previous.pool, previous.name) == ("host", "touch")
            for block in operation.blocks:
                if writes:
                    _start_write(system, block)
                else:
                    _adopt(system, call, block)
        case "unpin":
            _unpin(system, call, operation)
        case "insert":
            _give_key(system, operation)
        case "evict":
            _take_keys(system, operation.blocks)
        case "release" if call.name == "update_transfers":
            _complete(system, operation)
        case "release":
            dead = {slot for block in operation.blocks for slot in system.slots("pins", block)}
            follow_give_back(system, operation, sorted(dead - set(system.all_slots("live"))))
        case "reset":
            _reset(system, call, operation)
        case _:
            raise NotAStepError(f"{operation.name} outside an allocation")


def _start_write(system: System, block: int) -> None:
    for slot in system.slots("fresh", block):
        system.take("start_write", Witness(slot, block))


def _adopt(system: System, call: Call, block: int) -> None:
    """The first request of the call that waits for this page takes it."""
    for slot in (slot for life in call.lives for slot in system.live_slots(life)):
        page = system.page(slot)
        if system.has("wanting", slot) and system.has("copy", block, page):
            system.take("adopt", Witness(slot, block, page))
            return
    raise NotAStepError(f"block {block} is pinned, and no request waits for its copy")


def _unpin(system: System, call: Call, operation: Operation) -> None:
    (block,) = operation.blocks
    unpinned = {(request.id, page) for request in call.after.requests for page in request.unpinned}
    slots = [slot for slot in system.slots("pins", block) if (slot[0], slot[-1]) in unpinned]
    # Requests may share the block: the first of the call whose page is unpinned after it.
    order = {life.key: n for n, life in enumerate(call.lives)}
    slots.sort(key=lambda slot: order.get(slot[:2], len(order)))
    if not slots:
        raise NotAStepError(f"block {block} is unpinned, and no slot that holds it gives it up")
    system.take("unpin", Witness(slots[0], block))


def _give_key(system: System, operation: Operation) -> None:
    (block,) = operation.blocks
    assert operation.key is not None
    page = (INDEXER, 0, operation.key[1])
    for slot in system.slots("fresh", block):
        system.take("give_key", Witness(slot, block, page))


def _take_keys(system: System, blocks: Sequence[int]) -> None:
    for block in blocks:
        for row in system.structure.matching("keyed", {0: block}):
            system.take("take_key", Witness(block=block, page=row[1]))


def _complete(system: System, operation: Operation) -> None:
    """A worker is done with a page: of a request that is still there, or of one that is gone."""
    for block, flags in freeing_order(operation):
        for slot in system.slots("transfer", block):
            page = system.page(slot)
            if system.has("live", slot):
                system.take("complete_write", Witness(slot, block, page))
            else:
                system.take("complete_orphan", Witness(slot, block, page, flags))


def _reset(system: System, call: Call, operation: Operation) -> None:
    blocks = range(len(call.after.gpu.counts))
    keys = {block for block, *_ in call.after.gpu.keys}
    for block in blocks:
        if system.has("watched", block) and block not in call.after.gpu.watched:
            system.take("stop_reading", Witness(block=block))
    follow_losses(system, operation)
    _take_keys(system, [block for block in blocks if block not in keys])


# What the host pool shows.


def follow_host(
    system: System, call: Call, operation: Operation, writers: set[tuple[int, int]]
) -> None:
    groups = range(system.configuration.num_resident_groups)
    for content in sorted(operation.before.published - operation.after.published):
        for group in groups:
            system.take("withdraw", Witness(page=(RESIDENT, group, content)))
    if operation.name != "insert" or operation.key is None:
        return
    lives = {life.key for life in call.lives} | writers
    for group in groups:
        page = (RESIDENT, group, operation.key[1])
        system.take("publish", Witness(_publisher(system, page, lives), page=page))


def _publisher(
    system: System, page: tuple[str, int, int], lives: set[tuple[int, int]]
) -> Slot | None:
    """The slot whose host page gets its key: one that is not yet published, if there is one.

    A request that was preempted and came back may have writes of both lives done at once.
    """
    slots = [slot for slot in system.slots_of_page(page) if slot[:2] in lives]
    slots.sort(key=lambda slot: (not system.publishes(slot), system.has("offered", slot)))
    return slots[0] if slots else None


def follow_losses(system: System, operation: Operation) -> None:
    """A page of which one group's copy is handed out is lost in the other groups too."""
    copies = operation.before.copies - operation.after.copies
    readers = operation.before.unpinned - operation.after.unpinned
    for block, page in system.copies():
        if page[2] in copies and block not in operation.blocks:
            system.take("forget_copy", Witness(block=block, page=page))
    for slot, block in system.unpinned_readers():
        if (slot[0], slot[-1]) in readers and block not in operation.blocks:
            system.take("lose_page", Witness(slot, block))
