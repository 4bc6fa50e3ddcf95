"""The rule of contents: a request reads what its own prefix wrote, wherever it reads it."""

from collections.abc import Iterator

from invariants.manager.ghost import GARBAGE
from invariants.manager.transition import Transition, host_row, hot_rows, indexer_row, pages_of
from invariants.violation import Cause, Seen
from model.manager.events import StepEnded
from model.pool import NULL
from model.snapshot import RequestState


def reads(transition: Transition) -> Iterator[Seen]:
    """I7."""
    if not transition.happened(StepEnded):
        return
    for request in transition.before.requests:
        if request.scheduled:
            yield from _indexer_reads(transition, request)
            if transition.configuration.hisparse:
                yield from _resident_reads(transition, request)


def _context(request: RequestState) -> int:
    return request.computed + request.scheduled


def _indexer_reads(transition: Transition, request: RequestState) -> Iterator[Seen]:
    ghost = transition.ghost
    row = indexer_row(request, transition.configuration.hisparse)
    for page in range(pages_of(_context(request), transition.configuration.block_size)):
        block = row[page]
        expected = ghost.expected(request.id, page, _context(request), 1)
        if ghost.gpu.get(block, GARBAGE) != expected:
            text = f"request {request.id} reads foreign contents: page {page}, block {block}"
            victim = ghost.cancelled.get(block)
            if victim is None:
                yield Seen(Cause.MISREAD, text)
            else:
                text += f": request {victim} was preempted before it wrote it"
                yield Seen(Cause.NEVER_WRITTEN, text)


def _resident_reads(transition: Transition, request: RequestState) -> Iterator[Seen]:
    ghost, c = transition.ghost, transition.configuration
    reads_host = all(len(row) == c.hot_blocks for row in hot_rows(request, c.num_resident_groups))
    state = next((r for r in transition.after.requests if r.id == request.id), request)
    host = host_row(request, hisparse=True)
    for page in range(pages_of(_context(request), c.block_size)):
        for group, row in enumerate(_rows_read(request, state)):
            expected = ghost.expected(request.id, page, _context(request), 2 + group)
            if row[page] != NULL:
                if ghost.gpu.get(row[page], GARBAGE) != expected:
                    yield Seen(
                        Cause.MISREAD,
                        f"request {request.id} reads foreign contents as resident page {page}",
                    )
                continue
            if not reads_host:
                yield Seen(
                    Cause.NO_HOT_REGION,
                    f"request {request.id} has page {page} on the host and no hot region",
                )
            contents = ghost.host.get(host[page], ())
            if len(contents) <= group or contents[group] != expected:
                yield Seen(
                    Cause.MISREAD,
                    f"request {request.id} reads foreign contents from the host as page {page}",
                )


def _rows_read(request: RequestState, after: RequestState) -> tuple[tuple[int, ...], ...]:
    """The rows as the step's workers see them: with what the end of the step adopted."""
    return after.resident if len(after.resident) == len(request.resident) else request.resident
