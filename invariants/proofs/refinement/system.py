"""The transition system as it is carried along a run of the model."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import cast

from invariants.proofs.refinement.log import Call, Life
from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.system import initial
from invariants.proofs.transition_system.evaluate import holds
from invariants.proofs.transition_system.execute import (
    Executable,
    Witness,
    chosen,
    executable,
    execute,
    refused,
)
from invariants.proofs.transition_system.interpretation import (
    HOT,
    INDEXER,
    RESIDENT,
    Page,
    Slot,
)
from invariants.proofs.transition_system.structure import Element, Structure
from model.manager.configuration import Configuration
from model.request import Request
from model.snapshot import RequestState

Row = tuple[str, int]
"""(kind of row, group)."""


def held_row(call: Call) -> tuple[int, int, str, int]:
    """The row of the blocks that a ``Hold`` takes away: no request's, and of one time only."""
    return -1, len(call.before.held), "held", 0


class NotAStepError(Exception):
    """The transition system cannot do what the model did."""


@dataclass(slots=True)
class System:
    configuration: Configuration
    structure: Structure
    executables: Mapping[str, Executable]
    taken: Counter[str] = field(default_factory=Counter)
    """How often each action was taken."""

    def take(self, name: str, witness: Witness) -> None:
        """Take an action. Raises NotAStepError if its guard fails."""
        action = self.executables[name]
        seen = chosen(action, self.structure, witness)
        why = refused(action, seen)
        if why is not None:
            about = ", ".join(f"{key} = {element}" for key, element in witness.constants.items())
            raise NotAStepError(f"{name} ({about}): {why}" if about else f"{name}: {why}")
        self.structure = execute(action, seen)
        self.taken[name] += 1

    def has(self, relation: str, *row: Element) -> bool:
        return row in self.structure.rows(relation)

    def slots(self, relation: str, block: Element) -> list[Slot]:
        """Slots that a relation of slots and blocks has for a block, in a fixed order."""
        rows = self.structure.matching(relation, {1: block})
        return sorted(_slot(row[0]) for row in rows)

    def page(self, slot: Slot) -> Page | None:
        pages = self.structure.matching("page", {0: slot})
        return _page(pages[0][1]) if pages else None

    def publishes(self, slot: Slot) -> bool:
        """Whether the request can still publish this page, and it is complete."""
        here = self.has("live", slot) or self.has("leased", slot)
        return here and self.has("valid", slot)

    def copies(self) -> list[tuple[int, Page]]:
        """(block, page) of each recorded copy."""
        return sorted((_block(b), _page(p)) for b, p in self.structure.rows("copy"))

    def unpinned_readers(self) -> list[tuple[Slot, int]]:
        """Slots that read a block without holding it."""
        rows = self.structure.rows("reads") - self.structure.rows("pins")
        return sorted((_slot(s), _block(b)) for s, b in rows)

    def all_slots(self, relation: str) -> list[Slot]:
        """The slots of a relation that is about slots alone."""
        return sorted(_slot(row[0]) for row in self.structure.rows(relation))

    def live_slots(self, life: Life) -> list[Slot]:
        return [slot for slot in self.all_slots("live") if slot[:2] == life.key]

    def slots_of_page(self, page: Page) -> list[Slot]:
        return sorted(_slot(row[0]) for row in self.structure.matching("page", {1: page}))


# Elements of a structure may be anything; here they are what the interpretation made them.


def _slot(element: Element) -> Slot:
    return cast("Slot", element)


def _block(element: Element) -> int:
    return cast("int", element)


def _page(element: Element) -> Page:
    return cast("Page", element)


def start(
    configuration: Configuration,
    free: Sequence[int],
    calls: Sequence[Call],
    requests: Mapping[int, Request],
    actions: Sequence[Action],
) -> System:
    """The system before anything happened, with all slots that a run will use.

    What never changes of a slot (its page, its row) is a matter of the whole run: its page has the
    content that the request's tokens come to, also when they are not yet known.
    """
    slots = sorted(_slots_of_a_run(configuration, calls))
    contents = {content for request in requests.values() for content in request.contents}
    groups = range(configuration.num_resident_groups)
    pages = {(RESIDENT, group, content) for group in groups for content in contents}
    pages |= {(INDEXER, 0, content) for content in contents}
    rows: dict[tuple[Element, ...], list[Slot]] = defaultdict(list)
    for slot in slots:
        rows[slot[:4]].append(slot)
    structure = Structure(
        domains={
            "Block": tuple(range(1, configuration.num_blocks)),
            "Slot": tuple(slots),
            "Page": tuple(sorted(pages)),
        },
        relations={
            "page": frozenset(_pages(slots, requests)),
            "resident": frozenset((slot,) for slot in slots if slot[2] == RESIDENT),
            "before": frozenset(pair for row in rows.values() for pair in combinations(row, 2)),
            "queued": frozenset((block,) for block in free),
            "ahead": frozenset(combinations(free, 2)),
        },
        counters={"free": len(free), "to_touch": 0, "to_pop": 0, "to_pin": 0},
    )
    if not holds(initial(), structure):
        raise NotAStepError("the model does not start in an initial state")
    return System(configuration, structure, {action.name: executable(action) for action in actions})


def _slots_of_a_run(configuration: Configuration, calls: Sequence[Call]) -> set[Slot]:
    """Every place in a row that some allocation filled, and those of ``Hold``."""
    slots: set[Slot] = set()
    for call in calls:
        taken = len(call.after.held) - len(call.before.held)
        slots.update((*held_row(call), position) for position in range(taken))
        if call.name != "allocate":
            continue
        (life,) = call.lives
        for request in call.after.requests:
            if request.id == life.request:
                for row, blocks in rows_of(configuration, request):
                    filled = range(len(blocks))
                    slots.update((life.request, life.number, *row, n) for n in filled)
    return slots


def rows_of(c: Configuration, request: RequestState) -> list[tuple[Row, tuple[int, ...]]]:
    """The rows of a request, in the order in which an allocation lengthens them."""
    if not c.hisparse:
        return [((INDEXER, 0), request.tables[0] if request.tables else ())]
    hot = request.tables[2 + c.num_resident_groups :]
    return [
        ((INDEXER, 0), request.tables[1]),
        *(((RESIDENT, group), row) for group, row in enumerate(request.resident)),
        *(((HOT, group), row) for group, row in enumerate(hot)),
    ]


def _pages(slots: Sequence[Slot], requests: Mapping[int, Request]) -> Iterator[tuple[Slot, Page]]:
    for slot in slots:
        request, _, kind, group, position = slot
        if kind in (INDEXER, RESIDENT) and position < len(requests[request].contents):
            yield slot, (kind, group, requests[request].contents[position])
