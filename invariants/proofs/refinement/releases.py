"""A request gives its blocks back, now or later."""

from collections.abc import Mapping, Sequence

from invariants.proofs.refinement.log import Call, Operation
from invariants.proofs.refinement.system import NotAStepError, System
from invariants.proofs.transition_system.actions.action import (
    chosen_cut,
    chosen_slots,
    ended,
    to_head,
)
from invariants.proofs.transition_system.execute import EMPTY, SET, Witness
from invariants.proofs.transition_system.interpretation import Slot
from invariants.proofs.transition_system.structure import Row
from model.pool import NULL

Flags = Mapping[str, frozenset[Row]]
"""Whether a block that becomes free goes to the head of the queue."""


def follow_release(system: System, call: Call) -> None:
    (life,) = call.lives
    slots = system.live_slots(life)
    if not slots:
        return
    pending = {slot for slot in slots if system.structure.matching("transfer", {0: slot})}
    system.take(
        "release",
        Witness(
            relations={
                ended.name: SET if life.finished else EMPTY,
                chosen_slots.name: frozenset((slot,) for slot in slots),
                chosen_cut.name: frozenset(() if life.finished else ((x,) for x in pending)),
            }
        ),
    )
    for operation in call.operations:
        if operation.pool == "host":
            continue
        held = [slot for slot in slots if system.structure.matching("pins", {0: slot})]
        if operation.name == "unpin":
            follow_part(system, operation, held)
        else:
            follow_give_back(system, operation, held)


def follow_part(system: System, operation: Operation, held: Sequence[Slot]) -> None:
    (block,) = operation.blocks
    for slot in held:
        if system.has("pins", slot, block):
            system.take("part", Witness(slot, block))
            return
    raise NotAStepError(f"block {block} is unpinned by a release that does not hold it")


def follow_give_back(system: System, operation: Operation, held: Sequence[Slot]) -> None:
    """Each block, by one of these slots that holds it and has not given it back yet."""
    for block, flags in freeing_order(operation):
        slots = [slot for slot in held if system.has("pins", slot, block)]
        if not slots:
            raise NotAStepError(f"block {block} is given back, and none of its slots holds it")
        system.take("give_back", Witness(slots[0], block, relations=flags))


def freeing_order(operation: Operation) -> list[tuple[int, Flags]]:
    """The blocks of one release, in an order in which they come to lie as they do.

    Those that others still hold are first. One release queues its blocks together, so what goes to
    the head goes there one by one from the last on.
    """
    released = [block for block in operation.blocks if block != NULL]
    old = operation.before.free
    new = [block for block in operation.after.free if block not in old]
    tail_starts = operation.after.free.index(old[0]) if old else 0
    heads = [block for block in new if operation.after.free.index(block) < tail_starts]
    tails = [block for block in new if block not in heads]
    held = list(released)
    for block in new:
        if block in held:
            held.remove(block)
    at_head: Flags = {to_head.name: SET}
    return [
        *((block, {}) for block in held),
        *((block, at_head) for block in reversed(heads)),
        *((block, {}) for block in tails),
    ]
