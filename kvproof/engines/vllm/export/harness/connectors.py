"""The workers' half of the KV connectors: loads from a store, and HiSparse's page transfers."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import (
    HiSparseConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorWorkerMetadata,
)
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput

from kvproof.engines.vllm.export.harness.engine import Engine, Rule, Step
from kvproof.engines.vllm.inside.store import StoreConnector
from model.scheduler.plan import Load


def parts_of(output: SchedulerOutput) -> Any:
    """What each connector tells the workers: HiSparse's first, if there are two."""
    metadata = output.kv_connector_metadata
    return getattr(metadata, "metadata", (metadata,))


class Loads:
    """Loads from the store; those beside the steps take a while."""

    def __init__(self, store: StoreConnector) -> None:
        self.store = store
        self.under_way: list[Load] = []
        self.received: set[str] = set()  # requests whose loads the next output reports

    def start(self, step: Step) -> None:
        for load in parts_of(step.output)[-1].loads:
            print(
                f"step {step.number}: request {load.request} loads tokens {load.start} to "
                f"{load.end - 1} {'beside the steps' if load.asynchronous else 'within the step'}"
            )
            if load.asynchronous:
                self.under_way.append(load)

    def complete(self, engine: Engine, index: int = 0) -> None:
        """A load beside the steps is done; the next output says so."""
        if self.under_way:
            load = self.under_way.pop(index % len(self.under_way))
            print(f"the load of request {load.request} is done")
            self.received.add(str(load.request))
            self.done(engine.rule, load)

    def done(self, rule: Rule, load: Load) -> None:
        rule.loaded(load, load.end)

    def complete_all(self, engine: Engine) -> None:
        while self.under_way:
            self.complete(engine)

    def report(self, step: Step, report: KVConnectorOutput) -> None:
        report.finished_recving, self.received = self.received, set()


class LossyLoads(Loads):
    """Loads of which some fail: the last pages of a request's first load, if it lost any."""

    def __init__(self, store: StoreConnector, block_size: int) -> None:
        super().__init__(store)
        self.block_size = block_size
        self.lost_pages: dict[int, int] = {}  # by request, until it is loaded
        self.good: dict[int, int] = {}  # position up to which a load works, by its id
        self.loads: list[Load] = []  # all of them, so that an id is that of one
        self.failed: set[str] = set()
        self.invalid: set[int] = set()
        self.unknown: set[str] = set()  # load failed, and the scheduler was not told

    def start(self, step: Step) -> None:
        super().start(step)
        for load in parts_of(step.output)[-1].loads:
            self.loads.append(load)
            self.good[id(load)] = self.good_until(load)
            if not load.asynchronous:
                self.take_note(load)

    def good_until(self, load: Load) -> int:
        """Position from which the store fails to load: whole pages, and the first time only."""
        pages = self.lost_pages.pop(load.request, 0)
        # Several groups of a cache share no block ids, so there only a whole load can fail.
        if not pages or (not load.asynchronous and len(load.blocks) > 1):
            return load.end
        return max(load.start, (-(-load.end // self.block_size) - pages) * self.block_size)

    def take_note(self, load: Load) -> None:
        good = self.good[id(load)]
        if good == load.end:
            return
        print(f"the load of request {load.request} failed from token {good} on")
        self.unknown.add(str(load.request))
        if len(load.blocks) > 1:
            self.failed.add(str(load.request))
        elif load.asynchronous:
            self.invalid.update(self.invalid_blocks(load))

    def done(self, rule: Rule, load: Load) -> None:
        rule.loaded(load, self.good[id(load)])
        self.take_note(load)

    def invalid_blocks(self, load: Load) -> tuple[int, ...]:
        """The blocks that a failed load did not fill."""
        if self.good[id(load)] == load.end:
            return ()
        first = self.good[id(load)] // self.block_size
        return load.blocks[0][first : -(-load.end // self.block_size)]

    def report(self, step: Step, report: KVConnectorOutput) -> None:
        within = [load for load in parts_of(step.output)[-1].loads if not load.asynchronous]
        self.unknown -= self.received | {str(load.request) for load in within}
        super().report(step, report)
        report.failed_recving, self.failed = self.failed, set()
        report.invalid_block_ids = self.invalid.union(*map(self.invalid_blocks, within))
        self.invalid = set()


class Transfers:
    """HiSparse's transfers of pages to the host and back."""

    def __init__(self) -> None:
        self.under_way: list[int] = []  # oldest first
        self.completed: list[int] = []  # those that the next output reports

    def start(self, step: Step) -> None:
        self.under_way += self.of(step)

    def of(self, step: Step) -> list[int]:
        command = parts_of(step.output)[0].command
        return [transfer.transfer_id for transfer in command.page_transfers] if command else []

    def complete(self, count: int) -> None:
        """The oldest page transfers are done; the next output says so."""
        print(f"page transfers done: {self.under_way[:count]}")
        self.completed += self.under_way[:count]
        self.under_way = self.under_way[count:]

    def complete_all(self, engine: Engine) -> None:
        if self.under_way:
            self.complete(len(self.under_way))

    def report(self, step: Step, report: KVConnectorOutput) -> None:
        metadata = HiSparseConnectorWorkerMetadata(
            dict.fromkeys(self.of(step), 1),
            dict.fromkeys(self.completed, 1),
            tuple(copy.dst_block_id for copy in parts_of(step.output)[0].host_block_copies),
        )
        self.completed = []
        if metadata != HiSparseConnectorWorkerMetadata({}, {}, ()):
            report.kv_connector_worker_meta = self.addressed(metadata)

    def addressed(self, metadata: HiSparseConnectorWorkerMetadata) -> Any:
        return metadata


class TransfersBesideStore(Transfers):
    def addressed(self, metadata: HiSparseConnectorWorkerMetadata) -> Any:
        return MultiKVConnectorWorkerMetadata((metadata, None))
