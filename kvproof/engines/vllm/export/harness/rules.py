"""The rules that an exported file of whole engine steps asserts, each a class of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.hisparse.coordinator import get_hisparse_coordinator

from kvproof.engines.vllm.export.harness.connectors import (
    LossyLoads,
    Transfers,
    parts_of,
)
from kvproof.engines.vllm.export.harness.engine import Engine, Rule, Share, Step
from kvproof.engines.vllm.export.harness.memory import (
    FIRST_RESIDENT,
    HOST,
    INDEXER,
    Block,
    Content,
    HiSparseTables,
    MambaMemory,
    Memory,
    Misread,
    Tables,
)
from kvproof.engines.vllm.export.harness.pools import (
    check_accounting,
    check_hisparse_accounting,
    pools_of,
)
from model.scheduler.plan import Load

# What the pools show


class PoolsAreSound(Rule):
    """``check`` holds whenever the scheduler is at rest."""

    def __init__(self, check: Callable[[KVCacheManager], None]) -> None:
        self.check = check

    def judge(self, engine: Engine) -> None:
        self.check(engine.scheduler.kv_cache_manager)


class ReferencesAreHeld(Rule):
    """Every reference count equals the holders."""

    def judge(self, engine: Engine) -> None:
        manager = engine.scheduler.kv_cache_manager
        held = [blocks for _, blocks in engine.scheduler.deferred_frees]
        for group in manager.coordinator.single_type_managers:
            held += getattr(group, "_pending_cow_copies", ())
        check_accounting(manager, held)


class HiSparseReferencesAreHeld(Rule):
    """Every reference count equals the holders."""

    def judge(self, engine: Engine) -> None:
        manager = engine.scheduler.kv_cache_manager
        coordinator = get_hisparse_coordinator(manager)
        held = [blocks for _, blocks in engine.scheduler.deferred_frees]
        for group in manager.coordinator.single_type_managers:
            held += getattr(group, "_pending_cow_copies", ())
        held += coordinator._retained_copies.values()
        check_hisparse_accounting(manager, coordinator, held)


# Preemption


class NoDebt(Rule):
    """A preempted request holds no block, and no counter of a request is below zero."""

    def scheduled(self, engine: Engine, step: Step) -> None:
        for request_id in step.output.preempted_req_ids or ():
            # Not one that was scheduled again in the same step, or loads.
            if engine.scheduler.requests[request_id].status.name == "PREEMPTED":
                managers = engine.scheduler.kv_cache_manager.coordinator.single_type_managers
                rows = [manager.req_to_blocks.get(request_id, ()) for manager in managers]
                kept = [block for row in rows for block in row if not block.is_null]
                assert not kept, f"request {request_id} was preempted and still holds {kept}"

    def judge(self, engine: Engine) -> None:
        for request_id, request in engine.scheduler.requests.items():
            counters = (
                request.num_computed_tokens,
                request.num_in_flight_tokens,
                request.num_output_placeholders,
            )
            assert min(counters) >= 0, f"request {request_id}: {counters}"


class NoneAlonePreempted(Rule):
    """A request that runs alone, with nothing to wait for, is not preempted."""

    def __init__(self, transfers: Transfers | None = None) -> None:
        self.transfers = transfers
        self.was_reset = False  # by a reset that preempted what ran, and no step came since

    def scheduled(self, engine: Engine, step: Step) -> None:
        reported = self.transfers is not None and self.transfers.completed
        busy = engine.under_way() or reported or self.was_reset
        self.was_reset = False
        preempted = list(step.output.preempted_req_ids or ())
        if len(preempted) == 1 and not busy:
            pools = pools_of(engine.scheduler.kv_cache_manager)
            free = all(pool.get_num_free_blocks() == len(pool.blocks) - 1 for pool in pools)
            assert not free, f"request {preempted[0]} runs alone and is preempted"


# Contents


class OwnTokens(Rule):
    """A client is given the tokens of its own text, in order."""

    def told(self, engine: Engine, step: Step, request_id: str, tokens: list[int]) -> None:
        start = engine.told[request_id]
        expected = engine.texts[request_id][start : start + len(tokens)]
        assert tokens == expected, f"request {request_id} is given {tokens} instead of {expected}"


class OwnContents(OwnTokens):
    """A scheduled request reads what its own prefix wrote."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def runs(self, engine: Engine, step: Step) -> None:
        self.memory.texts, self.memory.salts = engine.texts, engine.salts
        self.memory.note(step.output)
        self.fill(step)
        self.compare(step, self.memory.run(step.output, step.shares))

    def fill(self, step: Step) -> None: ...

    def compare(self, step: Step, wrong: list[Misread]) -> None:
        assert not wrong, "\n".join(message for *_, message in wrong)


class OwnOrLoadedContents(OwnContents):
    """A scheduled request reads what its own prefix wrote, or the store loaded."""

    def fill(self, step: Step) -> None:
        for load in parts_of(step.output)[-1].loads:
            if not load.asynchronous:
                self.loaded(load, load.end)

    def loaded(self, load: Load, good: int) -> None:
        self.memory.fill(load, good)


class NoLostContents(OwnOrLoadedContents):
    """A failed load may be read as long as the scheduler cannot know of it, but not told."""

    def __init__(self, memory: Memory, loads: LossyLoads) -> None:
        super().__init__(memory)
        self.loads = loads
        self.tainted: dict[int, set[str]] = {}  # requests that read a failed load, by step

    def fill(self, step: Step) -> None:
        for load in parts_of(step.output)[-1].loads:
            if not load.asynchronous:
                self.loaded(load, self.loads.good[id(load)])

    def compare(self, step: Step, wrong: list[Misread]) -> None:
        tainted: set[str] = set()
        while fresh := sorted({request_id for request_id, *_ in wrong} - tainted):
            unknown = {("lost", request_id) for request_id in self.loads.unknown}
            for request_id in fresh:
                found = [(content, message) for r, content, message in wrong if r == request_id]
                explained = all(content in unknown for content, _ in found)
                assert explained, "\n".join(message for _, message in found)
                tainted.add(request_id)
                self.spoil(step, request_id, found[0][0])
            wrong = self.memory.read([s for s in step.shares if s.request_id not in tainted])
        self.tainted[step.number] = tainted

    def spoil(self, step: Step, request_id: str, lost: Content) -> None:
        """What was computed from a failed load is as useless."""
        start, end = next((start, end) for r, start, end in step.shares if r == request_id)
        for group in self.memory.groups:
            row = self.memory.tables.rows[request_id][group.group]
            for page, _, _ in self.memory.pages(start, end):
                if page < len(row) and row[page]:
                    self.memory.holds["gpu", row[page]] = lost
        if isinstance(self.memory, MambaMemory):
            self.memory.holds[self.memory.state(request_id, end)] = lost

    def told(self, engine: Engine, step: Step, request_id: str, tokens: list[int]) -> None:
        assert not (tokens and request_id in self.tainted[step.number]), (
            f"request {request_id} is given a token that was computed on a failed load"
        )
        super().told(engine, step, request_id, tokens)


# Concurrent writers

Reach = Callable[[Tables, int, Share], set[Block]]
"""The blocks that a request's share of a step reads or writes."""


class LoadsBesideNobody(Rule):
    """A load beside the steps writes no block that a step in flight uses."""

    def __init__(
        self, tables: Tables, block_size: int, reach: Reach, filled: dict[int, str]
    ) -> None:
        self.tables = tables
        self.block_size = block_size
        self.reach = reach
        self.filled = filled  # groups that a load fills, and the pool of each
        self.used: dict[int, set[Block]] = {}  # blocks that a step uses, by its number

    def runs(self, engine: Engine, step: Step) -> None:
        size = self.block_size
        for load in parts_of(step.output)[-1].loads:
            first, last = load.start // size, -(-load.end // size)
            written: set[Block] = set()
            for group, pool in self.filled.items():
                written |= cells(pool, load.blocks[group][first:last])
            for running in engine.in_flight if load.asynchronous else ():
                assert not written & self.used[running.number], (
                    f"the load of request {load.request} writes "
                    f"{written & self.used[running.number]}, which a step in flight uses"
                )
        self.tables.note(step.output)
        self.used[step.number] = set()
        for share in step.shares:
            self.used[step.number] |= self.reach(self.tables, size, share)


def cells(pool: str, blocks: Iterable[int]) -> set[Block]:
    return {(pool, block) for block in blocks if block}


def full_reach(tables: Tables, size: int, share: Share) -> set[Block]:
    pages = -(-share.end // size)
    return cells("gpu", tables.rows[share.request_id][0][:pages])


def sliding_reach(tables: Tables, size: int, share: Share, window: int) -> set[Block]:
    pages = -(-share.end // size)
    first = max(0, share.start - window + 1) // size
    row = tables.rows[share.request_id][1]
    return full_reach(tables, size, share) | cells("gpu", row[first:pages])


def mamba_reach(tables: Tables, size: int, share: Share) -> set[Block]:
    row = tables.rows[share.request_id][1]
    ends = (share.start or share.end, share.end)
    states = [row[(end - 1) // size] for end in ends]
    return full_reach(tables, size, share) | cells("gpu", states)


def hisparse_reach(tables: HiSparseTables, size: int, share: Share) -> set[Block]:
    first, pages = share.start // size, -(-share.end // size)
    rows = tables.rows[share.request_id]
    reached = cells("host", rows[HOST][:pages]) | cells("gpu", rows[INDEXER][:pages])
    for group in range(FIRST_RESIDENT, FIRST_RESIDENT + tables.resident_groups):
        # A row only grows: it names blocks that were given away since.
        reached |= cells("gpu", rows[group][first:pages])
        reached |= cells("gpu", tables.row_read(share.request_id, group)[:pages])
    return reached
