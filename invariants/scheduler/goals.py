"""Goals: what a search of whole engine steps must have seen, so that a green run is not vacuous."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from invariants.scheduler.judge import Judge
from invariants.scheduler.residency_goals import (
    Residency,
    adopted,
    fresh_blocks,
    lost_copies,
    residency,
    reused,
)
from model.dialect import Dialect
from model.releases import release_named
from model.scheduler.actions import Abort, Action
from model.scheduler.events import (
    IDLE,
    CacheReset,
    Ended,
    LoadEnded,
    Response,
    StepScheduled,
    TransfersCompleted,
)
from model.scheduler.happenings import ActionTaken, Happening
from model.scheduler.plan import RequestView, Scheduled, StepPlan
from model.scheduler.session import Session
from model.sizes import pages_of

HIT_FULL = "hit, full attention"
HIT_SLIDING = "hit, full attention and a sliding window"
HIT_MAMBA = "hit, full attention and Mamba"
HIT_HISPARSE = "hit, HiSparse"
UNCACHED = "prefix caching off"
FCFS = "policy fcfs"
OVERTAKEN = "policy priority: a later request went first"
TWO_STEPS = "two steps in flight"
CHUNKED = "chunked prefill"
THRESHOLD = "long prompt cut at its threshold, not by the budget"
NO_TOKENS = "step with no tokens"
PREEMPTED = "preempted"
RESET = "reset while requests ran"
ADMITTED_LATER = "refused, then admitted"
WATERMARK = "refused for the watermark"
POOL_EMPTY = "GPU pool empty"
HOST_EMPTY = "host pool empty"
ONE_HASH = "several blocks under one hash"
DEFERRED = "release deferred"
GROUPS = "several resident groups"
ADOPTED_ALL = "hit adopted all copies"
ADOPTED_SOME = "hit adopted some copies"
ADOPTED_NONE = "hit adopted no copy"
COPY_TAKEN = "second request took a copy that the first was about to adopt"
REUSED = "block reused under a reader"
RESUMED = "preempted request resumed from host pages"
LATE_COMPLETION = "transfer completed after its request ended"
ABORTED_TRANSFER = "aborted while a transfer is pending"
LOADED_WITHIN = "load within a step"
LOADED_BESIDE = "load beside the steps"
DELAYED = "store did not know yet"
OUT_OF_ORDER = "loads ended out of order"
FAILED_RECOMPUTE = "load failed, policy recompute"
FAILED_FAIL = "load failed, policy fail"
ABORTED_LOAD = "aborted while loading"
DEFERRED_LOAD = "load deferred behind steps in flight"

HITS = {
    "full": HIT_FULL, "sliding": HIT_SLIDING, "mamba": HIT_MAMBA, "hisparse": HIT_HISPARSE,
}  # fmt: skip
OF_HISPARSE = (
    HIT_HISPARSE, HOST_EMPTY, GROUPS, ADOPTED_ALL, ADOPTED_SOME, ADOPTED_NONE, COPY_TAKEN, REUSED,
    RESUMED, LATE_COMPLETION, ABORTED_TRANSFER, DEFERRED_LOAD,
)  # fmt: skip
OF_STORE = (
    LOADED_WITHIN, LOADED_BESIDE, DELAYED, OUT_OF_ORDER, FAILED_RECOMPUTE, FAILED_FAIL,
    ABORTED_LOAD, DEFERRED_LOAD,
)  # fmt: skip
OF_PREFIX_CACHE = (
    *HITS.values(), ONE_HASH, ADOPTED_ALL, ADOPTED_SOME, ADOPTED_NONE, COPY_TAKEN, RESUMED,
)  # fmt: skip
GOALS = tuple(dict.fromkeys((
    *HITS.values(), UNCACHED, FCFS, OVERTAKEN, TWO_STEPS, CHUNKED, THRESHOLD, NO_TOKENS, PREEMPTED,
    RESET, ADMITTED_LATER, WATERMARK, POOL_EMPTY, ONE_HASH, DEFERRED, *OF_HISPARSE, *OF_STORE,
)))  # fmt: skip


def unreachable_goals(dialect: Dialect) -> dict[str, str]:
    """Goals that a release cannot meet, with the reason: as its dialect and its row say."""
    reasons: dict[str, str] = {}
    if dialect.adopt_at != "end_of_step":
        reasons[COPY_TAKEN] = "copies are adopted within the hit's own allocation"
    release = release_named(dialect.name)
    return reasons | dict(release.cannot if release else ())


EXCLUDED: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("external_store", False, OF_STORE),
    ("prefix_caching", True, (UNCACHED,)),
    ("prefix_caching", False, OF_PREFIX_CACHE),
    ("async_scheduling", False, (TWO_STEPS, DEFERRED, DEFERRED_LOAD)),
    ("policy", "fcfs", (OVERTAKEN,)),
    ("policy", "priority", (FCFS,)),
    ("load_failure", "fail", (FAILED_RECOMPUTE,)),
    ("load_failure", "recompute", (FAILED_FAIL,)),
    ("long_prefill_threshold", 0, (THRESHOLD,)),
    ("watermark_blocks", 0, (WATERMARK,)),
    ("num_resident_groups", 1, (GROUPS,)),
)
"""(field, value, goals): what fixing a field of the setup to a value rules out."""


def excluded_goals(modes: Mapping[str, Any]) -> dict[str, str]:
    """Goals that fixed fields of the setup rule out, with the reason."""
    excluded: dict[str, str] = {}
    for name, value, goals in EXCLUDED:
        if name in modes and modes[name] == value:
            excluded |= dict.fromkeys(goals, f"{name} is fixed to {value}")
    cache = modes.get("cache")
    if cache is not None:
        goals = tuple(goal for kind, goal in HITS.items() if kind != cache)
        goals += OF_HISPARSE if cache != "hisparse" else (LOADED_WITHIN, WATERMARK)
        goals += (UNCACHED,) if cache == "mamba" else ()
        goals += (WATERMARK,) if cache != "full" else ()
        excluded |= dict.fromkeys(goals, f"cache is fixed to {cache}")
    if modes.get("external_store") is False and modes.get("cache") in ("full", "sliding", "mamba"):
        excluded[DEFERRED] = "nothing is released late without a connector"
    return excluded


@dataclass(slots=True)
class GoalWatcher:
    """Counts the goals that a run meets, from what its engine told the worker and the clients."""

    judge: Judge
    session: Session = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)
    _gpu: list[int] = field(default_factory=list)
    """Contents of the GPU pool before the action."""
    _residency: Residency = field(default_factory=dict)
    _copies: frozenset[int] = frozenset()
    """Blocks with copies that a hit may adopt, as the last audit before the action saw it."""
    _owners: dict[int, int] = field(default_factory=dict)
    """Transfer → request."""
    _loading: list[int] = field(default_factory=list)
    """Requests with a load beside the steps under way, oldest first."""
    _loaded: set[int] = field(default_factory=set)
    """Requests whose present life began with a load."""
    _refused: set[int] = field(default_factory=set)
    _was_reset: bool = False

    def __post_init__(self) -> None:
        self.session = self.judge.session
        self.session.observers.append(self._watch)
        self._remember()

    def _watch(self, happening: Happening) -> None:
        if isinstance(happening, ActionTaken):
            self._taken(happening.action, happening.response)

    def _taken(self, action: Action, response: Response) -> None:
        """Look at what an action did, right after it."""
        for event in response:
            if isinstance(event, StepScheduled):
                self._stepped(self.session.flight[-1].plan)
            elif isinstance(event, TransfersCompleted):
                self._transferred(event.transfers)
            elif isinstance(event, LoadEnded):
                self._load_ended(event.request, event.lost)
            elif isinstance(event, Ended) and isinstance(action, Abort):
                self._aborted(event.request)
            elif isinstance(event, CacheReset) and event.running:
                self._reset()
        if response != IDLE:
            self._pools()
            self._remember()

    def _remember(self) -> None:
        if self.session.setup.hisparse:
            self._gpu = list(self.session.worker.gpu)
            self._residency = residency(self.session.worker)
            if self.judge.pools:
                self._copies = self.judge.pools[0].copies

    # A step

    def _stepped(self, plan: StepPlan) -> None:
        setup, seen = self.session.setup, self.seen
        seen[UNCACHED] += not setup.prefix_caching
        seen[FCFS] += setup.policy == "fcfs"
        seen[TWO_STEPS] += len(self.session.flight) > 1
        seen[GROUPS] += setup.hisparse and setup.num_resident_groups > 1
        seen[NO_TOKENS] += plan.tokens == 0
        seen[PREEMPTED] += bool(plan.preempted) and not self._was_reset
        self._was_reset = False
        self._loaded.difference_update(plan.preempted)
        self._loads_started(plan)
        for share in plan.scheduled:
            self._share(plan, share)
        self._owners.update((transfer.id, transfer.request) for transfer in plan.transfers)
        self._waiting(plan)
        self._deferred()
        if setup.hisparse:
            self.seen[REUSED] += reused(self.session.worker, self._residency, plan)
            self._copies_taken(plan)

    def _share(self, plan: StepPlan, share: Scheduled) -> None:
        setup = self.session.setup
        threshold = setup.long_prefill_threshold
        self.seen[CHUNKED] += not share.samples
        if share.tokens == threshold and not share.samples:
            self.seen[THRESHOLD] += plan.tokens < setup.max_num_batched_tokens
        if share.kind == "running":
            return
        self.seen[ADMITTED_LATER] += share.request in self._refused
        self._refused.discard(share.request)
        arrive = self.session.lives[share.request].arrive
        self.seen[DELAYED] += arrive.delays > 0 and share.request in self._loaded
        if share.computed >= setup.block_size and share.request not in self._loaded:
            self._hit(share)

    def _hit(self, share: Scheduled) -> None:
        self.seen[HITS[self.session.setup.cache]] += 1
        if self.session.setup.hisparse:
            self.seen[RESUMED] += share.kind == "resumed"
            pages, copies = adopted(self.session.worker, share)
            goal = ADOPTED_SOME
            if copies in (0, pages):
                goal = ADOPTED_ALL if copies else ADOPTED_NONE
            self.seen[goal] += 1

    def _copies_taken(self, plan: StepPlan) -> None:
        worker = self.session.worker
        for index, share in enumerate(plan.scheduled):
            if share.kind == "running" or not share.computed or share.request in self._loaded:
                continue
            pages = share.computed // self.session.setup.block_size
            text = self.session.lives[share.request].text
            contents = [text.pages(group, pages) for group in worker.groups.resident]
            lost = self._copies.intersection(lost_copies(worker, share, contents, self._gpu))
            self.seen[COPY_TAKEN] += any(
                not lost.isdisjoint(fresh_blocks(worker, later))
                for later in plan.scheduled[index + 1 :]
            )

    # Who has to wait

    def _waiting(self, plan: StepPlan) -> None:
        """A request with a seat and tokens left for it, and nothing else to wait for, waits only
        because it was refused."""
        setup, views = self.session.setup, self.session.engine.statuses()
        waiting = [v for v in views.values() if v.status == "waiting" and self._is_plain(v.id)]
        started = [s.request for s in plan.scheduled if s.kind == "new"]
        if setup.policy == "priority" and waiting and started:
            self.seen[OVERTAKEN] += min(view.id for view in waiting) < max(started)
        running = sum(view.status == "running" for view in views.values())
        seats = running < setup.max_num_seqs and plan.tokens < setup.max_num_batched_tokens
        if not seats or plan.preempted or len(waiting) != len(views) - running:
            return
        self._refused.update(view.id for view in waiting)
        if setup.watermark_blocks and setup.cache == "full" and running:
            self.seen[WATERMARK] += any(map(self._fits, waiting))

    def _is_plain(self, number: int) -> bool:
        return not self.session.lives[number].arrive.stored

    def _fits(self, view: RequestView) -> bool:
        """Whether there are blocks for the whole request, if none had to stay free."""
        free = len(self.session.engine.pool_states()[0].free)
        return free >= pages_of(view.tokens, self.session.setup.block_size)

    # Releases, transfers, loads

    def _deferred(self) -> None:
        if not self.session.setup.async_scheduling:
            return
        pending = self.session.engine.pending()
        self.seen[DEFERRED] += bool(pending.deferred_blocks)
        self.seen[DEFERRED_LOAD] += bool(pending.deferred_loads)

    def _transferred(self, transfers: tuple[int, ...]) -> None:
        for transfer in transfers:
            self.seen[LATE_COMPLETION] += self._owners.pop(transfer) not in self.session.live

    def _loads_started(self, plan: StepPlan) -> None:
        for load in plan.loads:
            self._loaded.add(load.request)
            self.seen[LOADED_BESIDE if load.asynchronous else LOADED_WITHIN] += 1
            if load.asynchronous:
                self._loading.append(load.request)
        for _ in self.session.flight[-1].lost:
            self._load_failed()

    def _load_ended(self, number: int, lost: int | None) -> None:
        self.seen[OUT_OF_ORDER] += self._loading[0] != number
        self._loading.remove(number)
        if lost is not None:
            self._load_failed()

    def _load_failed(self) -> None:
        recompute = self.session.setup.load_failure == "recompute"
        self.seen[FAILED_RECOMPUTE if recompute else FAILED_FAIL] += 1

    def _aborted(self, number: int) -> None:
        self.seen[ABORTED_LOAD] += number in self._loading
        self.seen[ABORTED_TRANSFER] += number in self._owners.values()
        self._deferred()

    def _reset(self) -> None:
        self._was_reset = True
        statuses = self.session.engine.statuses().values()
        self.seen[RESET] += any(view.status == "preempted" for view in statuses)

    # The pools, as the audit saw them

    def _pools(self) -> None:
        for pool in self.judge.pools:
            self.seen[POOL_EMPTY if pool.name == "gpu" else HOST_EMPTY] += not pool.free
            self.seen[ONE_HASH] += len(set(pool.found.values())) < len(pool.found)
