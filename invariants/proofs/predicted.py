"""The proofs are about the program: the arithmetic's verdict on an allocation, beside the real one.

The verdict is worked out from the state before the call, as a subject shows it, and from the
functions that the theorems are about; then compared with what the subject did. ``sweep`` makes
pools whose free blocks are the few counts where verdicts change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from invariants.proofs.mutants import MUTANTS, formulas_of
from invariants.proofs.obligation import THE_MODELS, Formulas
from model.admission import INTEGERS, Demand
from model.dialect import Dialect
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    Extend,
    Finish,
    Hold,
)
from model.manager.configuration import Configuration
from model.manager.events import Allocated, Event, Idle, OutputProcessed, Raised, Refused, Response
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.pool import NULL
from model.program import Program
from model.reference import ReferenceAllocator
from model.request import Status
from model.snapshot import PoolState, RequestState, Snapshot
from model.state import HOST_GROUP
from model.trace import Trace

NUM_BLOCKS = 96
"""More than all shapes need: free blocks are set by ``Hold``."""


@dataclass(frozen=True, slots=True)
class Prediction:
    verdict: Literal["granted", "refused", "crash"]
    promised: tuple[int, ...]
    """Blocks at each gate that is passed or refused."""
    copies: int
    """Free GPU copies of the hit."""


@dataclass(frozen=True, slots=True)
class Call:
    """One allocation that an action asks for."""

    request: RequestState
    tokens: int
    waiting: bool
    beside_running: bool


@dataclass(frozen=True, slots=True)
class FoundHit:
    """The longest cached prefix, looked up in a snapshot."""

    host: tuple[int, ...] = ()
    indexer: tuple[int, ...] = ()
    copies: int = 0


def predict_call(
    configuration: Configuration,
    dialect: Dialect,
    before: Snapshot,
    call: Call,
    formulas: Formulas = THE_MODELS,
) -> Prediction:
    """Admitted, refused or crashing, by the arithmetic of ``model.admission`` alone."""
    c = configuration
    hit = look_up(c, before, call.request) if call.waiting else FoundHit()
    start = len(hit.indexer) * c.block_size if call.waiting else call.request.computed
    gates: list[tuple[int, int | None]] = [(min(start + call.tokens, c.max_model_len), None)]
    if call.waiting and c.full_sequence_must_fit:
        whole = min(call.request.num_tokens, c.max_model_len)
        gates.insert(0, (whole, c.resident_cap))
    watermark = c.watermark_blocks if call.waiting and call.beside_running else 0
    free = len(before.gpu.free)
    promised: list[int] = []
    for tokens, cap in gates:
        demand = _demand(c, dialect, before, call, hit, tokens)
        promised.append(_promise(c, dialect, before, demand, cap, formulas))
        if not formulas.admits(promised[-1], watermark, free):
            return Prediction("refused", tuple(promised), hit.copies)
    pinned_first = hit.copies if dialect.adopt_at == "commit" else 0
    # By the theorems hits-pay and running-pays, a step's charge without copies is what it takes.
    taken = promised[-1] - (hit.copies if dialect.charge_copies else 0)
    crashes = taken + pinned_first > free
    return Prediction("crash" if crashes else "granted", tuple(promised), hit.copies)


def _promise(
    c: Configuration,
    dialect: Dialect,
    before: Snapshot,
    demand: Demand,
    cap: int | None,
    f: Formulas,
) -> int:
    if not c.hisparse:
        need = f.full_attention_need(
            demand.pages, demand.hit_pages, demand.held_indexer, demand.hit_free
        )
        return int(need)
    need = f.gpu_need(demand, c.num_resident_groups, c.hot_blocks, cap, dialect.charge_copies)
    if before.host is not None and not dialect.host_best_effort:
        need += f.host_shortage(demand, len(before.host.free), c.num_blocks)
    return int(need)


def _demand(
    c: Configuration, dialect: Dialect, before: Snapshot, call: Call, hit: FoundHit, tokens: int
) -> Demand:
    request, groups = call.request, c.num_resident_groups
    rows = [len(row) for row in request.tables] if not call.waiting else []
    start = len(hit.indexer) * c.block_size if call.waiting else request.computed
    host, indexer, resident, hot = 0, 0, 0, 0
    if rows and c.hisparse:
        host, indexer, resident, hot = rows[0], rows[1], rows[2], rows[2 + groups]
    elif rows:
        indexer = rows[0]
    return Demand(
        pages=INTEGERS.ceil_div(tokens, c.block_size),
        computed_pages=INTEGERS.ceil_div(start, c.block_size),
        hit_pages=len(hit.indexer),
        hit_free=_num_free(before.gpu, hit.indexer),
        host_hit_free=_num_free(before.host, hit.host) if before.host is not None else 0,
        copies_free=hit.copies if dialect.charge_copies else 0,
        held_host=host,
        held_indexer=indexer,
        held_resident=resident,
        held_hot=hot,
        wants_hot=bool(hit.indexer) if call.waiting else bool(request.wants_hot),
    )


def look_up(c: Configuration, before: Snapshot, request: RequestState) -> FoundHit:
    """The hit is as long as both tiers can serve, and ends before the last token."""
    if not c.prefix_caching:
        return FoundHit()
    contents = request.contents[: (request.num_tokens - 1) // c.block_size]
    indexer = _longest(before.gpu, 1 if c.hisparse else 0, contents)
    if before.host is None:
        return FoundHit((), indexer)
    host = _longest(before.host, HOST_GROUP, contents)
    pages = min(len(host), len(indexer))
    of_content = {content: blocks for content, *blocks in before.copies}
    copies = {block for content in contents[:pages] for block in of_content.get(content, ())}
    return FoundHit(host[:pages], indexer[:pages], _num_free(before.gpu, tuple(copies)))


def _longest(pool: PoolState, group: int, contents: Sequence[int]) -> tuple[int, ...]:
    oldest = {(key[0], key[1]): key[2] for key in pool.cached}
    found: list[int] = []
    for content in contents:
        if (group, content) not in oldest:
            break
        found.append(oldest[group, content])
    return tuple(found)


def _num_free(pool: PoolState, blocks: tuple[int, ...]) -> int:
    return sum(block != NULL and pool.counts[block] == 0 for block in blocks)


# Beside a trace


def mismatches(
    trace: Trace, dialect: Dialect, formulas: Formulas = THE_MODELS
) -> tuple[int, list[str]]:
    """How many allocations of a trace were predicted, and where the subject did otherwise.

    The trace needs its states (``snapshots="all"``). Calls whose state before is not shown (an
    output arrives inside the action) or whose request cannot be told are left out.
    """
    c, wrong, predicted = trace.program.configuration, [], 0
    steps = trace.steps
    for index in range(1, len(steps)):
        action, response = trace.program.actions[index], steps[index].response
        before = steps[index - 1].snapshot
        call = None if before is None else _call_of(c, before, action, response)
        if before is None or call is None:
            continue
        predicted += 1
        expected = predict_call(c, dialect, before, call, formulas)
        actual = _outcome(response[-1], expected.promised)
        if actual != (expected.verdict, expected.promised):
            wrong.append(
                f"{trace.subject}, action {index}: {actual[0]} {actual[1]}, "
                f"predicted {expected.verdict} {expected.promised}"
            )
    return predicted, wrong


def _outcome(event: Event, promised: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """What the subject did; one that raised no longer says what it had promised."""
    if isinstance(event, Raised):
        return ("crash" if event.kind == "OutOfBlocks" else event.kind), promised
    assert isinstance(event, Allocated | Refused)
    return ("refused" if isinstance(event, Refused) else "granted"), event.promised


def _call_of(c: Configuration, before: Snapshot, action: Action, response: Response) -> Call | None:
    first, last = response[0], response[-1]
    if not isinstance(action, Admit | Extend) or isinstance(first, OutputProcessed | Idle):
        return None
    waiting = isinstance(action, Admit)
    running = [r for r in before.requests if r.status == Status.RUNNING]
    ready = [r for r in running if not r.scheduled]
    candidates = [r for r in before.requests if r.status != Status.RUNNING] if waiting else ready
    if isinstance(last, Allocated | Refused):
        candidates = [r for r in candidates if r.id == last.request]
    if len(candidates) != 1:
        return None
    (request,) = candidates
    start = request.computed
    left = request.num_tokens - start
    if waiting:
        start = len(look_up(c, before, request).indexer) * c.block_size
        left = request.num_tokens - start
    else:
        left = min(left, c.max_model_len - 1 - start)
    budget = c.max_num_batched_tokens - sum(r.scheduled for r in before.requests)
    tokens = min(action.tokens, left, budget)
    return Call(request, tokens, waiting, bool(running)) if tokens > 0 else None


# Pools that sweep the counts of free blocks at which verdicts change


@dataclass(frozen=True, slots=True)
class Shape:
    """A producer of ``produced`` pages, and a request that comes with ``tokens``."""

    block_size: int
    groups: int
    """Resident groups; with 0 there is one full-attention group and no HiSparse."""
    region: int
    produced: int
    tokens: int
    chunk: int
    """Tokens of its first step."""
    full_gate: bool
    watermark: int = 0
    beside: int = 0
    """Pages of another request, which runs."""
    host_blocks: int = NUM_BLOCKS
    longest: int = 12
    """Pages of the longest request."""

    @property
    def configuration(self) -> Configuration:
        return Configuration(
            block_size=self.block_size,
            num_blocks=NUM_BLOCKS,
            num_host_blocks=self.host_blocks if self.groups else 0,
            num_resident_groups=self.groups,
            hot_blocks=self.region,
            max_model_len=self.longest * self.block_size,
            max_num_batched_tokens=self.longest * self.block_size,
            watermark_blocks=self.watermark,
            full_sequence_must_fit=self.full_gate,
        )

    def program(self, free: int) -> ManagerProgram:
        """``free`` blocks are left when the request comes; then it asks for more."""
        shared = self.produced * self.block_size
        actions: list[Action] = [
            Arrive(0, shared, shared), Admit(0, shared), EndStep(), CompleteTransfers(0, 99),
            Finish(0),
        ]  # fmt: skip
        if self.beside:
            tokens = self.beside * self.block_size
            actions += [Arrive(1, 0, tokens), Admit(0, tokens), EndStep()]
        actions += [Hold(free), Arrive(0, shared, self.tokens), Admit(0, self.chunk), EndStep()]
        return Program(self.configuration, (*actions, Extend(1, self.chunk)))


def shapes() -> Iterator[Shape]:
    """Cold, hit and chunked requests: on three resident groups at most, on none, on a full host."""
    for size, groups, region in product((1, 2), (1, 2, 3), (1, 2)):
        yield from shapes_on(Shape(size, groups, region, 0, 0, 0, True))
    for size in (1, 2):
        yield from shapes_on(Shape(size, 0, 1, 0, 0, 0, True))
    yield from host_shapes()


def shapes_on(engine: Shape) -> Iterator[Shape]:
    for produced, more in product((1, 3), (0, 1, 2)):
        tokens = (produced + more) * engine.block_size
        for chunked, full_gate in ((False, True), (True, True), (True, False)):
            yield replace(
                engine,
                produced=produced,
                tokens=tokens,
                chunk=engine.block_size if chunked else tokens,
                full_gate=full_gate,
                watermark=2 if more == 2 else 0,
                beside=1 if more == 2 else 0,
            )


def host_shapes() -> Iterator[Shape]:
    """The host pool, at the start-up minimum or a block above, is one block short or just enough:
    another request holds three."""
    beside = 3
    for size, groups, produced, more in product((1, 2), (1, 2), (1, 2), (2, 3)):
        pages = produced + more
        for full_gate, enough in product((False, True), (0, 1)):
            yield Shape(
                size, groups, 1, produced, pages * size, pages * size, full_gate,
                beside=beside, host_blocks=pages + beside + enough, longest=pages + 1,
            )  # fmt: skip


def charge_programs(dialect: Dialect, shape: Shape) -> Iterator[ManagerProgram]:
    """One program for each count of free blocks from need - 1 to need + k, watermark included."""
    ample = shape.program(NUM_BLOCKS)
    last = next(n for n, action in enumerate(ample.actions) if isinstance(action, Hold)) + 2
    session = Session(ample.configuration, ReferenceAllocator(ample.configuration, dialect))
    for action in ample.actions[:last]:
        session.do(action)
    before = session.snapshot()
    request = before.requests[-1]
    hit = len(look_up(ample.configuration, before, request).indexer) * shape.block_size
    tokens = min(shape.chunk, request.num_tokens - hit)
    call = Call(request, tokens, waiting=True, beside_running=shape.beside > 0)
    gpu_alone = replace(dialect, charge_copies=False, host_best_effort=True)
    prediction = predict_call(ample.configuration, gpu_alone, before, call)
    need = max(prediction.promised) + shape.watermark
    for free in range(max(need - 1, 0), need + prediction.copies + 1):
        yield shape.program(free)


# The whole sweep, on one subject

LEAST_SHAPES = 1_000
"""Fewer pools than this are no evidence."""
(TWIN,) = (mutant for mutant in MUTANTS if mutant.refuted_at == "deferred-begins")
"""Arithmetic with this fault must be seen to predict otherwise."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What became of a sweep."""

    shapes: int
    """Pools, each with its count of free blocks."""
    calls: int
    """Allocations predicted."""
    mismatches: tuple[str, ...]
    twin_seen: bool
    """Whether the faulty arithmetic was seen to predict otherwise."""


def sweep(
    run: Callable[[Iterable[ManagerProgram]], Iterable[Trace]], dialect: Dialect
) -> Agreement:
    """Hold the arithmetic against what ``run`` does with each pool; its traces have all states."""
    shapes_run, calls, wrong, twin_seen = 0, 0, list[str](), False
    twin = formulas_of(TWIN)
    programs = (p for shape in shapes() for p in charge_programs(dialect, shape))
    for trace in run(programs):
        predicted, found = mismatches(trace, dialect)
        twin_seen = twin_seen or bool(mismatches(trace, dialect, twin)[1])
        shapes_run, calls = shapes_run + 1, calls + predicted
        wrong += found
    return Agreement(shapes_run, calls, tuple(wrong), twin_seen)
