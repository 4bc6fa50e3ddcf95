"""Goals: what a search must have seen at least once, so that a green run is not a vacuous one."""

from collections import Counter
from dataclasses import dataclass, field

from model.dialect import Dialect
from model.manager.actions import Action, CompleteTransfers, Preempt
from model.manager.configuration import Configuration
from model.manager.events import (
    Admitted,
    Allocated,
    Deferred,
    Preempted,
    Refused,
    Response,
    StepEnded,
)
from model.pool import NULL
from model.request import Status
from model.snapshot import RequestState, Snapshot

ADOPTED_ALL = "hit adopted all copies"
ADOPTED_SOME = "hit adopted some copies"
ADOPTED_NONE = "hit adopted no copy"
ADMITTED_LATER = "refused, then admitted"
REUSED = "block reused under a reader"
LATE_COMPLETION = "transfer completed after its request ended"
RESUMED = "preempted request resumed from host pages"
POOL_EMPTY = "GPU pool empty"
HOST_EMPTY = "host pool empty"
COPY_TAKEN = "second request took a copy that the first was about to adopt"
DEFERRED = "release deferred"
GROUPS = "several resident groups"
ONE_HASH = "several blocks under one hash"
CHUNKED = "chunked prefill"
SAME_STEP = "preempted in the step that had scheduled it"
SEVERAL = "several allocations in one step"
UNCACHED = "prefix caching off"
FULL_ATTENTION = "one full-attention group"
OUT_OF_STEP = "workers out of step"
EARLIER_LIFE = "write of an earlier life completed after its request resumed"

GOALS = (
    ADOPTED_ALL, ADOPTED_SOME, ADOPTED_NONE, ADMITTED_LATER, REUSED, LATE_COMPLETION, RESUMED,
    POOL_EMPTY, HOST_EMPTY, COPY_TAKEN, DEFERRED, GROUPS, ONE_HASH, CHUNKED, SAME_STEP, SEVERAL,
    UNCACHED, FULL_ATTENTION, OUT_OF_STEP, EARLIER_LIFE,
)  # fmt: skip


def unreachable_goals(dialect: Dialect) -> dict[str, str]:
    """Goals that this dialect cannot meet, with the reason."""
    reasons: dict[str, str] = {}
    if dialect.adopt_at != "end_of_step":
        reasons[COPY_TAKEN] = "copies are adopted within the hit's own allocation"
    if dialect.adopt_at == "commit":
        reasons[ADOPTED_SOME] = "copies are adopted before any block is popped: all that are left"
    return reasons


@dataclass(slots=True)
class GoalWatcher:
    """Counts the goals that the steps of one program meet."""

    configuration: Configuration
    dialect: Dialect
    seen: Counter[str] = field(default_factory=Counter)
    _refused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        c = self.configuration
        self.seen[GROUPS] += c.num_resident_groups > 1 and c.hisparse
        self.seen[UNCACHED] += not c.prefix_caching
        self.seen[FULL_ATTENTION] += not c.hisparse

    def watch(self, before: Snapshot, action: Action, response: Response, after: Snapshot) -> None:
        for event in response:
            if isinstance(event, Allocated):
                self._allocated(before, event, after)
            elif isinstance(event, Refused):
                self._refused.add(event.request)
            elif isinstance(event, StepEnded):
                self.seen[SEVERAL] += event.requests > 1
            elif isinstance(event, Deferred):
                self.seen[DEFERRED] += 1
        self._adopted(before, after)
        if isinstance(action, Preempt) and isinstance(response[0], Preempted):
            victim = response[0].request
            self.seen[SAME_STEP] += any(r.id == victim and r.scheduled for r in before.requests)
        if isinstance(action, CompleteTransfers):
            self._completed(before, after)
            self.seen[OUT_OF_STEP] += any(0 < t.done < t.expected for t in after.transfers)
        self.seen[POOL_EMPTY] += not after.gpu.free
        self.seen[HOST_EMPTY] += after.host is not None and not after.host.free
        if any(len(entry) > 3 for entry in after.gpu.cached):
            self.seen[ONE_HASH] += 1

    def _completed(self, before: Snapshot, after: Snapshot) -> None:
        alive = {request.id: request for request in before.requests}
        left = {transfer.id for transfer in after.transfers}
        for transfer in before.transfers:
            if transfer.id in left:
                continue
            owner = alive.get(transfer.request)
            if owner is None:
                self.seen[LATE_COMPLETION] += 1
            elif (transfer.page, transfer.id) not in owner.pending:
                self.seen[EARLIER_LIFE] += owner.status == Status.RUNNING

    def _allocated(self, before: Snapshot, event: Allocated, after: Snapshot) -> None:
        request_id, tokens, groups = event.request, event.tokens, event.blocks
        state = next((r for r in after.requests if r.id == request_id), None)
        if state is None:
            return
        self.seen[CHUNKED] += state.computed + tokens < state.num_tokens
        gpu = groups[1:] if self.configuration.hisparse else groups
        fresh = {block for blocks in gpu for block in blocks}
        self.seen[REUSED] += any(block in fresh for block, _, _ in before.readers)
        if isinstance(event, Admitted):
            self.seen[ADMITTED_LATER] += request_id in self._refused
            self._hit(before, event, state)
        for other in before.requests:
            if other.to_adopt and other.id != request_id:
                wanted = set(other.contents[: other.to_adopt])
                self.seen[COPY_TAKEN] += any(
                    copy[0] in wanted and fresh.intersection(copy[1:]) for copy in before.copies
                )

    def _hit(self, before: Snapshot, event: Admitted, state: RequestState) -> None:
        pages = event.hit // self.configuration.block_size
        if not pages or not self.configuration.hisparse:
            return
        earlier = next(r for r in before.requests if r.id == state.id)
        self.seen[RESUMED] += earlier.status == Status.PREEMPTED
        if not state.to_adopt:
            self._count_adopted(state, pages)

    def _adopted(self, before: Snapshot, after: Snapshot) -> None:
        """Adoption at the end of the step: the pages that were to be adopted are settled."""
        for earlier in before.requests:
            if earlier.to_adopt:
                for state in after.requests:
                    if state.id == earlier.id and state.resident and not state.to_adopt:
                        self._count_adopted(state, earlier.to_adopt)

    def _count_adopted(self, state: RequestState, pages: int) -> None:
        adopted = sum(block != NULL for block in state.resident[0][:pages])
        goal = ADOPTED_SOME
        if adopted in (0, pages):
            goal = ADOPTED_ALL if adopted else ADOPTED_NONE
        self.seen[goal] += 1
