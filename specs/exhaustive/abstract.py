"""The abstract machine: adoption against allocation, in a pool whose free blocks are a set.

Small enough to be written again for other checkers. What it leaves out of the reference is listed
in ``specs/README.md``; its admission is the reference's own arithmetic. Every request has the same
``pages`` shared pages and one page of its own behind them. Blocks are numbered from 1, and 0 means
"none"; the null block is none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from model.admission import Demand, admits, gpu_need
from model.dialect import Dialect


class Phase(IntEnum):
    """WAITING → POPPING → (LANDED →) RUNNING → ENDED, or by preemption back to WAITING."""

    WAITING = 0
    POPPING = 1
    """Admitted, and short of blocks: nothing else happens until it has them."""
    LANDED = 2
    """It has its blocks; the copies of its hit are adopted at the end of the step."""
    RUNNING = 3
    ENDED = 4


class Mode(IntEnum):
    """What a page of a request is, on the GPU."""

    ABSENT = 0
    DIRTY = 1
    PENDING = 2
    CLEAN = 3
    UNPINNED = 4
    """Read from a block that is free."""


class Request(NamedTuple):
    phase: int
    hit: int
    """1 if it was admitted with a hit of the shared pages."""
    row: tuple[int, ...]
    """Block of each shared page, then of its own page."""
    modes: tuple[int, ...]
    hot: tuple[int, ...]


class State(NamedTuple):
    published: int
    """1 once the shared pages can be found on the host; they stay there."""
    copies: tuple[int, ...]
    """Block that is the recorded copy of each shared page."""
    writing: tuple[int, ...]
    """Blocks with a host write under way, ascending. A write holds its block."""
    requests: tuple[Request, ...]


Step = tuple[str, tuple[int, ...]]
"""An action's name and its parameters: request, then page or block."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance of the machine, and the dialect whose policy it follows."""

    blocks: int
    """Blocks of the pool, the null block included."""
    requests: int
    pages: int
    """Shared pages, which a hit reuses."""
    hot: int
    """Blocks of a hot region."""
    dialect: Dialect

    def initial(self) -> State:
        return State(0, (0,) * self.pages, (), (self._released(Phase.WAITING),) * self.requests)

    def _released(self, phase: Phase) -> Request:
        none = (0,) * (self.pages + 1)
        return Request(phase, 0, none, none, (0,) * self.hot)

    def free(self, state: State) -> list[int]:
        """Blocks that nothing holds, ascending."""
        held = set(state.writing)
        for request in state.requests:
            held.update(request.hot)
            for block, mode in zip(request.row, request.modes, strict=True):
                if mode != Mode.UNPINNED:
                    held.add(block)
        return [block for block in range(1, self.blocks) if block not in held]

    def crashed(self, state: State) -> bool:
        """The violation: an admitted request is short of a block, and none is free."""
        popping = any(request.phase == Phase.POPPING for request in state.requests)
        return popping and not self.free(state)

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Every action that is possible now, with the state after it."""
        for r, request in enumerate(state.requests):
            if request.phase == Phase.POPPING:
                for block in self.free(state):
                    yield ("Pop", (r, block)), self.pop(state, r, block)
                return
        for r, request in enumerate(state.requests):
            if request.phase == Phase.WAITING and self._admits(state):
                yield ("Admit", (r,)), self.admit(state, r)
            elif request.phase == Phase.LANDED:
                yield ("Land", (r,)), self.adopt(_with(state, r, phase=Phase.RUNNING), r)
            elif request.phase == Phase.RUNNING:
                yield from self._running_steps(state, r, request)
        for block in state.writing:
            yield ("Complete", (block,)), self.complete(state, block)

    def _running_steps(
        self, state: State, r: int, request: Request
    ) -> Iterator[tuple[Step, State]]:
        for page in range(self.pages):
            if request.modes[page] == Mode.DIRTY:
                writing = tuple(sorted((*state.writing, request.row[page])))
                after = _with(state, r, modes=_put(request.modes, page, Mode.PENDING))
                yield ("Write", (r, page)), after._replace(writing=writing)
            elif request.hit and request.modes[page] == Mode.CLEAN:
                modes = _put(request.modes, page, Mode.UNPINNED)
                yield ("Unpin", (r, page)), _with(state, r, modes=modes)
        for name, phase in (("Preempt", Phase.WAITING), ("Finish", Phase.ENDED)):
            yield (name, (r,)), _with(state, r, **self._released(phase)._asdict())

    def _admits(self, state: State) -> bool:
        free = self.free(state)
        return bool(admits(self.need(state, free), 0, len(free)))

    def need(self, state: State, free: list[int]) -> int:
        """Blocks that admission promises to the next request. All waiting requests are alike.

        There is no indexer: the request asks as one whose indexer row is complete.
        """
        hit = state.published * self.pages
        demand = Demand(
            pages=self.pages + 1,
            computed_pages=hit,
            hit_pages=hit,
            hit_free=0,
            host_hit_free=0,
            copies_free=sum(block in free for block in state.copies) if hit else 0,
            held_host=0,
            held_indexer=self.pages + 1,
            held_resident=0,
            held_hot=0,
            wants_hot=hit > 0,
        )
        return int(gpu_need(demand, 1, self.hot, None, self.dialect.charge_copies))

    def admit(self, state: State, r: int) -> State:
        after = _with(state, r, phase=Phase.POPPING, hit=state.published)
        return self.adopt(after, r) if self.dialect.adopt_at == "commit" else after

    def adopt(self, state: State, r: int) -> State:
        """A request with a hit pins the copies that are left; other shared pages stay absent."""
        request = state.requests[r]
        if not request.hit:
            return state
        modes = tuple(Mode.CLEAN if block else Mode.ABSENT for block in state.copies)
        row = (*state.copies, request.row[-1])
        return _with(state, r, row=row, modes=(*modes, request.modes[-1]))

    def pop(self, state: State, r: int, block: int) -> State:
        """A block goes to the next slot of a request; it is nobody's copy any more."""
        state = self._reused(state, block)
        request = state.requests[r]
        slot = self._next_slot(request)
        if slot <= self.pages:
            row, modes = _put(request.row, slot, block), _put(request.modes, slot, Mode.DIRTY)
            state = _with(state, r, row=row, modes=modes)
        else:
            state = _with(state, r, hot=_put(request.hot, slot - self.pages - 1, block))
        return self._allocated(state, r) if self._has_all(state.requests[r]) else state

    def _reused(self, state: State, block: int) -> State:
        """Readers of an unpinned block lose the page."""
        copies = tuple(0 if copy == block else copy for copy in state.copies)
        requests = tuple(_losing(r, block) if block in r.row else r for r in state.requests)
        return state._replace(copies=copies, requests=requests)

    def _next_slot(self, request: Request) -> int:
        """Slots are the pages, those of a hit left out, and then the hot region."""
        first = self.pages if request.hit else 0
        slots = (*request.row, *request.hot)
        return slots.index(0, first)

    def _has_all(self, request: Request) -> bool:
        if request.hit:
            return request.row[-1] != 0 and 0 not in request.hot
        return 0 not in request.row

    def _allocated(self, state: State, r: int) -> State:
        if state.requests[r].hit and self.dialect.adopt_at == "end_of_step":
            return _with(state, r, phase=Phase.LANDED)
        state = _with(state, r, phase=Phase.RUNNING)
        return self.adopt(state, r) if self.dialect.adopt_at == "allocation" else state

    def complete(self, state: State, block: int) -> State:
        """A write is done; the last one of a request publishes its shared pages."""
        state = state._replace(writing=tuple(b for b in state.writing if b != block))
        for r, request in enumerate(state.requests):
            for page in range(self.pages):
                if request.row[page] == block and request.modes[page] == Mode.PENDING:
                    modes = _put(request.modes, page, Mode.CLEAN)
                    state = _with(state, r, modes=modes)
                    if all(mode == Mode.CLEAN for mode in modes[:-1]):
                        return state._replace(published=1, copies=request.row[:-1])
        return state


def _losing(request: Request, block: int) -> Request:
    lost = [
        b == block and mode == Mode.UNPINNED
        for b, mode in zip(request.row, request.modes, strict=True)
    ]
    row = tuple(0 if gone else b for gone, b in zip(lost, request.row, strict=True))
    modes = tuple(
        int(Mode.ABSENT) if gone else mode for gone, mode in zip(lost, request.modes, strict=True)
    )
    return request._replace(row=row, modes=modes)


def _put(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _with(state: State, r: int, **changes: object) -> State:
    """The state with fields of one request changed."""
    request = state.requests[r]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(requests=(*state.requests[:r], request, *state.requests[r + 1 :]))
