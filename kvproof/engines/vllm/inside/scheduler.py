"""A released vLLM's whole scheduler behind plain calls.

It runs in the engine's own interpreter, with the engine's sources on the path, and asks what the
engine can do, never which version it is.  The scheduler, its KV-cache manager, the HiSparse
connector and the connector factory are the engine's own.
"""

import inspect
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import (
    HiSparseConnectorMetadata,
    HiSparseConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiKVConnectorMetadata,
    MultiKVConnectorWorkerMetadata,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from kvproof.engines.vllm.inside.configuration import cache_config, check_startable, engine_config
from kvproof.engines.vllm.inside.missing import building, require
from kvproof.engines.vllm.inside.pools import pool_states
from kvproof.engines.vllm.inside.settings import sampling_parameters
from kvproof.engines.vllm.inside.store import StoreConnector, StoreMetadata
from kvproof.engines.vllm.inside.view import EngineView, deferred_blocks
from model.scheduler.plan import (
    Mirror,
    NewRequest,
    Output,
    Pending,
    PoolState,
    RequestView,
    Residency,
    Scheduled,
    StepOutcome,
    StepPlan,
    Table,
    Transfer,
)
from model.scheduler.setup import SchedulerSetup

init_none_hash(sha256)


class EngineScheduler:
    """One ``Scheduler`` or ``AsyncScheduler`` with what belongs to it.

    Raises ``NotStartableError`` for a setup with which the engine would not start.  Steps are
    updated in the order in which they were scheduled; at most ``steps_in_flight_max`` of them
    are in flight.  What the engine raises propagates.
    """

    def __init__(self, setup: SchedulerSetup) -> None:
        check_startable(setup)
        self.setup = setup
        config = engine_config(setup)
        with building("Scheduler"):
            cache = cache_config(setup)
            block_size, hash_block_size = resolve_kv_cache_block_sizes(cache, config)
            scheduler_class: Any = AsyncScheduler if setup.async_scheduling else Scheduler
            self.scheduler: Any = scheduler_class(
                vllm_config=config,
                kv_cache_config=cache,
                structured_output_manager=NoStructuredOutput(),
                block_size=block_size,
                hash_block_size=hash_block_size,
                mm_registry=NoMultimodalInputs(),
            )
        self.steps_in_flight_max: int = config.max_concurrent_batches
        require(self.scheduler, "kv_cache_manager", "connector", "requests", "deferred_frees")
        self.manager = self.scheduler.kv_cache_manager
        self.connector = self.scheduler.connector
        self._parts = getattr(self.connector, "sub_connectors", [self.connector])
        self.store = next((p for p in self._parts if isinstance(p, StoreConnector)), None)
        hisparse: Any = self._parts[0].connector_scheduler if setup.hisparse else None
        self.view = EngineView(self.manager, hisparse.coordinator if hisparse else None)
        hashed = setup.prefix_caching or self.connector is not None
        self._hasher = get_request_block_hasher(hash_block_size, sha256) if hashed else None
        self._steps: deque[tuple[int, Any]] = deque()
        self._scheduled = 0

    # Requests

    def add(self, new: NewRequest) -> None:
        """A client's request arrives.  ``ValueError`` when the engine would refuse it."""
        if not new.tokens or len(new.tokens) >= self.setup.max_model_len or new.max_tokens < 1:
            raise ValueError("a prompt has a token, leaves room for one, and asks for one")
        if self.store is not None:
            self.store.contents[new.id] = new.external
        self.scheduler.add_request(
            Request(
                str(new.id),
                list(new.tokens),
                sampling_parameters(new.max_tokens),
                None,
                arrival_time=new.arrival,
                priority=new.priority,
                cache_salt=str(new.salt) if new.salt else None,
                block_hasher=self._hasher,
            )
        )

    def abort(self, requests: Iterable[int]) -> tuple[int, ...]:
        """Clients go away; returns those whose requests were still unfinished."""
        keys = [str(request) for request in requests]
        live = [key for key in keys if _is_live(self.scheduler.requests.get(key))]
        self.scheduler.finish_requests(keys, RequestStatus.FINISHED_ABORTED)
        return _numbers(live)

    # Steps

    def schedule(self) -> StepPlan:
        """Plan the next step; at most ``steps_in_flight_max`` may be in flight with it."""
        assert len(self._steps) < self.steps_in_flight_max
        output = self.scheduler.schedule()
        self._scheduled += 1
        self._steps.append((self._scheduled, output))
        return self._plan(self._scheduled, output)

    def update(self, step: int, outcome: StepOutcome) -> tuple[Output, ...]:
        """The workers' report about the oldest step in flight; ``ValueError`` for another one."""
        if not self._steps or self._steps[0][0] != step:
            raise ValueError(f"step {step} is not the oldest in flight")
        _, output = self._steps.popleft()
        produced = self.scheduler.update_from_output(output, self._runner_output(output, outcome))
        return tuple(
            [
                Output(int(o.request_id), tuple(o.new_token_ids), _reason(o.finish_reason))
                for outputs in produced.values()
                for o in outputs.outputs
            ]
        )

    def reset_prefix_cache(self, running: bool = False, connector: bool = False) -> bool:
        """``running`` preempts what runs; the engine raises if that was not enough."""
        keywords = {"reset_running_requests": running, "reset_connector": connector}
        known = inspect.signature(self.scheduler.reset_prefix_cache).parameters
        return bool(
            self.scheduler.reset_prefix_cache(**{k: v for k, v in keywords.items() if k in known})
        )

    # What can be seen from outside

    def has_requests(self) -> bool:
        """Whether the engine's loop goes on: requests, or transfers to be reported."""
        return bool(self.scheduler.has_requests())

    def statuses(self) -> dict[int, RequestView]:
        return {
            int(key): RequestView(
                int(key),
                request.status.name.lower(),
                request.num_tokens,
                request.num_prompt_tokens,
                request.num_computed_tokens,
                request.num_in_flight_tokens,
                request.num_output_placeholders,
                request.num_preemptions,
            )
            for key, request in self.scheduler.requests.items()
        }

    def pending(self) -> Pending:
        store = self.store
        return Pending(
            steps=tuple([step for step, _ in self._steps]),
            transfers=self.view.spill_ids(),
            host_copies=tuple(sorted(self.view.retained_copies())),
            loads=tuple(sorted(store.loading)) if store else (),
            deferred_loads=_numbers(getattr(self.scheduler, "deferred_loads", ())),
            deferred_blocks=tuple([block.block_id for block in deferred_blocks(self.scheduler)]),
        )

    def pool_states(self) -> tuple[PoolState, ...]:
        """Each pool whole, with all holders: O(pool), for an audit."""
        return pool_states(self.view, deferred_blocks(self.scheduler))

    # Translation

    def _plan(self, step: int, output: Any) -> StepPlan:
        metadata = _metadata_parts(output.kv_connector_metadata)
        hisparse = next((m for m in metadata if isinstance(m, HiSparseConnectorMetadata)), None)
        loads = next((m.loads for m in metadata if isinstance(m, StoreMetadata)), ())
        return StepPlan(
            step=step,
            scheduled=self._shares(output),
            preempted=tuple(sorted(_numbers(output.preempted_req_ids or ()))),
            finished=tuple(sorted(_numbers(output.finished_req_ids))),
            zeroed=tuple(output.new_block_ids_to_zero or ()),
            copies=_pairs(output.kv_cache_block_copies or ()),
            loads=loads,
            **self._hisparse_plan(output, hisparse),
        )

    def _shares(self, output: Any) -> tuple[Scheduled, ...]:
        """The requests of a step, in the engine's order."""
        new = {data.req_id: data for data in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        place = {key: index for index, key in enumerate(cached.req_ids)}
        shares = []
        for key, tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[key]
            if key in new:
                computed, blocks = new[key].num_computed_tokens, new[key].block_ids
                kind = "resumed" if request.num_preemptions else "new"
            else:
                computed = cached.num_computed_tokens[place[key]]
                blocks, kind = cached.new_block_ids[place[key]], "running"
            share = Scheduled(
                int(key),
                tokens,
                computed,
                kind,  # type: ignore[arg-type]
                None if blocks is None else _table(blocks),
                samples=not request.is_prefill_chunk,
            )
            shares.append(share)
        return tuple(shares)

    def _hisparse_plan(self, output: Any, metadata: Any) -> dict[str, Any]:
        if metadata is None:
            return {}
        transfers = metadata.command.page_transfers if metadata.command else ()
        return {
            "transfers": tuple([self._transfer(t) for t in transfers]),
            "host_copies": _pairs(metadata.host_block_copies),
            "mirrors": tuple(
                [
                    Mirror(int(key), tuple(m.source_starts), m.destination_start, m.num_rows)
                    for key, mirrors in metadata.row_mirrors.items()
                    for m in mirrors
                ]
            ),
            "residency": _residency(output, metadata),
            "all_resident": bool(metadata.all_context_pages_resident),
        }

    def _transfer(self, transfer: Any) -> Transfer:
        key, page = self.view.page_of(transfer.transfer_id)
        return Transfer(
            transfer.transfer_id,
            int(key),
            page,
            transfer.host_block_id,
            tuple(transfer.resident_block_ids),
            transfer.after_forward,
            transfer.restore,
        )

    def _runner_output(self, output: Any, outcome: StepOutcome) -> Any:
        keys = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=keys,
            req_id_to_index={key: index for index, key in enumerate(keys)},
            sampled_token_ids=[list(outcome.sampled.get(int(key), ())) for key in keys],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self._connector_output(outcome),
        )

    def _connector_output(self, outcome: StepOutcome) -> Any:
        """What the workers' connectors report; nothing is reported as None, as they do."""
        if self.connector is None:
            return None
        output = KVConnectorOutput(
            finished_recving=_keys(outcome.received),
            kv_connector_worker_meta=self._worker_metadata(outcome),
            invalid_block_ids=set(outcome.invalid_blocks),
            failed_recving=_keys(outcome.failed),
        )
        return None if output.is_empty() else output

    def _worker_metadata(self, outcome: StepOutcome) -> Any:
        copies = tuple(outcome.host_copies_done)
        if not (outcome.enqueued or outcome.completed or copies):
            return None
        hisparse = HiSparseConnectorWorkerMetadata(
            dict(outcome.enqueued), dict(outcome.completed), copies
        )
        if len(self._parts) == 1:
            return hisparse
        return MultiKVConnectorWorkerMetadata((hisparse, None))


class NoStructuredOutput:
    """The structured output manager, where no request asks for such output."""

    def accept_tokens(self, request: Any, new_token_ids: list[int]) -> bool:
        assert not request.use_structured_output
        return True


class NoMultimodalInputs:
    """The registry of multimodal inputs, for a model that takes tokens only."""

    def supports_multimodal_inputs(self, _: Any) -> bool:
        return False


def _metadata_parts(metadata: Any) -> Sequence[Any]:
    return metadata.metadata if isinstance(metadata, MultiKVConnectorMetadata) else (metadata,)


def _residency(output: Any, metadata: Any) -> tuple[Residency, ...]:
    if hasattr(metadata, "residency_updates"):
        return tuple(
            [
                Residency(int(key), tuple(update.pages), _table(update.block_ids))
                for key, update in metadata.residency_updates.items()
            ]
        )
    tables = output.block_table_updates or {}
    return tuple([Residency(int(key), None, _table(rows)) for key, rows in tables.items()])


def _is_live(request: Any) -> bool:
    return request is not None and not request.is_finished()


def _reason(reason: Any) -> str | None:
    return None if reason is None else str(reason)


def _numbers(keys: Iterable[str]) -> tuple[int, ...]:
    return tuple([int(key) for key in keys])


def _keys(numbers: Collection[int]) -> set[str]:
    return {str(number) for number in numbers}


def _pairs(copies: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    return tuple([(copy.src_block_id, copy.dst_block_id) for copy in copies])


def _table(rows: Iterable[Iterable[int]]) -> Table:
    return tuple([tuple(row) for row in rows])
