"""A session: the life of requests over the steps of an engine, in the engine's order of calls.

The session turns actions into calls of an allocator. It keeps the queues and the progress of
requests as the scheduler does, so that only states which legal calls can reach are reached. The
reference and every engine run behind the same session.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic

from model.allocator import AllocationFailedError, Allocator, BlocksT, HitT
from model.manager import events
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    EvictBlocks,
    Extend,
    Finish,
    Hold,
    Output,
    Preempt,
    Reset,
)
from model.manager.configuration import Configuration
from model.manager.events import Event, Response
from model.manager.flight import StepInFlight
from model.request import Request, Status, token_at
from model.snapshot import Snapshot, digest_of


@dataclass(slots=True)
class Session(Generic[HitT, BlocksT]):
    configuration: Configuration
    allocator: Allocator[HitT, BlocksT]
    requests: dict[int, Request] = field(default_factory=dict)
    """Requests that have not ended, by id."""
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    scheduled: dict[int, int] = field(default_factory=dict)
    """Tokens of each request in the step being built."""
    flight: list[StepInFlight] = field(default_factory=list)
    dead: bool = False
    """Whether the allocator raised: nothing can happen any more."""
    failure: str | None = None
    """What it raised, in its own words."""
    _next_id: int = 0
    refused: int | None = None
    """The running request whose extension was just refused with nothing to wait for."""
    preempted: bool = False
    """Whether a request was preempted in the step being built: then none is admitted."""
    admitting: bool = False
    """Whether the step being built has come to the waiting requests."""
    _steps_built: int = 0
    _steps_done: int = 0
    _deferred: list[tuple[int, BlocksT]] = field(default_factory=list)
    _queues: list[list[tuple[int, int]]] = field(default_factory=list)
    """(transfer, request) that each worker took on and has not completed, oldest first."""
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._queues = [[] for _ in range(self.configuration.num_workers)]

    def do(self, action: Action) -> Response:
        """Take one action; an action that is not possible now is ``idle``."""
        self._events = []
        if not self.dead:
            if not isinstance(action, Preempt):
                self.refused = None
            try:
                _HANDLERS[type(action)](self, action)
            except AllocationFailedError as error:
                self.dead = True
                self.failure = str(error)
                self._events.append(events.Raised(error.kind))
        return tuple(self._events) or events.IDLE

    def snapshot(self) -> Snapshot:
        blocks = [popped for _, popped in self._deferred]
        return self.allocator.snapshot(list(self.requests.values()), self.scheduled, blocks)

    def fingerprint(self) -> str:
        """Equal for sessions in which the same actions have the same outcomes."""
        flight = [step.essence() for step in self.flight]
        queues = ([r.id for r in self.waiting], [r.id for r in self.running], self._queues)
        step = (list(self.scheduled), self.refused, self.preempted, self.admitting, self.dead)
        progress = [
            (r.placeholders, self._steps_done - r.last_step) for r in self.requests.values()
        ]
        fences = [fence - self._steps_done for fence, _ in self._deferred]
        return digest_of((self.snapshot(), flight, queues, step, progress, fences, self._next_id))

    @property
    def between_steps(self) -> bool:
        """Whether no step is being built."""
        return not self.scheduled and not self.preempted

    @property
    def can_admit(self) -> bool:
        """Whether a waiting request can be tried in the step being built."""
        return bool(self.waiting) and not self.preempted and self.budget > 0

    @property
    def can_extend(self) -> bool:
        """Whether a running request is left to be tried in the step being built."""
        left = len(self.scheduled) < len(self.running)
        return left and not self.admitting and self.budget > 0

    @property
    def budget(self) -> int:
        """Tokens that the step being built can still compute."""
        return self.configuration.max_num_batched_tokens - sum(self.scheduled.values())

    def enabled(self) -> dict[type[Action], int]:
        """The kinds of actions that are possible now, with the number of choices of each: of
        requests, or of workers. How many tokens or transfers is for the caller to choose.
        """
        between = self.between_steps
        choices: dict[type[Action], int] = {
            EndStep: 1,
            Arrive: 1,
            Admit: len(self.waiting) if self.can_admit else 0,
            Extend: len(self.running) if self.can_extend else 0,
            Preempt: len(self.running) if self.refused is not None else 0,
            Output: int(between and bool(self.flight)),
            CompleteTransfers: len(self.busy_workers) if between else 0,
            Finish: len(self.requests) if between else 0,
            Reset: int(between),
            EvictBlocks: len(self.running) if between else 0,
        }
        return {kind: count for kind, count in choices.items() if count}

    @property
    def busy_workers(self) -> tuple[int, ...]:
        """Workers with host writes that they have not reported as done."""
        return tuple([worker for worker, queue in enumerate(self._queues) if queue])

    def queued_transfers(self, worker: int) -> int:
        """Host writes that a worker took on and has not reported as done."""
        return len(self._queues[worker % len(self._queues)])

    # Requests come and go.

    def arrive(self, action: Arrive) -> None:
        count = max(1, min(action.prompt, self.configuration.max_model_len - 1))
        tokens = [
            token_at(self._next_id, action.family, action.shared, position)
            for position in range(count)
        ]
        request = Request(self._next_id, action.family, action.shared, action.salt, tokens)
        self._next_id += 1
        self.requests[request.id] = request
        self.waiting.append(request)
        self.allocator.register(request)
        self._events.append(events.Arrived(request.id, count))

    def finish(self, action: Finish) -> None:
        if not self.between_steps or not self.requests:
            return
        request = list(self.requests.values())[action.request % len(self.requests)]
        self._end(request, Status.ABORTED if action.aborted else Status.STOPPED)

    def _end(self, request: Request, status: Status) -> None:
        request.status = status
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        self._release(request)
        del self.requests[request.id]
        self._events.append(events.Ended(request.id))

    def _release(self, request: Request) -> None:
        """Free a request's blocks, later if a step in flight may still write them."""
        if self._can_be_freed(request):
            self.allocator.free(request)
            return
        blocks = self.allocator.pop(request)
        if blocks is not None:
            self._deferred.append((self._steps_built, blocks))
            self._events.append(events.Deferred(request.id))

    def _can_be_freed(self, request: Request) -> bool:
        return not self.configuration.defers_release or request.last_step <= self._steps_done

    # A step is built: running requests first, then waiting ones.

    def extend(self, action: Extend) -> None:
        self._wait_for_output()
        ready = [r for r in self.running if r.id not in self.scheduled and self._remaining(r) > 0]
        if not ready or not self.can_extend:
            return
        request = ready[action.request % len(ready)]
        tokens = max(1, min(action.tokens, self._remaining(request), self.budget))
        allocation = self.allocator.allocate(request, tokens, None, 0, True)
        if allocation.new_blocks is not None:
            self.scheduled[request.id] = tokens
            self._events.append(
                events.Extended(
                    request.id,
                    tokens,
                    allocation.promised,
                    allocation.taken,
                    allocation.new_blocks,
                )
            )
            return
        pending = self.configuration.hisparse and self.allocator.pending_reclamation()
        if not pending:
            self.refused = request.id
        self._events.append(
            events.ExtensionRefused(request.id, tokens, allocation.promised, int(pending))
        )

    def _remaining(self, request: Request) -> int:
        """Tokens that a running request can still compute, sampled ones in flight included."""
        known = request.num_tokens + request.placeholders - request.computed
        return min(known, self.configuration.max_model_len - 1 - request.computed)

    def preempt(self, action: Preempt) -> None:
        if self.refused is None:
            return
        youngest = len(self.running) - 1
        fcfs = self.configuration.policy == "fcfs"
        victim = self.running[youngest if fcfs else action.request % len(self.running)]
        if not self._can_be_freed(victim) or (fcfs and victim.id in self.scheduled):
            return
        self.refused = None
        self.preempted = True
        self.scheduled.pop(victim.id, None)
        self._preempt(victim)

    def _preempt(self, victim: Request) -> None:
        self.running.remove(victim)
        victim.status = Status.PREEMPTED
        self._release(victim)
        victim.computed = victim.placeholders = 0
        victim.life += 1
        self.waiting.insert(0, victim)
        self._events.append(events.Preempted(victim.id))

    def admit(self, action: Admit) -> None:
        self._wait_for_output()
        if not self.can_admit:
            return
        request = self.waiting[action.request % len(self.waiting)]
        hit, hit_tokens = self.allocator.lookup(request)
        tokens = max(0, min(action.tokens, request.num_tokens - hit_tokens, self.budget))
        self.admitting = True
        allocation = self.allocator.allocate(request, tokens, hit, hit_tokens, bool(self.running))
        if allocation.new_blocks is None:
            self._events.append(
                events.AdmissionRefused(request.id, tokens, allocation.promised, hit_tokens)
            )
            return
        self.waiting.remove(request)
        self.running.append(request)
        request.status = Status.RUNNING
        request.computed = hit_tokens
        self.scheduled[request.id] = tokens
        self._events.append(
            events.Admitted(
                request.id,
                tokens,
                allocation.promised,
                allocation.taken,
                allocation.new_blocks,
                hit_tokens,
            )
        )

    def end_step(self, action: EndStep) -> None:
        self._wait_for_output()
        scheduled = [(self.requests[key], count) for key, count in self.scheduled.items()]
        if self.configuration.hisparse:
            self.allocator.end_step(
                [(r, min(r.computed + count, r.num_tokens)) for r, count in scheduled]
            )
        shared = self.allocator.common_prefix(self.running[0]) if self.running else ()
        command: tuple[tuple[int, ...], ...] = ()
        updates: tuple[tuple[int, ...], ...] = ()
        if self.configuration.hisparse:
            command = self.allocator.take_command()
            updates = self.allocator.take_updates([r for r, _ in scheduled])
        self._events.append(events.StepEnded(len(scheduled), command, updates, shared))
        self._launch(scheduled, tuple((t[0], t[1]) for t in command))
        self.scheduled = {}
        self.preempted = self.admitting = False
        if not self.configuration.async_scheduling:
            self._process_output()

    def _launch(
        self, scheduled: list[tuple[Request, int]], command: tuple[tuple[int, int], ...]
    ) -> None:
        self._steps_built += bool(scheduled)
        entries: list[tuple[Request, int, int, bool]] = []
        for request, count in scheduled:
            request.computed += count
            request.in_flight += count
            request.last_step = self._steps_built
            samples = request.computed >= request.num_tokens + request.placeholders
            request.placeholders += samples
            entries.append((request, count, request.life, samples))
        self.flight.append(StepInFlight(entries, command))

    # The output of a step arrives.

    def output(self, action: Output) -> None:
        if self.between_steps and self.flight:
            self._process_output()

    def _wait_for_output(self) -> None:
        """An engine with all its steps in flight waits before it schedules again."""
        if len(self.flight) >= self.configuration.steps_in_flight:
            self._process_output()

    def _process_output(self) -> None:
        step = self.flight.pop(0)
        if step.scheduled:
            self._steps_done += 1
            while self._deferred and self._deferred[0][0] <= self._steps_done:
                self.allocator.free_popped(self._deferred.pop(0)[1])
        sampling = sum(samples for *_, samples in step.scheduled)
        self._events.append(events.OutputProcessed(sampling))
        for request, count, life, samples in step.scheduled:
            if not request.finished:
                request.in_flight -= count
                if samples:
                    self._sample(request, stale=life != request.life)
        if step.command:
            workers = self.configuration.num_workers
            self.allocator.update_transfers({transfer: workers for transfer, _ in step.command}, {})
            for queue in self._queues:
                queue.extend(step.command)

    def _sample(self, request: Request, stale: bool) -> None:
        """Append the sampled token; one of an earlier life counts only as text."""
        token = token_at(request.id, request.family, request.shared, request.num_tokens)
        request.tokens.append(token)
        self.allocator.append(request, token)
        if not stale:
            request.placeholders -= 1
            if self.configuration.async_scheduling:
                self.allocator.cache(request, request.computed - request.in_flight)
        if request.num_tokens >= self.configuration.max_model_len:
            self._end(request, Status.STOPPED)

    def complete_transfers(self, action: CompleteTransfers) -> None:
        """Report transfers as done, those of one request in a row together.

        An engine iterates over a *set* of the requests whose writes completed in one report, so
        their order within one report is not defined; the session never depends on it.
        """
        if not self.between_steps:
            return
        queue = self._queues[action.worker % len(self._queues)]
        done, queue[:] = queue[: action.count], queue[action.count :]
        for _, together in groupby(done, key=lambda entry: entry[1]):
            self.allocator.update_transfers({}, {transfer: 1 for transfer, _ in together})
        if done:
            self._events.append(events.TransfersCompleted(tuple([t for t, _ in done])))

    # The prefix cache is disturbed from outside.

    def reset(self, action: Reset) -> None:
        if not self.between_steps or (action.preempt_running and self.flight):
            return
        while action.preempt_running and self.running:
            self._preempt(self.running[-1])
        self._events.append(events.CacheReset(int(self.allocator.reset())))

    def evict_blocks(self, action: EvictBlocks) -> None:
        if not self.between_steps or not self.running:
            return
        request = self.running[action.request % len(self.running)]
        page = action.page % max(1, -(-request.computed // self.configuration.block_size))
        self.allocator.evict(request, page)
        self._events.append(events.Evicted(request.id, page))

    def hold(self, action: Hold) -> None:
        self.allocator.hold(action.free_blocks)
        self._events.append(events.Held(action.free_blocks))


_HANDLERS: dict[type[Action], Callable[[Session[Any, Any], Any], None]] = {
    Arrive: Session.arrive,
    Admit: Session.admit,
    Extend: Session.extend,
    Preempt: Session.preempt,
    EndStep: Session.end_step,
    Output: Session.output,
    CompleteTransfers: Session.complete_transfers,
    Finish: Session.finish,
    Reset: Session.reset,
    EvictBlocks: Session.evict_blocks,
    Hold: Session.hold,
}
