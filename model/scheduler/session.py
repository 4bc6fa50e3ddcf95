"""A session: clients, a worker and a store around one scheduler, driven action by action.

It judges nothing: whoever does watches it and is told what happens; see
``model.scheduler.happenings``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from model.contents import Contents, Text
from model.scheduler import events
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
from model.scheduler.engine import Engine
from model.scheduler.events import Event, Response
from model.scheduler.ghost_store import GhostStore
from model.scheduler.ghost_worker import Cell, GhostWorker
from model.scheduler.happenings import (
    ActionTaken,
    Delivered,
    Happening,
    LoadStarted,
    Observer,
    PreemptionPlanned,
    StepExecuted,
)
from model.scheduler.life import Life
from model.scheduler.plan import External, NewRequest, Scheduled, StepOutcome, StepPlan
from model.scheduler.setup import SchedulerSetup
from model.scheduler.taint import Explained, explain

MAX_ALIVE = 16
"""Requests that have not ended, at once."""


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
class Session:
    setup: SchedulerSetup
    engine: Engine
    lives: dict[int, Life] = field(default_factory=dict)
    """All requests ever, by id."""
    live: list[int] = field(default_factory=list)
    """Requests that have not ended, oldest first."""
    flight: list[InFlight] = field(default_factory=list)
    transfers: list[int] = field(default_factory=list)
    """HiSparse transfers under way, oldest first."""
    observers: list[Observer] = field(default_factory=list)
    """Told of what happens, in this order."""
    taken: int = 0
    """Actions taken."""
    steps: int = 0
    """Steps scheduled."""
    contents: Contents = field(init=False)
    worker: GhostWorker = field(init=False)
    store: GhostStore = field(init=False)
    _completed: list[int] = field(default_factory=list)
    """Transfers that are done and that the engine was not told of."""
    _was_reset: bool = False
    """Whether a reset preempted what ran, and no step was scheduled since."""
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.contents = Contents(self.setup.block_size)
        self.worker = GhostWorker(self.setup, self.contents)
        self.store = GhostStore(self.setup, self.worker.groups)

    def do(self, action: Action) -> Response:
        """Take one action; one that is not possible now is ``idle``."""
        self._events = []
        _HANDLERS[type(action)](self, action)
        response = tuple(self._events) or events.IDLE
        self._tell(ActionTaken(action, response))
        self.taken += 1
        return response

    def _tell(self, happening: Happening) -> None:
        for observer in self.observers:
            observer(happening)

    @property
    def settled(self) -> bool:
        """Whether all requests have ended and nothing is under way."""
        under_way = self.live or self.flight or self.transfers or self.store.loads
        return not (under_way or self.engine.has_requests())

    # Requests come and go

    def arrive(self, action: Arrive) -> None:
        if len(self.live) >= MAX_ALIVE:
            return
        number, longest = len(self.lives), self.setup.max_model_len
        prompt = max(1, min(action.prompt, longest - 1))
        output = max(1, min(action.output, longest - prompt))
        text = Text(self.contents, number, action.family, action.shared, action.salt)
        stored = min(action.stored, self.store.storable(prompt))
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
        self._events.append(events.Arrived(number, prompt, output, stored))

    def abort(self, action: Abort) -> None:
        if self.live:
            number = self.live[action.request % len(self.live)]
            self.engine.abort((number,))
            self._end(number, "abort")

    def _end(self, number: int, why: str) -> None:
        if number in self.live:
            self.live.remove(number)
            self._events.append(events.Ended(number, why))

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
        self._events.append(events.CacheReset(running, done))

    # A step

    def step(self, action: Step) -> None:
        if len(self.flight) >= self.engine.steps_in_flight_max:
            self._process_output()
        if not self.engine.has_requests():
            return
        pending = self.flight or self.transfers or self.store.loads or self._completed
        busy, self._was_reset = bool(pending) or self._was_reset, False
        plan = self.engine.schedule()
        self.steps += 1
        if plan.preempted:
            self._tell(PreemptionPlanned(plan, alone=not busy))
            for number in plan.preempted:
                self.lives[number].written = 0
        self._start_loads(plan)
        lost = self.store.run_within(plan, self.lives)
        explained = self._execute(plan, lost)
        for share in plan.scheduled:
            self.lives[share.request].written = share.computed + share.tokens
        self.transfers += [transfer.id for transfer in plan.transfers]
        self.flight.append(InFlight(plan, explained.tainted, lost, self._reach(plan)))
        shares = tuple((share.request, share.computed, share.tokens) for share in plan.scheduled)
        self._events.append(events.StepScheduled(plan.step, shares, plan.preempted))

    def _start_loads(self, plan: StepPlan) -> None:
        for load in plan.loads:
            if load.asynchronous:
                self._tell(LoadStarted(load, frozenset(self.store.filled(load))))
                self.store.start(load, self.lives[load.request])

    def _execute(self, plan: StepPlan, lost: dict[int, int]) -> Explained:
        texts = {number: self.lives[number].text for number in self._named(plan)}
        misread = self.worker.execute(plan, texts, lost)
        explained = explain(self.worker, plan, self.lives, misread, self.store.unreported)
        self._tell(StepExecuted(plan, explained.unexplained))
        return explained

    @staticmethod
    def _named(plan: StepPlan) -> Iterator[int]:
        yield from (share.request for share in plan.scheduled)
        yield from (load.request for load in plan.loads)

    def _reach(self, plan: StepPlan) -> frozenset[Cell]:
        if not self.setup.external_store:
            return frozenset()
        cells = {cell for share in plan.scheduled for cell in self.worker.reach(share)}
        return frozenset(cell for cell in cells if cell[1])

    # What worker and store complete

    def complete_load(self, action: CompleteLoad) -> None:
        if self.store.loads:
            done = self.store.end(action.load)
            number = done.load.request
            self.worker.fill(done.load, self.lives[number].text, done.lost)
            self._events.append(events.LoadEnded(number, done.lost))

    def complete_transfers(self, action: CompleteTransfers) -> None:
        done, self.transfers = self.transfers[: action.count], self.transfers[action.count :]
        self._completed += done
        if done:
            self._events.append(events.TransfersCompleted(tuple(done)))

    # The output of a step

    def output(self, action: Output) -> None:
        if self.flight:
            self._process_output()

    def _process_output(self) -> None:
        step = self.flight.pop(0)
        outcome = self._outcome(step)
        outputs = self.engine.update(step.plan.step, outcome)
        self.store.unreported -= {*step.lost, *outcome.received}
        self._events.append(events.OutputProcessed(step.plan.step))
        for output in outputs:
            life = self.lives[output.request]
            start = life.prompt + life.delivered
            expected = life.text.tokens(start, start + len(output.tokens))
            self._tell(Delivered(output, expected, output.request in step.tainted))
            life.delivered += len(output.tokens)
            if output.finish is not None:
                self._end(output.request, output.finish)

    def _outcome(self, step: InFlight) -> StepOutcome:
        plan, told = step.plan, self.store.report(step.plan, step.lost)
        completed, self._completed = dict.fromkeys(self._completed, 1), []
        return StepOutcome(
            sampled={s.request: self._sampled(s) for s in plan.scheduled if s.samples},
            enqueued={transfer.id: 1 for transfer in plan.transfers},
            completed=completed,
            host_copies_done=tuple(target for _, target in plan.host_copies),
            received=told.received,
            failed=told.failed,
            invalid_blocks=told.invalid,
        )

    def _sampled(self, share: Scheduled) -> tuple[int, ...]:
        return (self.lives[share.request].text.token(share.computed + share.tokens),)


_HANDLERS: dict[type[Action], Callable[[Session, Any], None]] = {
    Arrive: Session.arrive,
    Step: Session.step,
    Output: Session.output,
    CompleteTransfers: Session.complete_transfers,
    CompleteLoad: Session.complete_load,
    Abort: Session.abort,
    Reset: Session.reset,
}
