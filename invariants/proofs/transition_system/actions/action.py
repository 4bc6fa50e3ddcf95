"""An action of the transition system: a guard over the state before, and updates.

Every action is about at most one slot, one block and one page (``the_slot`` and so on); what the
engine does to several, in a loop, is several actions. Actions that are no part of an allocation may
run whenever no hit is being touched, which is more than any engine does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from invariants.proofs.transition_system.formula import (
    Counter,
    Formula,
    Integer,
    Relation,
    Update,
)
from invariants.proofs.transition_system.vocabulary import (
    BLOCK,
    BLOCK_TAKEN,
    PAGE_TAKEN,
    SLOT,
    SLOT_TAKEN,
)

Updates = Mapping[Relation, Update]


@dataclass(frozen=True, slots=True)
class Action:
    name: str
    sentence: str
    guard: Formula
    relations: Mapping[str, Update] = field(default_factory=dict)
    counters: Mapping[str, Integer] = field(default_factory=dict)


B, S, P = BLOCK_TAKEN, SLOT_TAKEN, PAGE_TAKEN

# What an action chooses beside the slot, the block and the page.
last = Relation("is_last_reference", ())
to_head = Relation("goes_to_head", ())
ended = Relation("request_ended", ())
chosen_hits = Relation("chosen_hits", (BLOCK,))
chosen_due = Relation("chosen_due", (BLOCK,))
chosen_wanting = Relation("chosen_wanting", (SLOT,))
chosen_imports = Relation("chosen_imports", (SLOT,))
chosen_slots = Relation("chosen_slots", (SLOT,))
chosen_cut = Relation("chosen_cut", (SLOT,))
chosen_touches, chosen_pops, chosen_pins = (
    Counter(f"chosen_{name}") for name in ("touches", "pops", "pins")
)
CHOICES = (
    last, to_head, ended, chosen_hits, chosen_due, chosen_wanting, chosen_imports, chosen_slots,
    chosen_cut,
)  # fmt: skip
CHOSEN_COUNTERS = (chosen_touches, chosen_pops, chosen_pins)


def action(
    name: str,
    sentence: str,
    guard: Formula,
    *relations: Updates,
    counters: Mapping[Counter, Integer] | None = None,
) -> Action:
    """Later updates of a relation replace earlier ones."""
    merged = {relation.name: update for each in relations for relation, update in each.items()}
    moved = {counter.name: value for counter, value in (counters or {}).items()}
    return Action(name, sentence, guard, merged, moved)
