"""A program at the manager level as calls of vLLM's KV-cache manager, one after another.

The program runs on the reference under the dialect in which it was found; a recorder writes down
every call that the session makes, with its indices resolved, in the engine's own API. Answers
that later calls depend on are compared with the recorded ones while the file runs: a release that
goes another way makes it a skip, since the sequence then says nothing about that release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kvproof.engines.vllm.export.layout import Code, argument, call, listed, quoted, ranges
from model.allocator import Allocation, Rows
from model.dialect import Dialect
from model.holding import Hit
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.events import IDLE, Response
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import call_of
from model.reference import ReferenceAllocator
from model.release import PoppedBlocks
from model.request import Request
from model.snapshot import Snapshot


def record(program: ManagerProgram, dialect: Dialect, judged: str) -> Recorder:
    """The calls of a program whose last step breaks the rule ``judged``, if one is given.

    The rule may also be ``METERED``.
    """
    c = program.configuration
    recorder = Recorder(ReferenceAllocator(c, dialect), c)
    session: Session[Hit, PoppedBlocks] = Session(c, recorder)
    for index, action in enumerate(program.actions):
        recorder.begin(index, action, judged if index == len(program.actions) - 1 else "")
        recorder.end(session.do(action))
        recorder.dead = session.dead
        if session.dead:
            break
    return recorder


METERED = "I4, metered"
"""I4 where nothing raises: what the predictor promised is held against what was taken."""
BROKEN_BY_REFUSAL = ("I6", "I16")
STATUS = ("WAITING", "RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_ABORTED")
"""The engine's names, by ``model.request.Status``."""
AT_FIRST = {
    "status": "RequestStatus.WAITING",
    "num_computed_tokens": 0,
    "num_in_flight_tokens": 0,
    "num_output_placeholders": 0,
}
"""Progress of a request that arrived."""


@dataclass(slots=True)
class Recorder:
    """An allocator that passes calls on to the reference and writes them down for the engine."""

    reference: ReferenceAllocator
    configuration: Configuration
    statements: list[Code] = field(default_factory=list)
    dead: bool = False
    refused_last: bool = False
    _step: int = 0
    _judged: str = ""
    """The rule that the step being recorded breaks, or nothing."""
    _told: dict[int, dict[str, object]] = field(default_factory=dict)
    """What the engine's requests were told of their progress, by request."""
    _held: list[tuple[object, str]] = field(default_factory=list)
    """Blocks that the file keeps in variables, and their names."""
    _names: int = 0
    _scheduled: Code = ""

    def begin(self, index: int, action: Action, judged: str) -> None:
        self._step, self._judged = index + 1, judged
        self._write("", f"# {self._step}. {call_of(action)}")

    def end(self, response: Response) -> None:
        if response == IDLE:
            self.statements[-1] = f"{self.statements[-1]}: not possible now"

    @property
    def held(self) -> list[str]:
        """The names of all variables that hold blocks."""
        return [name for _, name in self._held]

    def _write(self, *statements: Code) -> None:
        self.statements += statements

    def _expect(self, seen: Code, recorded: object) -> None:
        answer = listed(list(map(str, recorded))) if isinstance(recorded, list) else str(recorded)
        self._write(call("expect", str(self._step), seen, answer))

    def _synced(self, request: Request) -> str:
        """Tell the engine's request the progress that its scheduler would have noted."""
        name = f"request_{request.id}"
        progress: dict[str, object] = {
            "status": f"RequestStatus.{STATUS[request.status]}",
            "num_computed_tokens": request.computed,
            "num_in_flight_tokens": request.in_flight,
            "num_output_placeholders": request.placeholders,
        }
        told = self._told[request.id]
        self._write(*(f"{name}.{k} = {v}" for k, v in progress.items() if told[k] != v))
        told.update(progress)
        return name

    def _keep(self, what: object, prefix: str) -> str:
        name = f"{prefix}_{self._names}"
        self._names += 1
        self._held.append((what, name))
        return name

    # Requests

    def register(self, request: Request) -> None:
        c = self.configuration
        arguments: list[Code] = [quoted(request.id), ranges(request.tokens)]
        arguments += [f"block_size={c.block_size}", f"max_tokens={c.max_model_len}"]
        if request.salt:
            arguments.append(argument("cache_salt", quoted(request.salt)))
        self._write(call(f"request_{request.id} = new_request", *arguments))
        self._told[request.id] = dict(AT_FIRST)
        self.reference.register(request)

    def append(self, request: Request, token: int) -> None:
        self._write(f"request_{request.id}.append_output_token_ids({token})")
        self.reference.append(request, token)

    # Allocation and release

    def lookup(self, request: Request) -> tuple[Hit, int]:
        name = self._synced(request)
        hit, tokens = self.reference.lookup(request)
        self._write(f"hit, hit_tokens, *_ = manager.get_computed_blocks({name})")
        self._expect("hit_tokens", tokens)
        return hit, tokens

    def allocate(
        self,
        request: Request,
        new_tokens: int,
        hit: Hit | None,
        hit_tokens: int,
        beside_running: bool,
    ) -> Allocation:
        name = self._synced(request)
        self._before_allocation(hit)
        keywords: tuple[str, ...] = ()
        if hit is not None:
            keywords = (
                "num_new_computed_tokens=hit_tokens",
                "new_computed_blocks=hit",
                f"full_sequence_must_fit={self.configuration.full_sequence_must_fit}",
                f"has_scheduled_reqs={beside_running}",
            )
        self._write(call("new = manager.allocate_slots", name, str(new_tokens), *keywords))
        allocation = self.reference.allocate(request, new_tokens, hit, hit_tokens, beside_running)
        self._after_allocation(allocation)
        return allocation

    def _before_allocation(self, hit: Hit | None) -> None:
        if self._judged == METERED:
            group = self.reference.state.indexer_group
            free = f"sum(block.ref_cnt == 0 for block in hit.blocks[{group}])"
            self._write(
                f"hit_free = {free if hit is not None else 0}",
                "promised, taken = metered(manager)",
            )
        elif self._judged == "I4":
            self._write("# It answers with blocks or with None; it must not raise.")

    def _after_allocation(self, allocation: Allocation) -> None:
        if self._judged == METERED:
            self._write("assert new is None or len(taken) + hit_free <= promised[-1]")
        elif self._judged in BROKEN_BY_REFUSAL:
            self.refused_last = allocation.new_blocks is None
            self._write('assert new is not None, "a request that fits was refused"')
        elif self._judged != "I4":
            self._expect("new is not None", allocation.new_blocks is not None)

    def cache(self, request: Request, tokens: int) -> None:
        self._write(f"manager.cache_blocks({self._synced(request)}, {tokens})")
        self.reference.cache(request, tokens)

    def free(self, request: Request) -> None:
        self._write(f"manager.free({self._synced(request)})")
        self.reference.free(request)

    def pop(self, request: Request) -> PoppedBlocks | None:
        statement = f"manager.pop_blocks_for_free({self._synced(request)})"
        popped = self.reference.pop(request)
        if popped is None:
            self._expect(f"len({statement})", 0)
        else:
            self._write(f"{self._keep(popped, 'popped')} = {statement}")
        return popped

    def free_popped(self, blocks: PoppedBlocks) -> None:
        index = next(i for i, (kept, _) in enumerate(self._held) if kept is blocks)
        _, name = self._held.pop(index)
        self._write(f"manager.block_pool.free_blocks(reversed({name}))")
        self.reference.free_popped(blocks)

    # Steps and transfers

    def end_step(self, scheduled: Sequence[tuple[Request, int]]) -> None:
        pairs = [f"({quoted(request.id)}, {tokens})" for request, tokens in scheduled]
        self._scheduled = listed(pairs)
        self.reference.end_step(scheduled)

    def take_command(self) -> Rows:
        command = self.reference.take_command()
        step = call("end_step", "coordinator", self._scheduled)
        self._expect(step, [transfer for transfer, *_ in command])
        return command

    def take_updates(self, scheduled: Sequence[Request]) -> Rows:
        return self.reference.take_updates(scheduled)

    def update_transfers(self, enqueued: Mapping[int, int], completed: Mapping[int, int]) -> None:
        self._write(f"coordinator.update_spills({dict(enqueued)}, {dict(completed)})")
        self.reference.update_transfers(enqueued, completed)

    def pending_reclamation(self) -> bool:
        return self.reference.pending_reclamation()

    def common_prefix(self, request: Request) -> tuple[int, ...]:
        if self._judged in ("I19", "crash"):
            self._write(f"manager.get_num_common_prefix_blocks({quoted(request.id)})")
        return self.reference.common_prefix(request)

    def evict(self, request: Request, page: int) -> None:
        holding = self.reference.state.holdings.get(request.id)
        if holding is not None and page < len(holding.indexer):
            group = self.reference.state.indexer_group
            block = f"manager.get_block_ids({quoted(request.id)})[{group}][{page}]"
            self._write(f"manager.evict_blocks({{{block}}})")
        self.reference.evict(request, page)

    def reset(self) -> bool:
        done = self.reference.reset()
        self._expect("manager.reset_prefix_cache()", done)
        return done

    def hold(self, free_blocks: int) -> None:
        excess = max(len(self.reference.state.gpu.free) - free_blocks, 0)
        name = self._keep(excess, "held")
        self._write(f"{name} = manager.block_pool.get_new_blocks({excess})")
        self.reference.hold(free_blocks)

    def snapshot(
        self, requests: Sequence[Request], scheduled: Mapping[int, int], deferred: Sequence[object]
    ) -> Snapshot:
        raise NotImplementedError("a recorder is asked for calls only")
