"""What the model did, as actions of the transition system: which, and about which slot and block.

The order is that of the model, but for one thing: in an allocation, host pages lose their keys
after the touches of the hit instead of among them, since the system does no publication while a hit
is touched. Nothing in between depends on it.
"""

from invariants.proofs.refinement.allocation import follow_allocation, follow_hold
from invariants.proofs.refinement.log import Call
from invariants.proofs.refinement.operations import follow_operations
from invariants.proofs.refinement.releases import follow_release
from invariants.proofs.refinement.system import System
from invariants.proofs.transition_system.execute import Witness
from invariants.proofs.transition_system.interpretation import RESIDENT


def follow(system: System, call: Call) -> None:
    """Take the actions that a call was. Raises NotAStepError where the system cannot."""
    match call.name:
        case "allocate":
            follow_allocation(system, call)
        case "hold":
            follow_hold(system, call)
        case "free" | "pop":
            follow_release(system, call)
        case _:
            follow_operations(system, call, call.operations)
    _record_copies(system, call)
    if call.name == "end_step":
        _forgo_copies(system, call)


def _record_copies(system: System, call: Call) -> None:
    """Copies are no pool's business: those that are new after the call were recorded in it."""
    for content, *blocks in call.after.copies:
        for group, block in enumerate(blocks):
            page = (RESIDENT, group, content)
            if system.has("copy", block, page):
                continue
            for slot in system.slots("reads", block):
                if system.page(slot) == page:
                    system.take("record_copy", Witness(slot, block, page))
                    break


def _forgo_copies(system: System, call: Call) -> None:
    """The end of a step adopts what copies there are; what is left of a hit stays on the host."""
    for life in call.lives:
        for slot in system.live_slots(life):
            if system.has("wanting", slot):
                system.take("forgo", Witness(slot, page=system.page(slot)))
