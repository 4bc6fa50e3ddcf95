"""One allocation: admission, the touches of its hit, its pops, and what it does at its end."""

from collections.abc import Sequence

from invariants.proofs.refinement.log import Call, Operation
from invariants.proofs.refinement.operations import (
    follow_host,
    follow_losses,
    follow_operations,
)
from invariants.proofs.refinement.system import System, held_row, rows_of
from invariants.proofs.transition_system.actions.action import (
    chosen_due,
    chosen_hits,
    chosen_pins,
    chosen_pops,
    chosen_slots,
    chosen_touches,
    chosen_wanting,
    ended,
)
from invariants.proofs.transition_system.execute import SET, Witness
from invariants.proofs.transition_system.interpretation import INDEXER, RESIDENT, Slot
from model.holding import Hit


def follow_allocation(system: System, call: Call) -> None:
    """A refused allocation is no step."""
    if not call.operations:
        return
    (life,) = call.lives
    new = not system.live_slots(life)
    hit = call.hit if new else Hit()
    wanted = _wanted(system, call, len(hit.indexer)) if new else []
    # The first two operations of a new request touch the host blocks and the blocks of its hit.
    rest = call.operations[2:] if new else call.operations
    pops = sum(op.asked for op in rest if op.pool == "gpu")
    _begin(system, hit.indexer, pops, wanted)
    for position, block in enumerate(hit.indexer):
        slot = (*life.key, INDEXER, 0, position)
        system.take("touch", Witness(slot, block, system.page(slot)))
    last_take = max(n for n, op in enumerate(rest) if (op.pool, op.name) == ("gpu", "take"))
    _follow_pops(system, call, rest[: last_take + 1])
    if rest[last_take].asked > len(rest[last_take].blocks):
        return  # It raised.
    if not pops:
        system.take("finish", Witness())
    follow_operations(system, call, rest[last_take + 1 :])
    if pops:
        system.take("finish", Witness())
    for slot in wanted:
        # What a hit found on the host is there under its own name too.
        system.take("publish", Witness(slot, page=system.page(slot)))


def _wanted(system: System, call: Call, pages: int) -> list[Slot]:
    c = system.configuration
    (life,) = call.lives
    groups = range(c.num_resident_groups if c.hisparse else 0)
    return [(*life.key, RESIDENT, group, page) for group in groups for page in range(pages)]


def _begin(system: System, hit: tuple[int, ...], pops: int, wanted: list[Slot]) -> None:
    """Admission, with what the predictor counts: the hit's free blocks, the pops, free copies."""
    pages = {system.page(slot) for slot in (*wanted, *system.all_slots("wanting"))}
    due = frozenset(
        (block,) for block, page in system.copies() if page in pages and system.has("queued", block)
    )
    witness = Witness(
        relations={
            chosen_hits.name: frozenset((block,) for block in hit),
            chosen_wanting.name: frozenset((slot,) for slot in wanted),
            chosen_due.name: due,
        },
        counters={
            chosen_touches.name: sum(system.has("queued", block) for block in hit),
            chosen_pops.name: pops,
            chosen_pins.name: len(due),
        },
    )
    system.take("begin", witness)


def _follow_pops(system: System, call: Call, operations: Sequence[Operation]) -> None:
    """The pops of each row; adoption before them, if it is at the commit."""
    (life,) = call.lives
    (request,) = (each for each in call.after.requests if each.id == life.request)
    rows = iter(rows_of(system.configuration, request))
    for operation in operations:
        if (operation.pool, operation.name) == ("gpu", "take"):
            row, _ = next(rows)
            _pop(system, operation, (*life.key, *row))
        elif operation.pool == "gpu":
            follow_operations(system, call, [operation])
    # While a hit is touched the system takes no key away, so host blocks come after.
    for operation in operations:
        if operation.pool == "host":
            follow_host(system, call, operation, set())


def _pop(system: System, operation: Operation, row: tuple[int, int, str, int]) -> None:
    """Hand out the blocks of one row, each to the next slot of it."""
    filled = sum(slot[:4] == row for slot in system.all_slots("used"))
    for position, block in enumerate(operation.blocks, filled):
        system.take("pop", Witness((*row, position), block))
    follow_losses(system, operation)


def follow_hold(system: System, call: Call) -> None:
    """Other load: an allocation of a request that ends at once and keeps its blocks."""
    for operation in call.operations:
        _begin(system, (), operation.asked, [])
        _pop(system, operation, held_row(call))
        system.take("finish", Witness())
        held = frozenset((slot,) for slot in system.all_slots("live") if slot[:4] == held_row(call))
        system.take("release", Witness(relations={chosen_slots.name: held, ended.name: SET}))
