"""From the running model to the proof's vocabulary: a snapshot as a finite interpretation.

An ``Observer`` follows one trace, action by action, since some relations are about the past (what
a release left, what was ever durable). Between actions no allocation is going on, so the relations
of an allocation are empty. Not observed, because snapshots do not show the order inside an action:
which copies a release leaves while a step ends or an output arrives (residency updates unpin in the
same action); and external imports, which the model does not have. ``proofs.refinement`` follows the
order inside an action.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from invariants.proofs.transition_system.evaluate import (
    Refutation,
    counterexample,
    refutations,
)
from invariants.proofs.transition_system.invariant.conjunct import (
    ASSUMPTION,
    AXIOMS,
    COUNTING,
    Conjunct,
)
from invariants.proofs.transition_system.invariant.conjuncts import conjuncts
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.structure import Element, Structure
from model.manager.configuration import Configuration
from model.manager.events import Allocated, Ended, OutputProcessed, Preempted, Response, StepEnded
from model.pool import NULL
from model.snapshot import RequestState, Snapshot, TransferState

Slot = tuple[int, int, str, int, int]
"""(request, life, kind of row, group, position). What no row has is of request -1."""
Page = tuple[str, int, int]
"""(kind of row, group, content id)."""

INDEXER, RESIDENT, HOT = "indexer", "resident", "hot"


@dataclass(slots=True)
class Observer:
    configuration: Configuration
    lives: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How often each request was preempted."""
    durable: set[Page] = field(default_factory=set)
    cut: set[Slot] = field(default_factory=set)
    left: dict[int, Slot] = field(default_factory=dict)
    """Block in the queue → slot whose release put it there."""
    gone: set[Slot] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    """Requests that ended, which is not to be preempted."""
    _source: dict[int, int] = field(default_factory=dict)
    """Transfer → life of its request when it began."""
    _contents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _before: Snapshot | None = None

    def observe(self, response: Response, after: Snapshot) -> Structure:
        """Follow one action; return the state after it."""
        before = self._before
        if before is not None:
            self._follow_left(before, response, after)
            in_a_step = any(isinstance(event, StepEnded | OutputProcessed) for event in response)
            for event in response:
                if isinstance(event, Ended | Preempted) and not in_a_step:
                    self._release(before, after, event.request)
                if isinstance(event, Preempted):
                    self._preempt(before, event.request)
                elif isinstance(event, Ended):
                    self.ended.add(event.request)
            self._follow_transfers(before, after)
        for request in after.requests:
            self._contents[request.id] = request.contents
        for transfer in after.transfers:
            self._source.setdefault(transfer.id, self.lives[transfer.request])
        self._before = after
        return self._interpret(after)

    # The past

    def _follow_left(self, before: Snapshot, response: Response, after: Snapshot) -> None:
        """What was left and is not in the queue any more was handed out, or taken as a copy.

        The end of a step can adopt a copy and unpin it again, which shows by its new reader; if a
        request ended in it too, even that does not show.
        """
        kinds = {type(event) for event in response}
        queued = set(after.gpu.free) - {x[0] for x in set(after.readers) - set(before.readers)}
        if {StepEnded, Ended} <= kinds:
            self.left.clear()
        popped = set(after.held)
        for event in response:
            if isinstance(event, Allocated):
                popped.update(block for row in event.blocks for block in row)
        for block, slot in list(self.left.items()):
            if block not in queued:
                del self.left[block]
                if block in popped:
                    self.gone.add(slot)
        rows = {slot[:4] for slot in self.left.values()}
        self.gone = {slot for slot in self.gone if slot[:4] in rows}

    def _release(self, before: Snapshot, after: Snapshot, request_id: int) -> None:
        queued = set(after.gpu.free) - set(before.gpu.free)
        for request in before.requests:
            if request.id != request_id:
                continue
            pinned = set(request.valid) - set(request.unpinned) - {n for n, _ in request.pending}
            for group, row in enumerate(request.resident):
                for position in pinned.intersection(range(len(row))):
                    if row[position] in queued:
                        slot = self._slot(request.id, RESIDENT, group, position)
                        self.left[row[position]] = slot

    def _preempt(self, before: Snapshot, request_id: int) -> None:
        for request in before.requests:
            if request.id == request_id:
                self.cut.update(
                    self._slot(request_id, RESIDENT, group, position)
                    for position, _ in request.pending
                    for group in range(len(request.resident))
                )
        self.lives[request_id] += 1

    def _follow_transfers(self, before: Snapshot, after: Snapshot) -> None:
        """A write of an ended request makes its page durable, whether that is used or not."""
        pending = {transfer.id for transfer in after.transfers}
        for transfer in before.transfers:
            contents = self._contents[transfer.request]
            known = transfer.page < len(contents)
            if transfer.id not in pending and known and self._is_of_an_ended_life(transfer):
                self._make_durable(contents[transfer.page])

    def _is_of_an_ended_life(self, transfer: TransferState) -> bool:
        last = self._source[transfer.id] == self.lives[transfer.request]
        return last and transfer.request in self.ended

    def _make_durable(self, content: int) -> None:
        groups = self.configuration.num_resident_groups
        self.durable.update((RESIDENT, group, content) for group in range(groups))

    def _slot(self, request: int, kind: str, group: int, position: int) -> Slot:
        return request, self.lives[request], kind, group, position

    # The present

    def _interpret(self, snapshot: Snapshot) -> Structure:
        facts = _Facts()
        self._pool(facts, snapshot)
        pending = {
            transfer: request.id for request in snapshot.requests for _, transfer in request.pending
        }
        for request in snapshot.requests:
            self._request(facts, request, snapshot)
        orphans = [transfer for transfer in snapshot.transfers if transfer.id not in pending]
        unnamed = [block for blocks in snapshot.deferred for block in blocks]
        for transfer in orphans:
            self._orphan(facts, transfer, unnamed)
        for number, block in enumerate((*unnamed, *snapshot.held)):
            facts.add("pins", (-1, 0, "given up", 0, number), block)
        for slot in self.cut:
            facts.add("cut", slot)
        for block, slot in self.left.items():
            facts.add("left", block, slot)
        for slot in self.gone:
            facts.add("gone", slot)
        for page in self.durable:
            facts.add("durable", page)
        return facts.structure(len(snapshot.gpu.counts), snapshot.gpu.num_free)

    def _pool(self, facts: "_Facts", snapshot: Snapshot) -> None:
        for block in snapshot.gpu.free:
            facts.add("queued", block)
        for first, second in combinations(snapshot.gpu.free, 2):
            facts.add("ahead", first, second)
        for block in snapshot.gpu.watched:
            facts.add("watched", block)
        for block, _, content in snapshot.gpu.keys:
            facts.add("keyed", block, (INDEXER, 0, content))
        for content, *blocks in snapshot.copies:
            for group, block in enumerate(blocks):
                facts.add("copy", block, (RESIDENT, group, content))
        if snapshot.host is not None:
            for _, _, content in snapshot.host.keys:
                for group in range(self.configuration.num_resident_groups):
                    facts.add("published", (RESIDENT, group, content))

    def _request(self, facts: "_Facts", request: RequestState, snapshot: Snapshot) -> None:
        hisparse, groups = self.configuration.hisparse, self.configuration.num_resident_groups
        for group, row in enumerate(request.resident):
            for position, block in enumerate(row):
                slot = self._live(facts, request, RESIDENT, group, position)
                self._resident(facts, request, slot, block, snapshot)
        indexer = request.tables[1 if hisparse else 0] if request.tables else ()
        for position, block in enumerate(indexer):
            slot = self._live(facts, request, INDEXER, 0, position)
            facts.add("pins", slot, block)
            facts.add("reads" if position < request.indexer_cached else "fresh", slot, block)
        for group, row in enumerate(request.tables[2 + groups :] if hisparse else ()):
            for position, block in enumerate(row):
                slot = self._live(facts, request, HOT, group, position)
                facts.add("pins", slot, block)
                facts.add("fresh", slot, block)

    def _live(
        self, facts: "_Facts", request: RequestState, kind: str, group: int, position: int
    ) -> Slot:
        slot = self._slot(request.id, kind, group, position)
        facts.add("live", slot)
        if kind != HOT and position < len(request.contents):
            facts.add("page", slot, (kind, group, request.contents[position]))
        return slot

    def _resident(
        self, facts: "_Facts", request: RequestState, slot: Slot, block: int, snapshot: Snapshot
    ) -> None:
        position = slot[-1]
        facts.add("resident", slot)
        if position in request.valid:
            facts.add("valid", slot)
            if position < len(request.contents):
                self._make_durable(request.contents[position])
        host = request.tables[0]
        if position < request.host_cached and position < len(host) and host[position] != NULL:
            facts.add("offered", slot)
        if block == NULL:
            if position < request.to_adopt:
                facts.add("wanting", slot)
            return
        facts.add("reads" if position in request.valid else "fresh", slot, block)
        if position not in request.unpinned:
            facts.add("pins", slot, block)
        if position in dict(request.pending):
            facts.add("transfer", slot, block)
        if (block, request.id, position) in snapshot.readers:
            facts.add("owner", block, slot)

    def _orphan(self, facts: "_Facts", transfer: TransferState, unnamed: list[int]) -> None:
        """A write whose request is gone; a deferred release may hold its blocks too."""
        for group, block in enumerate(transfer.blocks):
            life = self._source[transfer.id]
            slot = (transfer.request, life, RESIDENT, group, transfer.page)
            facts.add("resident", slot)
            facts.add("transfer", slot, block)
            facts.add("fresh", slot, block)
            if self._is_of_an_ended_life(transfer):
                facts.add("leased", slot)
            if block in unnamed:
                unnamed.remove(block)
                facts.add("pins", slot, block)


class _Facts:
    """Relations as they are filled."""

    def __init__(self) -> None:
        self._relations: dict[str, set[tuple[Element, ...]]] = defaultdict(set)

    def add(self, relation: str, *row: Element) -> None:
        self._relations[relation].add(row)

    def structure(self, blocks: int, free: int) -> Structure:
        slots = sorted(self._elements(5))
        pages = sorted(self._elements(3))
        rows: dict[tuple[Element, ...], list[tuple[Element, ...]]] = defaultdict(list)
        for slot in slots:
            rows[slot[:4]].append(slot)
        for row in rows.values():
            self._relations["before"].update(combinations(row, 2))
        self._relations["used"] = {(slot,) for slot in slots}
        return Structure(
            domains={
                "Block": tuple(range(1, blocks)),
                "Slot": tuple(slots),
                "Page": tuple(pages),
            },
            relations={name: frozenset(rows) for name, rows in self._relations.items()},
            counters={"free": free, "to_touch": 0, "to_pop": 0, "to_pin": 0},
        )

    def _elements(self, length: int) -> set[tuple[Element, ...]]:
        """Slots are tuples of five, pages of three."""
        return {
            element
            for members in self._relations.values()
            for row in members
            for element in row
            if isinstance(element, tuple) and len(element) == length
        }


@dataclass(frozen=True, slots=True)
class Claim:
    """A conjunct, ready to be tried on many states."""

    conjunct: Conjunct
    ways: tuple[Refutation, ...]


def claims(policy: Policy) -> tuple[Claim, ...]:
    """The axioms and the invariant of a policy."""
    axioms = Conjunct("axioms", "all", "Rows are ordered; a slot has one page.", AXIOMS)
    counting = Conjunct("counting", "I4", ASSUMPTION, COUNTING)
    return tuple(
        Claim(conjunct, refutations(conjunct.formula))
        for conjunct in (axioms, counting, *conjuncts(policy))
    )


def violations(structure: Structure, claimed: Iterable[Claim]) -> Iterator[str]:
    """Conjuncts that a state does not satisfy, with the elements at which they fail."""
    for claim in claimed:
        found = counterexample(claim.ways, structure)
        if found is not None:
            where = ", ".join(f"{name} = {element}" for name, element in found.items())
            yield f"{claim.conjunct.name} ({claim.conjunct.rule}) fails at {where}"
