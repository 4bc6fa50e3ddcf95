"""What a HiSparse step did with copies of pages: adopted them, took them, or reused a block.

Pure functions on a step's plan and what the worker knew before and after it.
"""

from collections.abc import Iterator

from model.scheduler.ghost_worker import NULL, GhostWorker, Rows
from model.scheduler.plan import Scheduled, StepPlan

Residency = dict[int, list[list[int]]]
"""Request → per resident group, the block of each page, the null block for one on the host."""


def residency(worker: GhostWorker) -> Residency:
    """Where each request reads the pages of its resident groups now, as a copy."""
    return {number: _resident_rows(worker, rows) for number, rows in worker.rows.items()}


def _resident_rows(worker: GhostWorker, rows: Rows) -> list[list[int]]:
    if any(rows.residency):
        return [list(row) for row in rows.residency]
    return [list(rows.table[group]) for group in worker.groups.resident]


def fresh_blocks(worker: GhostWorker, share: Scheduled) -> set[int]:
    """Blocks of the GPU pool that the step gave to a request, pages that it hit left out."""
    if share.blocks is None:
        return set()
    hit = share.computed // worker.setup.block_size if share.kind != "running" else 0
    groups = worker.groups
    fresh = {block for group in groups.hot for block in share.blocks[group]}
    for group in (*groups.full, *groups.resident):
        fresh.update(share.blocks[group][hit:])
    return fresh - {NULL}


def reused(worker: GhostWorker, before: Residency, plan: StepPlan) -> bool:
    """Whether a block was given away from which a request that goes on read a page until then."""
    fresh = set[int]().union(*(fresh_blocks(worker, share) for share in plan.scheduled))
    started = {share.request for share in plan.scheduled if share.kind != "running"}
    gone = started.union(plan.preempted, plan.finished)
    return bool(fresh) and any(
        not fresh.isdisjoint(row)
        for number, rows in before.items()
        if number not in gone
        for row in rows
    )


def adopted(worker: GhostWorker, share: Scheduled) -> tuple[int, int]:
    """(pages that a request hit, those of them that it reads from copies on the GPU)."""
    pages = share.computed // worker.setup.block_size
    row = _resident_rows(worker, worker.rows[share.request])[0]
    return pages, sum(block != NULL for block in row[:pages])


def lost_copies(
    worker: GhostWorker, share: Scheduled, contents: list[list[int]], before: list[int]
) -> Iterator[int]:
    """Blocks that held copies, ``before`` the step, of pages that a request hit and does not read
    from the GPU. ``contents`` are those of its pages, per resident group."""
    pages, _ = adopted(worker, share)
    rows = _resident_rows(worker, worker.rows[share.request])
    for row, wanted in zip(rows, contents, strict=True):
        for page, content in enumerate(wanted[:pages]):
            if page >= len(row) or row[page] == NULL:
                yield from (block for block, held in enumerate(before) if held == content)
