"""Release: a request gives its blocks back, now or when the steps in flight are done."""

from dataclasses import dataclass

from model.holding import Holding
from model.pool import NULL
from model.request import Request
from model.state import State


@dataclass(frozen=True, slots=True)
class PoppedBlocks:
    """Blocks of a request whose bookkeeping is gone, in allocation order."""

    host: tuple[int, ...]
    gpu: tuple[int, ...]


def free(state: State, request: Request) -> None:
    """Release everything, each group on its own, its row tail first."""
    holding = state.holdings.pop(request.id, None)
    if holding is None:
        return
    leave_lease(state, request, holding)
    copies = detach_copies(state, holding)
    if not state.dialect.copies_behind_release:
        unpin(state, copies)
    state.host.release(holding.host[::-1])
    for row in (holding.indexer, *holding.resident, *holding.hot):
        state.gpu.release(row[::-1])
    if state.dialect.copies_behind_release:
        unpin(state, copies)


def pop(state: State, request: Request) -> PoppedBlocks | None:
    """Release the bookkeeping; copies are unpinned now, all other blocks stay held."""
    holding = state.holdings.pop(request.id, None)
    if holding is None:
        return None
    leave_lease(state, request, holding)
    unpin(state, detach_copies(state, holding))
    rows = (holding.indexer, *holding.resident, *holding.hot)
    gpu = tuple(block for row in rows for block in row)
    return PoppedBlocks(tuple(holding.host), gpu)


def free_popped(state: State, blocks: PoppedBlocks) -> None:
    state.gpu.release(blocks.gpu[::-1])
    state.host.release(blocks.host[::-1])


def leave_lease(state: State, request: Request, holding: Holding) -> None:
    """Keep the host pages of an ended request whose writes are under way, to publish them.

    A preempted request leaves none: the step that was to compute its pages may never run.
    """
    wanted = holding.publication is not None and holding.pending and request.finished
    if not wanted or not state.dialect.publish_after_end:
        holding.publication = None
        return
    holding.lease = holding.host[: holding.publication]
    state.host.touch(holding.lease)


def detach_copies(state: State, holding: Holding) -> list[int]:
    """Take clean pages out of the rows; return, in unpinning order, the blocks still held."""
    still_held: list[int] = []
    for row in holding.resident:
        pages = range(len(row))
        for page in reversed(pages) if state.dialect.unpin_release_tail_first else pages:
            clean = page in holding.valid and page not in holding.pending
            if row[page] == NULL or not (clean or page in holding.unpinned):
                continue
            if page not in holding.unpinned:
                still_held.append(row[page])
            row[page] = NULL
    return still_held


def unpin(state: State, blocks: list[int]) -> None:
    for block in blocks:
        state.gpu.unpin(block)
