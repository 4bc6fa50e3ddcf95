"""Capture the reference allocator's state as a canonical snapshot."""

from collections.abc import Mapping, Sequence

from model.holding import Holding, Transfer
from model.pool import NULL, Pool
from model.release import PoppedBlocks
from model.request import Request
from model.snapshot import PoolState, RequestState, Snapshot, TransferState
from model.state import State

_NOTHING = Holding()


def capture(
    state: State,
    requests: Sequence[Request],
    scheduled: Mapping[int, int],
    deferred: Sequence[PoppedBlocks],
) -> Snapshot:
    return Snapshot(
        gpu=_pool(state.gpu),
        host=_pool(state.host) if state.configuration.hisparse else None,
        requests=tuple(
            [_request(state, request, scheduled.get(request.id, 0)) for request in requests]
        ),
        copies=tuple(sorted([(content, *blocks) for content, blocks in state.copies.items()])),
        readers=_readers(state),
        transfers=tuple(_transfer(transfer) for transfer in state.transfers.values()),
        unsent=tuple(state.unsent),
        deferred=tuple(_held(blocks.gpu) for blocks in deferred),
        deferred_host=tuple(_held(blocks.host) for blocks in deferred),
        held=tuple(state.held),
    )


def _held(blocks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(block for block in blocks if block != NULL)


def _pool(pool: Pool) -> PoolState:
    return PoolState(
        free=tuple(pool.free),
        num_free=len(pool.free),
        counts=tuple(pool.counts),
        keys=tuple(sorted([(block, *key) for block, key in pool.keys.items()])),
        cached=tuple(sorted([(*key, *blocks) for key, blocks in pool.index.items()])),
        watched=tuple(sorted(pool.watched)),
    )


def _request(state: State, request: Request, scheduled: int) -> RequestState:
    holding = state.holdings.get(request.id, _NOTHING)
    rows = (holding.indexer, *holding.table, *holding.hot)
    tables = (holding.host, *rows) if state.configuration.hisparse else rows
    return RequestState(
        id=request.id,
        status=int(request.status),
        num_tokens=request.num_tokens,
        computed=request.computed,
        scheduled=scheduled,
        contents=tuple(request.contents),
        tables=tuple([tuple(row) for row in tables]),
        resident=tuple([tuple(row) for row in holding.resident]),
        host_cached=holding.host_cached,
        indexer_cached=holding.indexer_cached,
        wants_hot=int(holding.wants_hot),
        valid=tuple(sorted(holding.valid)),
        ready=holding.ready,
        pending=tuple(sorted(holding.pending.items())),
        pinned_clean=tuple(sorted(holding.pinned_clean)),
        unpinned=tuple(sorted(holding.unpinned)),
        to_adopt=holding.to_adopt,
        recorded=holding.recorded,
        publication=() if holding.publication is None else (holding.publication,),
    )


def _readers(state: State) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        sorted(
            (row[page], request_id, page)
            for request_id, holding in state.holdings.items()
            for page in holding.unpinned
            for row in holding.resident
        )
    )


def _transfer(transfer: Transfer) -> TransferState:
    lease = transfer.holding.lease
    return TransferState(
        id=transfer.id,
        request=transfer.request,
        page=transfer.page,
        host_block=transfer.host_block,
        blocks=tuple(transfer.blocks),
        expected=transfer.expected,
        done=transfer.done,
        lease=tuple(lease or ()),
        lease_cached=transfer.holding.host_cached if lease is not None else 0,
    )
