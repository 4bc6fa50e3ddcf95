"""A run: a program on a scheduler and a ghost of its worker, judged at every action."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from invariants.scheduler.audit import audit, quiescence
from invariants.violation import Cause, Violation
from model.scheduler.actions import (
    Abort,
    Action,
    Arrive,
    CompleteLoad,
    CompleteTransfers,
    Output,
    Reset,
    Step,
)
from model.scheduler.contents import Contents, Text
from model.scheduler.engine import Engine
from model.scheduler.ghost_worker import FIRST_LOST, Cell, GhostWorker, Misread
from model.scheduler.plan import (
    External,
    Load,
    NewRequest,
    PoolState,
    Scheduled,
    StepOutcome,
    StepPlan,
)
from model.scheduler.setup import SchedulerSetup

Event = tuple[Any, ...]
Response = tuple[Event, ...]
Observer = Callable[[Action, Response], None]

BLOCKS_AUDITED = 16
"""Blocks that the audit looks at per action, taken over many."""
MAX_ALIVE = 16
"""Requests that have not ended, at once."""


@dataclass(slots=True)
class Life:
    """A request as its client and the store see it."""

    arrive: Arrive
    text: Text
    prompt: int
    stored: int
    """Leading tokens of it that the external store has."""
    written: int = 0
    """Tokens up to which its steps have written, in its present life."""
    delivered: int = 0
    """Output tokens that the client got."""
    tried: bool = False
    """Whether the store has tried to load for it: only the first time some is lost."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that was handed to the worker and whose output was not processed."""

    plan: StepPlan
    tainted: frozenset[int]
    """Requests that read what a failed load left, before the engine could know."""
    lost: dict[int, int]
    """Request → position from which its load within this step failed."""
    reach: frozenset[Cell]
    """Blocks that the step reads or writes; kept only where a store loads beside it."""


@dataclass(slots=True)
class LoadUnderWay:
    load: Load
    lost: int | None


@dataclass(slots=True)
class Run:
    """``audit_every``: actions between two looks at the whole of the pools; by default the more,
    the larger they are, so that looking costs the same per action whatever their size."""

    setup: SchedulerSetup
    engine: Engine
    audit_every: int = 0
    violations: list[Violation] = field(default_factory=list)
    lives: dict[int, Life] = field(default_factory=dict)
    """All requests ever, by id."""
    live: list[int] = field(default_factory=list)
    """Requests that have not ended, oldest first."""
    flight: list[InFlight] = field(default_factory=list)
    transfers: list[int] = field(default_factory=list)
    """HiSparse transfers under way, oldest first."""
    loads: list[LoadUnderWay] = field(default_factory=list)
    misread: list[Misread] = field(default_factory=list)
    """What was misread, where that broke a rule."""
    cancelled: set[tuple[int, int]] = field(default_factory=set)
    """(group, content) of pages that a preempted request was still to write."""
    failed_loads: set[int] = field(default_factory=set)
    """Requests whose load beside the steps failed."""
    failed_within_a_step: set[int] = field(default_factory=set)
    """Requests whose load within a step failed."""
    pools: tuple[PoolState, ...] = ()
    """As the last audit saw them."""
    observers: list[Observer] = field(default_factory=list)
    """Told of every action that was taken, those of the drain too, and its response."""
    taken: int = 0
    """Actions taken."""
    steps: int = 0
    """Steps scheduled."""
    worker: GhostWorker = field(init=False)
    _contents: Contents = field(init=False)
    _completed: list[int] = field(default_factory=list)
    _received: set[int] = field(default_factory=set)
    _failed: set[int] = field(default_factory=set)
    _invalid: set[int] = field(default_factory=set)
    _unreported: set[int] = field(default_factory=set)
    """Requests whose load failed and that the engine was not told of."""
    _was_reset: bool = False
    """Whether a reset preempted what ran, and no step was scheduled since."""
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._contents = Contents(self.setup.block_size)
        self.worker = GhostWorker(self.setup, self._contents)
        blocks = self.setup.num_blocks + self.setup.num_host_blocks
        self.audit_every = self.audit_every or 1 + blocks // BLOCKS_AUDITED

    def do(self, action: Action) -> Response:
        """Take one action; one that is not possible now is ``idle``."""
        self._events = []
        _HANDLERS[type(action)](self, action)
        if (self.taken + 1) % self.audit_every == 0:
            self.audit()
        response = tuple(self._events) or (("idle",),)
        for observer in self.observers:
            observer(action, response)
        self.taken += 1
        return response

    def audit(self) -> None:
        self.pools = self.engine.pool_states()
        for pool in self.pools:
            for found in audit(pool):
                self.report(*found)
        for view in self.engine.statuses().values():
            if min(view.computed, view.in_flight, view.placeholders) < 0:
                self.report(
                    "I17", Cause.BELOW_ZERO, f"a counter of request {view.id} is below zero: {view}"
                )

    def judge_quiescence(self) -> None:
        """Nothing may be left of what has ended."""
        for pool in self.engine.pool_states():
            for found in quiescence(pool):
                self.report(*found)

    def report(self, rule: str, cause: Cause, *evidence: str) -> None:
        if not any(
            violation.rule == rule and violation.step == self.taken for violation in self.violations
        ):
            self.violations.append(Violation(rule, self.taken, cause, evidence))

    # Requests come and go

    def arrive(self, action: Arrive) -> None:
        if len(self.live) >= MAX_ALIVE:
            return
        number, longest = len(self.lives), self.setup.max_model_len
        prompt = max(1, min(action.prompt, longest - 1))
        output = max(1, min(action.output, longest - prompt))
        text = Text(self._contents, number, action.family, action.shared, action.salt)
        stored = min(action.stored, self._storable(prompt))
        self.lives[number] = Life(action, text, prompt, stored)
        self.live.append(number)
        external = External(stored, action.asynchronous, action.delays)
        self.engine.add(
            NewRequest(
                id=number,
                tokens=text.tokens(0, prompt),
                max_tokens=output,
                priority=action.priority,
                arrival=float(number),
                salt=action.salt,
                external=external,
            )
        )
        self._events.append(("arrived", number, prompt, output, stored))

    def _storable(self, prompt: int) -> int:
        """Tokens that a store has at most: a state cannot be taken back by a token, and a prompt
        of one token is nothing to store."""
        if not self.setup.external_store or prompt == 1:
            return 0
        return prompt - (self.setup.cache == "mamba")

    def abort(self, action: Abort) -> None:
        if self.live:
            number = self.live[action.request % len(self.live)]
            self.engine.abort((number,))
            self._end(number, "abort")

    def _end(self, number: int, why: str) -> None:
        if number in self.live:
            self.live.remove(number)
            self._events.append(("ended", number, why))

    def reset(self, action: Reset) -> None:
        """An engine that cannot reset after all was preempted says so by raising, and goes on."""
        running = action.preempt_running and not self.flight
        try:
            done = self.engine.reset_prefix_cache(running=running)
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise
            done = False
        self._was_reset = self._was_reset or running
        self._events.append(("reset", running, done))

    # A step

    def step(self, action: Step) -> None:
        if len(self.flight) >= self.engine.steps_in_flight_max:
            self._process_output()
        if not self.engine.has_requests():
            return
        pending = self.flight or self.transfers or self.loads or self._completed
        busy, self._was_reset = bool(pending) or self._was_reset, False
        plan = self.engine.schedule()
        self.steps += 1
        if plan.preempted:
            self._judge_preemption(plan, busy)
            self._cancel(plan.preempted)
        self._start_loads(plan)
        lost = {load.request: self._lost_from(load) for load in plan.loads if not load.asynchronous}
        failing = {number: position for number, position in lost.items() if position is not None}
        self._unreported.update(failing)
        self.failed_within_a_step.update(failing)
        texts = {number: self.lives[number].text for number in self._named(plan)}
        misread = self.worker.execute(plan, texts, failing)
        tainted = self._judge(plan, misread) if misread else frozenset[int]()
        for share in plan.scheduled:
            self.lives[share.request].written = share.computed + share.tokens
        self.transfers += [transfer.id for transfer in plan.transfers]
        self.flight.append(InFlight(plan, tainted, failing, self._reach(plan)))
        shares = tuple((share.request, share.computed, share.tokens) for share in plan.scheduled)
        self._events.append(("step", plan.step, shares, plan.preempted))

    @staticmethod
    def _named(plan: StepPlan) -> Iterator[int]:
        yield from (share.request for share in plan.scheduled)
        yield from (load.request for load in plan.loads)

    def _judge_preemption(self, plan: StepPlan, busy: bool) -> None:
        """What is preempted holds nothing any more; and with nothing pending before, a request
        that is preempted must have had company."""
        holders = {
            holder.split(" (")[0]
            for pool in self.engine.pool_states()
            for names in pool.holders.values()
            for holder in names
        }
        views = self.engine.statuses()
        for number in plan.preempted:
            still = number in views and views[number].status == "preempted"
            if still and f"request {number}" in holders:
                self.report(
                    "I17",
                    Cause.HOLDS_AFTER_PREEMPTION,
                    f"request {number} was preempted and still holds blocks",
                )
        if len(plan.preempted) == 1 and not (busy or holders):
            self.report(
                "I16",
                Cause.PREEMPTED_ALONE,
                f"request {plan.preempted[0]} runs alone, with nothing to wait for, and is "
                "preempted",
            )

    def _cancel(self, preempted: tuple[int, ...]) -> None:
        """A request that is preempted may have been given blocks in the very same step."""
        groups = self.worker.groups
        for number in preempted:
            life = self.lives[number]
            known = (life.prompt + life.delivered) // self.setup.block_size
            first = life.written // self.setup.block_size
            for group in (*groups.full, *groups.sliding, *groups.state, *groups.resident):
                pages = life.text.pages(group, known)[first:]
                self.cancelled.update((group, content) for content in pages)
            life.written = 0

    def _judge(self, plan: StepPlan, misread: list[Misread]) -> frozenset[int]:
        """Report what was misread, unless a failed load explains it that nobody can know of yet:
        then the reader is tainted, and so is what it wrote, and who reads that."""
        tainted: set[int] = set()
        judged: set[int] = set()
        while True:
            news = {m.request for m in misread} - judged
            judged |= news
            for number in sorted(news):
                found = [m for m in misread if m.request == number]
                origins = {FIRST_LOST - m.found for m in found}
                if origins <= self._unreported:
                    tainted.add(number)
                    share = next(s for s in plan.scheduled if s.request == number)
                    self.worker.spoil(share, FIRST_LOST - min(origins))
                else:
                    self.misread += found
                    self.report("I7", Cause.MISREAD, *(self._describe(m) for m in found))
            if not news & tainted:
                return frozenset(tainted)
            misread = [
                found
                for share in plan.scheduled
                if share.request not in tainted
                for found in self.worker.read(share, self.lives[share.request].text)
            ]

    def _describe(self, misread: Misread) -> str:
        meaning = self._contents.meaning(misread.found)
        return (
            f"request {misread.request} reads page {misread.page} of group {misread.group} from "
            f"{misread.where}, which holds {meaning}"
        )

    # Loads

    def _start_loads(self, plan: StepPlan) -> None:
        for load in plan.loads:
            if not load.asynchronous:
                continue
            blocks = frozenset(self._filled(load))
            for step in self.flight:
                if shared := blocks & step.reach:
                    self.report(
                        "I15",
                        Cause.WRITES_BESIDE_STEP,
                        f"the load of request {load.request} writes blocks {sorted(shared)} beside "
                        f"step {step.plan.step}, which is in flight and uses them",
                    )
            self.loads.append(LoadUnderWay(load, self._lost_from(load)))

    def _filled(self, load: Load) -> Iterator[Cell]:
        """The blocks that a load writes: a prefix hit before it is only read, and what a step
        itself fills (resident pages, hot regions) is written in the order of the steps."""
        size, groups = self.setup.block_size, self.worker.groups
        first, end = load.start // size, -(-(load.start + load.tokens) // size)
        for group in (*groups.full, *groups.sliding, *groups.state):
            yield from (("gpu", block) for block in load.blocks[group][first:end] if block)
        if groups.host is not None:
            yield from (("host", block) for block in load.blocks[groups.host][first:end] if block)

    def _lost_from(self, load: Load) -> int | None:
        """Position from which the store fails to load, if it does: a whole page at least."""
        life = self.lives[load.request]
        fails = life.arrive.lost > 0 and not life.tried
        life.tried = True
        if not fails or (not load.asynchronous and len(load.blocks) > 1):
            return None  # a load within a step fails by block, which only one group allows
        size, end = self.setup.block_size, load.start + load.tokens
        return max(load.start, (-(-end // size) - life.arrive.lost) * size)

    def complete_load(self, action: CompleteLoad) -> None:
        if not self.loads:
            return
        done = self.loads.pop(action.load % len(self.loads))
        number = done.load.request
        self.worker.fill(done.load, self.lives[number].text, done.lost)
        self._received.add(number)
        if done.lost is not None:
            self._unreported.add(number)
            self.failed_loads.add(number)
            if len(done.load.blocks) == 1:
                self._invalid.update(self._lost_blocks(done.load, done.lost))
            else:
                self._failed.add(number)
        self._events.append(("loaded", number, done.lost))

    def _lost_blocks(self, load: Load, lost: int) -> Iterable[int]:
        size = self.setup.block_size
        end = -(-(load.start + load.tokens) // size)
        return load.blocks[0][lost // size : end]

    def complete_transfers(self, action: CompleteTransfers) -> None:
        done, self.transfers = self.transfers[: action.count], self.transfers[action.count :]
        self._completed += done
        if done:
            self._events.append(("transferred", tuple(done)))

    # The output of a step

    def output(self, action: Output) -> None:
        if self.flight:
            self._process_output()

    def _process_output(self) -> None:
        step = self.flight.pop(0)
        outcome = self._outcome(step)
        self._completed, self._received, self._failed, self._invalid = [], set(), set(), set()
        outputs = self.engine.update(step.plan.step, outcome)
        self._unreported -= {*step.lost, *outcome.received}
        self._events.append(("output", step.plan.step))
        for output in outputs:
            life = self.lives[output.request]
            if output.tokens and output.request in step.tainted:
                self.report("I7", Cause.TOKEN_OF_FAILED_LOAD,
                            f"request {output.request} is given a token that was computed "
                            "on what a failed load left")  # fmt: skip
            start = life.prompt + life.delivered
            expected = life.text.tokens(start, start + len(output.tokens))
            if tuple(output.tokens) != expected:
                self.report("I7", Cause.WRONG_TOKENS,
                            f"request {output.request} is given tokens {output.tokens}, "
                            f"and {expected} come next")  # fmt: skip
            life.delivered += len(output.tokens)
            if output.finish is not None:
                self._end(output.request, output.finish)

    def _outcome(self, step: InFlight) -> StepOutcome:
        plan = step.plan
        invalid = set(self._invalid)
        for load in plan.loads:
            if load.request in step.lost and not load.asynchronous:
                invalid.update(self._lost_blocks(load, step.lost[load.request]))
        return StepOutcome(
            sampled={s.request: self._sampled(s) for s in plan.scheduled if s.samples},
            enqueued={transfer.id: 1 for transfer in plan.transfers},
            completed=dict.fromkeys(self._completed, 1),
            host_copies_done=tuple(target for _, target in plan.host_copies),
            received=frozenset(self._received),
            failed=frozenset(self._failed),
            invalid_blocks=frozenset(invalid),
        )

    def _sampled(self, share: Scheduled) -> tuple[int, ...]:
        return (self.lives[share.request].text.token(share.computed + share.tokens),)

    def _reach(self, plan: StepPlan) -> frozenset[Cell]:
        if not self.setup.external_store:
            return frozenset()
        cells = {cell for share in plan.scheduled for cell in self.worker.reach(share)}
        return frozenset(cell for cell in cells if cell[1])


_HANDLERS: dict[type[Action], Callable[[Run, Any], None]] = {
    Arrive: Run.arrive,
    Step: Run.step,
    Output: Run.output,
    CompleteTransfers: Run.complete_transfers,
    CompleteLoad: Run.complete_load,
    Abort: Run.abort,
    Reset: Run.reset,
}
