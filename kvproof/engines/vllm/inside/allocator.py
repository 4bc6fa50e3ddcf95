"""The released allocator behind the session's calls.

It runs in the engine's own interpreter, with the engine's sources on the path, and asks what the
engine can do, never which version it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.hisparse.coordinator import get_hisparse_coordinator
from vllm.v1.request import Request as EngineRequest
from vllm.v1.request import RequestStatus

from kvproof.engines.vllm.inside.capture import Capture
from kvproof.engines.vllm.inside.groups import cache_of, full_groups, hisparse_groups
from kvproof.engines.vllm.inside.missing import building, require, require_keywords
from kvproof.engines.vllm.inside.names import KeyNames
from kvproof.engines.vllm.inside.raised import is_out_of_blocks
from kvproof.engines.vllm.inside.settings import sampling_parameters
from kvproof.engines.vllm.inside.view import EngineView
from model.allocator import Allocation, AllocationFailedError, Rows
from model.manager.configuration import Configuration
from model.request import Request, Status
from model.snapshot import Snapshot

init_none_hash(sha256)

_STATUS = {
    Status.WAITING: RequestStatus.WAITING,
    Status.RUNNING: RequestStatus.RUNNING,
    Status.PREEMPTED: RequestStatus.PREEMPTED,
    Status.STOPPED: RequestStatus.FINISHED_STOPPED,
    Status.ABORTED: RequestStatus.FINISHED_ABORTED,
}
ADMITTING = (
    "num_new_computed_tokens",
    "new_computed_blocks",
    "full_sequence_must_fit",
    "has_scheduled_reqs",
)
"""What a waiting request's allocation is told beside what a running one's is."""
PROGRESS = ("status", "num_computed_tokens", "num_in_flight_tokens", "num_output_placeholders")
"""What the scheduler notes in a request: it is there before it is written."""


@dataclass(frozen=True, slots=True)
class EngineHit:
    """What the engine's lookup returned, and the block ids that it names."""

    blocks: Any
    tokens: int


def cache_config(c: Configuration) -> Any:
    """The engine's own description of the groups: no tensors, so no GPU."""
    groups = full_groups(c.block_size)
    if c.hisparse:
        groups = hisparse_groups(c.block_size, c.num_resident_groups, c.hot_blocks)
    return cache_of(groups, c.num_blocks, c.num_host_blocks)


class EngineAllocator:
    """One ``KVCacheManager``, with its HiSparse coordinator if the configuration has one."""

    def __init__(self, configuration: Configuration) -> None:
        c = self._configuration = configuration
        with building("KVCacheManager"):
            self._manager = KVCacheManager(
                cache_config(c),
                max_model_len=c.max_model_len,
                scheduler_block_size=c.block_size,
                hash_block_size=c.block_size,
                max_in_flight_tokens=c.max_in_flight_tokens,
                enable_caching=c.prefix_caching,
                watermark=(c.watermark_blocks + 0.5) / c.num_blocks if c.watermark_blocks else 0.0,
            )
        self._coordinator: Any = get_hisparse_coordinator(self._manager) if c.hisparse else None
        self._view = EngineView(self._manager, self._coordinator)
        self._pool = self._manager.block_pool
        require_keywords(self._manager.allocate_slots, *ADMITTING)
        self._hasher = get_request_block_hasher(c.block_size, sha256)
        self._engine_requests: dict[int, Any] = {}
        self._ids: dict[str, int] = {}
        self._contents: dict[bytes, int] = {}
        self._capture = Capture(self._view, self._ids, KeyNames(self._contents))
        self._held: list[Any] = []
        self._promised: list[int] = []
        self._popped = 0
        self._observe()

    def _observe(self) -> None:
        """Note what the predictor answers and how many blocks are handed out."""
        predict = self._manager.coordinator.get_num_blocks_to_allocate
        take = self._pool.get_new_blocks

        def noted_predict(*args: Any, **kwargs: Any) -> Any:
            answer = predict(*args, **kwargs)
            self._promised.append(answer)
            return answer

        def noted_take(num_blocks: int) -> Any:
            blocks = take(num_blocks)
            self._popped += num_blocks
            return blocks

        self._manager.coordinator.get_num_blocks_to_allocate = noted_predict
        self._pool.get_new_blocks = noted_take

    # Requests

    def register(self, request: Request) -> None:
        engine_request = EngineRequest(
            str(request.id),
            list(request.tokens),
            sampling_parameters(self._configuration.max_model_len),
            None,
            arrival_time=0.0,
            cache_salt=str(request.salt) if request.salt else None,
            block_hasher=self._hasher,
        )
        self._engine_requests[request.id] = engine_request
        self._ids[engine_request.request_id] = request.id
        self._name_contents(request, engine_request)

    def append(self, request: Request, token: int) -> None:
        engine_request = self._engine_requests[request.id]
        engine_request.append_output_token_ids(token)
        self._name_contents(request, engine_request)

    def _name_contents(self, request: Request, engine_request: Any) -> None:
        """Number block hashes in the order in which they come up, as the reference does."""
        for block_hash in engine_request.block_hashes[len(request.contents) :]:
            content = self._contents.setdefault(bytes(block_hash), len(self._contents) + 1)
            request.contents.append(content)

    def _synced(self, request: Request) -> Any:
        """The engine's request, with the progress that its scheduler would have noted."""
        engine_request = self._engine_requests[request.id]
        require(engine_request, *PROGRESS)
        engine_request.status = _STATUS[request.status]
        engine_request.num_computed_tokens = request.computed
        engine_request.num_in_flight_tokens = request.in_flight
        engine_request.num_output_placeholders = request.placeholders
        return engine_request

    # Allocation and release

    def lookup(self, request: Request) -> tuple[EngineHit, int]:
        blocks, tokens, *_ = self._manager.get_computed_blocks(self._synced(request))
        return EngineHit(blocks, tokens), tokens

    def allocate(
        self,
        request: Request,
        new_tokens: int,
        hit: EngineHit | None,
        hit_tokens: int,
        beside_running: bool,
    ) -> Allocation:
        keywords: dict[str, Any] = {}
        hit_free = 0
        if hit is not None:
            hit_free = self._view.num_free_of_hit(hit.blocks)
            keywords = {
                "num_new_computed_tokens": hit_tokens,
                "new_computed_blocks": hit.blocks,
                "full_sequence_must_fit": self._configuration.full_sequence_must_fit,
                "has_scheduled_reqs": beside_running,
            }
        self._promised.clear()
        popped = self._popped
        new = _guarded(
            lambda: self._manager.allocate_slots(self._synced(request), new_tokens, **keywords)
        )
        promised = tuple(self._promised)
        if new is None:
            return Allocation(promised, 0, None)
        blocks = tuple(tuple(ids) for ids in new.get_block_ids())
        return Allocation(promised, self._popped - popped + hit_free, blocks)

    def cache(self, request: Request, tokens: int) -> None:
        self._manager.cache_blocks(self._synced(request), tokens)

    def free(self, request: Request) -> None:
        self._manager.free(self._synced(request))

    def pop(self, request: Request) -> Any:
        return self._manager.pop_blocks_for_free(self._synced(request)) or None

    def free_popped(self, blocks: Any) -> None:
        self._pool.free_blocks(reversed(blocks))

    # Steps and transfers

    def end_step(self, scheduled: Sequence[tuple[Request, int]]) -> None:
        if hasattr(self._coordinator, "take_residency_updates"):
            self._coordinator.advance_scheduled(
                [(str(request.id), tokens) for request, tokens in scheduled]
            )

    def take_command(self) -> Rows:
        command = self._coordinator.build_offload_command()
        return tuple(
            (t.transfer_id, self._request_of(t), t.host_block_id, *t.resident_block_ids)
            for t in command.page_transfers
        )

    def _request_of(self, transfer: Any) -> int:
        return self._ids[self._view.page_of(transfer.transfer_id)[0]]

    def take_updates(self, scheduled: Sequence[Request]) -> Rows:
        if hasattr(self._coordinator, "take_residency_updates"):
            updates = self._coordinator.take_residency_updates(str(r.id) for r in scheduled)
            return tuple(
                (self._ids[key], *update.pages, *(b for row in update.block_ids for b in row))
                for key, update in updates.items()
            )
        tables = self._coordinator.take_block_table_updates()
        return tuple(
            sorted(
                (self._ids[key], *(block for row in rows for block in row))
                for key, rows in tables.items()
            )
        )

    def update_transfers(self, enqueued: Mapping[int, int], completed: Mapping[int, int]) -> None:
        self._coordinator.update_spills(enqueued, completed)

    def pending_reclamation(self) -> bool:
        return bool(self._coordinator.has_pending_reclamation())

    def common_prefix(self, request: Request) -> tuple[int, ...]:
        return tuple(self._manager.get_num_common_prefix_blocks(str(request.id)))

    def evict(self, request: Request, page: int) -> None:
        row = self._view.rows(str(request.id))[self._view.indexer_group]
        if page < len(row):
            self._manager.evict_blocks({row[page]})

    def reset(self) -> bool:
        return bool(self._manager.reset_prefix_cache())

    def hold(self, free_blocks: int) -> None:
        excess = max(self._pool.get_num_free_blocks() - free_blocks, 0)
        self._held += self._pool.get_new_blocks(excess)

    def snapshot(
        self, requests: Sequence[Request], scheduled: Mapping[int, int], deferred: Sequence[Any]
    ) -> Snapshot:
        return self._capture.snapshot(requests, scheduled, deferred, self._held)


def _guarded(call: Callable[[], Any]) -> Any:
    """Call the engine; name what it raises as the reference does."""
    try:
        return call()
    except ValueError as error:
        kind = "OutOfBlocks" if is_out_of_blocks(error) else "ValueError"
        raise AllocationFailedError(kind, str(error)) from error
