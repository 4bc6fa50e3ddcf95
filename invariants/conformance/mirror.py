"""Play the calls of a scheduler on the reference allocator, and compare what each answers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from invariants.conformance.reading import CallLogError
from invariants.conformance.records import (
    Advance,
    Allocate,
    Cache,
    Call,
    Command,
    CommonPrefix,
    Evict,
    Free,
    FreePopped,
    Ints,
    Lookup,
    Other,
    Pop,
    Reclaimable,
    Report,
    Reset,
    Residency,
    Scheduled,
    Step,
    Stopped,
    Tables,
    View,
)
from invariants.conformance.scope import BeyondModelError
from model.allocator import Allocation, AllocationFailedError
from model.dialect import Dialect
from model.holding import Hit
from model.manager.configuration import Configuration
from model.publication import publish_if_ready
from model.reference import ReferenceAllocator
from model.release import PoppedBlocks
from model.request import Request, Status
from model.snapshot import Snapshot

_IMPOSSIBLE = (IndexError, KeyError, ValueError, AssertionError)
ENDED = "FINISHED"
"""How the engine's states of an ended request start."""


class DifferenceError(Exception):
    """The engine answered something else than the model."""


@dataclass(slots=True)
class Played:
    """What the model answered to one call; equal to what the engine answered."""

    allocation: Allocation | None = None
    hit_tokens: int = 0
    pending: bool = False
    """Whether the model says that writes under way will give blocks back, after a refusal."""
    raised: str | None = None


@dataclass(slots=True)
class Mirror:
    """The reference allocator behind the calls of a real scheduler."""

    configuration: Configuration
    dialect: Dialect
    requests: dict[int, Request] = field(default_factory=dict)
    """Requests that have not ended, by number."""
    scheduled: dict[int, int] = field(default_factory=dict)
    """Tokens allocated for each request in the step being built."""
    deferred: dict[int, PoppedBlocks] = field(default_factory=dict)
    """Deferred releases by number, oldest first."""
    allocator: ReferenceAllocator = field(init=False)
    _ended: set[int] = field(default_factory=set)
    _hits: dict[int, int] = field(default_factory=dict)
    """Tokens of the last lookup of each request that is not admitted yet."""
    _marked: bool = False
    """Whether the end of a step was marked so far."""

    def __post_init__(self) -> None:
        self.allocator = ReferenceAllocator(self.configuration, self.dialect)

    def play(self, call: Call) -> Played:
        """Make the call on the model.

        Raises DifferenceError where the engine answered something else, BeyondModelError where the
        model ends, CallLogError where the record contradicts itself.
        """
        self.follow(call)
        return self.answer(call)

    def follow(self, call: Call) -> bool:
        """Take over what the scheduler did to the call's request; say whether that was anything.

        Once per call, before ``answer``; raises as ``play``.
        """
        view: View | None = getattr(call, "view", None)
        return view is not None and self._follow(view)

    def answer(self, call: Call) -> Played:
        """Make the call, whose request was followed; raises as ``play``."""
        try:
            played = _HANDLERS[type(call)](self, call)
        except _IMPOSSIBLE as error:
            # No legal order of calls comes here: the model would be wrong about what follows.
            raise BeyondModelError(f"the model cannot make this call: {error!r}") from error
        if not isinstance(call, Stopped) and call.free:
            self._compare("free blocks", self._free(), call.free)
        return played

    def snapshot(self) -> Snapshot:
        requests = list(self.requests.values())
        return self.allocator.snapshot(requests, self.scheduled, list(self.deferred.values()))

    def _free(self) -> Ints:
        state = self.allocator.state
        gpu = len(state.gpu.free)
        return (gpu, len(state.host.free)) if self.configuration.hisparse else (gpu,)

    @staticmethod
    def _compare(what: str, model: object, engine: object) -> None:
        if model != engine:
            raise DifferenceError(
                f"{what}: the model says {_say(model)}, the engine {_say(engine)}"
            )

    def _returned(self, call: Any) -> None:
        """The model has answered: so must the engine, and not have raised."""
        self._compare("raised", None, call.raised)

    # Requests

    def _follow(self, view: View) -> bool:
        request = self.requests.get(view.request)
        if request is None:
            if view.request in self._ended:
                raise DifferenceError(f"request {view.request} has ended before")
            request = Request(view.request, 0, 0, 0, [])
            self.allocator.register(request)
            self.requests[request.id] = request
        before = (request.num_tokens, request.computed, request.in_flight, request.status)
        if not request.num_tokens <= view.length <= self.configuration.max_model_len:
            raise CallLogError(f"length: request {request.id} cannot have {view.length} tokens")
        request.tokens.extend([0] * (view.length - request.num_tokens))
        request.contents += view.contents if view.hashes is None else view.hashes
        pages = view.length // self.configuration.block_size
        named = len(request.contents)
        if named != pages and (named or self.configuration.prefix_caching):
            raise CallLogError(
                f"contents: request {request.id} has {pages} full blocks, not {named}"
            )
        request.computed = view.computed
        request.in_flight = view.in_flight
        request.status = _status(view.status)
        return before != (request.num_tokens, view.computed, view.in_flight, request.status)

    def _holding(self, request: int) -> Request:
        """A request that holds blocks in the model."""
        if request not in self.allocator.state.holdings:
            raise DifferenceError(f"request {request} holds nothing in the model")
        return self.requests[request]

    # Allocation

    def lookup(self, call: Lookup) -> Played:
        request = self.requests[call.view.request]
        self._returned(call)
        if call.limit is not None:
            raise BeyondModelError(f"a lookup of at most {call.limit} tokens")
        hit, tokens = (Hit(), 0) if call.skipped else self.allocator.lookup(request)
        self._compare("hit tokens", tokens, call.hit)
        self._compare("hit blocks", hit, self._hit(call.hit, call.blocks))
        self._hits[request.id] = tokens
        return Played(hit_tokens=tokens)

    def _hit(self, tokens: int, blocks: tuple[Ints, ...]) -> Hit:
        """The blocks of a hit; the host may have found more pages than the hit has."""
        pages = tokens // self.configuration.block_size
        if not pages:
            return Hit()
        rows = tuple(row[:pages] for row in blocks)
        if self.configuration.hisparse and len(rows) > 1:
            return Hit(rows[0], rows[1], tokens)
        return Hit((), rows[0] if rows else (), tokens)

    def allocate(self, call: Allocate) -> Played:
        request = self.requests[call.view.request]
        if call.beyond:
            raise BeyondModelError(f"an allocation with {', '.join(call.beyond)}")
        waiting = request.status != Status.RUNNING
        if waiting != (call.hit_blocks is not None) or (waiting and request.computed):
            raise BeyondModelError(f"an allocation of a {call.view.status} request of this kind")
        hit = None if call.hit_blocks is None else self._hit(call.hit, call.hit_blocks)
        found = self._hits.pop(request.id, None) if waiting else 0
        if call.hit != found:
            raise BeyondModelError(f"an allocation with a hit of {call.hit} after one of {found}")
        if not waiting:
            self._holding(request.id)
        state = self.allocator.state
        if waiting and state.configuration.full_sequence_must_fit != call.full:
            state.configuration = replace(state.configuration, full_sequence_must_fit=call.full)
        popped = state.gpu.popped
        try:
            allocation = self.allocator.allocate(request, call.new, hit, call.hit, call.beside)
        except AllocationFailedError as error:
            self._compare("raised", error.kind, call.raised)
            return Played(raised=error.kind)
        self._returned(call)
        self._compare("promised blocks", allocation.promised, call.promised)
        self._compare("new blocks", allocation.new_blocks, call.blocks)
        self._compare("blocks taken", state.gpu.popped - popped, call.popped)
        if allocation.new_blocks is None:
            pending = self.configuration.hisparse and self.allocator.pending_reclamation()
            return Played(allocation, call.hit, pending)
        self.scheduled[request.id] = call.new
        if waiting:
            request.status = Status.RUNNING
            request.computed = call.hit
        return Played(allocation, call.hit)

    def cache(self, call: Cache) -> Played:
        request = self.requests[call.view.request]
        self._returned(call)
        self._holding(request.id)
        row = self.allocator.state.holdings[request.id].indexer
        slots = len(row) * self.configuration.block_size
        if call.tokens > min(request.num_tokens, slots):
            raise DifferenceError(
                f"{call.tokens} tokens are called final, {request.num_tokens} are known and "
                f"{slots} have slots"
            )
        self.allocator.cache(request, max(call.tokens, 0))
        return Played()

    # Release

    def free(self, call: Free) -> Played:
        request = self.requests[call.view.request]
        self._returned(call)
        self.allocator.free(request)
        self._left(request)
        return Played()

    def pop(self, call: Pop) -> Played:
        request = self.requests[call.view.request]
        self._returned(call)
        blocks = self.allocator.pop(request)
        gpu, host = (blocks.gpu, blocks.host) if blocks is not None else ((), ())
        self._compare("popped GPU blocks", tuple(b for b in gpu if b), call.gpu)
        self._compare("popped host blocks", tuple(b for b in host if b), call.host)
        if blocks is not None:
            self.deferred[call.release] = blocks
        self._left(request)
        return Played()

    def _left(self, request: Request) -> None:
        """The request's blocks are gone: it has ended, or starts again later."""
        self.scheduled.pop(request.id, None)
        if request.finished:
            del self.requests[request.id]
            self._ended.add(request.id)
        else:
            request.status = Status.PREEMPTED
            request.computed = 0

    def free_popped(self, call: FreePopped) -> Played:
        self._returned(call)
        blocks = self.deferred.pop(call.release, None)
        if blocks is None:
            raise DifferenceError(f"release {call.release} is not under way in the model")
        self.allocator.free_popped(blocks)
        return Played()

    # Steps and transfers

    def step(self, call: Step) -> Played:
        if self._marked and self.scheduled:
            raise DifferenceError(f"a step starts, and requests {list(self.scheduled)} are in none")
        self.scheduled.clear()
        return Played()

    def scheduled_tokens(self, call: Scheduled) -> Played:
        self._marked = True
        self._compare("scheduled tokens", tuple(sorted(self.scheduled.items())), _sorted(call))
        for number, tokens in call.tokens:
            request = self.requests[number]
            request.computed += tokens
            request.in_flight += tokens
        self.scheduled.clear()
        return Played()

    def advance(self, call: Advance) -> Played:
        self._returned(call)
        scheduled = [(self._holding(number), tokens) for number, tokens in call.scheduled]
        self.allocator.end_step(scheduled)
        return Played()

    def command(self, call: Command) -> Played:
        self._returned(call)
        if call.restored:
            raise BeyondModelError("a page that is brought back from the host")
        self._compare("transfers", self.allocator.take_command(), call.transfers)
        return Played()

    def residency(self, call: Residency) -> Played:
        self._returned(call)
        requests = [self._holding(number) for number in call.requests]
        self._compare("residency", self.allocator.take_updates(requests), call.updates)
        return Played()

    def tables(self, call: Tables) -> Played:
        self._returned(call)
        self._compare("block tables", self.allocator.take_updates(()), call.updates)
        return Played()

    def report(self, call: Report) -> Played:
        """Requests whose writes complete in one report are published in the order of a set."""
        self._returned(call)
        state, order = self.allocator.state, dict.fromkeys(call.published)
        waiting = {r: state.holdings[r].publication for r in order if r in state.holdings}
        for number in waiting:
            state.holdings[number].publication = None
        self.allocator.update_transfers(dict(call.enqueued), dict(call.completed))
        for number, publication in waiting.items():
            state.holdings[number].publication = publication
            publish_if_ready(state, self._holding(number))
        return Played()

    # Questions, and what disturbs the cache

    def reclaimable(self, call: Reclaimable) -> Played:
        self._returned(call)
        self._compare("pending reclamation", self.allocator.pending_reclamation(), call.pending)
        return Played()

    def common_prefix(self, call: CommonPrefix) -> Played:
        self._returned(call)
        request = self._holding(call.request)
        self._compare("common prefix", self.allocator.common_prefix(request), call.shared)
        return Played()

    def evict(self, call: Evict) -> Played:
        self._returned(call)
        for block in call.blocks:
            self.allocator.state.gpu.evict(block)
        return Played()

    def reset(self, call: Reset) -> Played:
        self._returned(call)
        self._compare("reset", self.allocator.reset(), call.done)
        return Played()

    def other(self, call: Other) -> Played:
        raise BeyondModelError(f"the call {call.name}")

    def stopped(self, call: Stopped) -> Played:
        raise BeyondModelError(f"the recorder stopped: {call.reason}")


def _status(word: str) -> Status:
    if word.startswith(ENDED):
        return Status.ABORTED if word.endswith("ABORTED") else Status.STOPPED
    if word in ("RUNNING", "PREEMPTED"):
        return Status[word]
    return Status.WAITING


def _sorted(call: Scheduled) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(call.tokens))


def _say(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


_HANDLERS: dict[type[Call], Callable[[Mirror, Any], Played]] = {
    Lookup: Mirror.lookup,
    Allocate: Mirror.allocate,
    Free: Mirror.free,
    Pop: Mirror.pop,
    FreePopped: Mirror.free_popped,
    Cache: Mirror.cache,
    Advance: Mirror.advance,
    Command: Mirror.command,
    Residency: Mirror.residency,
    Tables: Mirror.tables,
    Report: Mirror.report,
    Reclaimable: Mirror.reclaimable,
    CommonPrefix: Mirror.common_prefix,
    Evict: Mirror.evict,
    Reset: Mirror.reset,
    Step: Mirror.step,
    Scheduled: Mirror.scheduled_tokens,
    Other: Mirror.other,
    Stopped: Mirror.stopped,
}
