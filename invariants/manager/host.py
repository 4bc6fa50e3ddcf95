"""Rules of the host tier: durability before unpinning and publishing, a host block a page."""

from collections.abc import Iterator

from invariants.manager.transition import Transition, host_row
from invariants.violation import Cause, Seen
from model.pool import NULL
from model.snapshot import RequestState, TransferState

HOST_GROUP = 0


def durability(transition: Transition) -> Iterator[Seen]:
    """I8."""
    if not transition.configuration.hisparse:
        return
    yield from _unpinned_pages_are_durable(transition)
    yield from _published_pages_are_durable(transition)
    if transition.configuration.prefix_caching:
        for request in transition.after.requests:
            yield from _durable_pages_are_published(transition, request)
        yield from _ended_requests_are_published(transition)


def _is_durable(transition: Transition, request: int, page: int, block: int) -> bool:
    """Whether the host block contains the whole page, in every resident group."""
    ghost, size = transition.ghost, transition.configuration.block_size
    groups = range(2, 2 + transition.configuration.num_resident_groups)
    expected = tuple(ghost.expected(request, page, (page + 1) * size, g) for g in groups)
    return ghost.host.get(block) == expected


def _unpinned_pages_are_durable(transition: Transition) -> Iterator[Seen]:
    earlier = {(request.id, request.unpinned) for request in transition.before.requests}
    for request in transition.after.requests:
        if (request.id, request.unpinned) in earlier:
            continue
        for page in request.unpinned:
            block = host_row(request, hisparse=True)[page]
            if not _is_durable(transition, request.id, page, block):
                yield Seen(
                    Cause.UNPINNED_EARLY,
                    f"request {request.id} unpinned page {page} before its host copy was complete",
                )


def _published_pages_are_durable(transition: Transition) -> Iterator[Seen]:
    assert transition.after.host is not None
    assert transition.before.host is not None
    if transition.after.host.keys == transition.before.host.keys:
        return
    known = set(transition.before.host.keys)
    by_content = {
        content: (request, page)
        for request in (*transition.before.requests, *transition.after.requests)
        for page, content in enumerate(request.contents)
    }
    for block, group, content in transition.after.host.keys:
        if (block, group, content) in known or content not in by_content:
            continue
        request, page = by_content[content]
        if not _is_durable(transition, request.id, page, block):
            yield Seen(
                Cause.PUBLISHED_EARLY,
                f"host block {block} was published as content {content} before it was complete",
            )


def _durable_pages_are_published(transition: Transition, request: RequestState) -> Iterator[Seen]:
    if request.host_cached > request.ready:
        yield Seen(
            Cause.PUBLISHED_TOO_MANY,
            f"request {request.id} published {request.host_cached} pages, "
            f"{request.ready} are ready",
        )
    if request.host_cached < request.ready:
        yield Seen(
            Cause.PUBLISHED_TOO_FEW,
            f"request {request.id} has {request.ready} complete pages at its head, and only "
            f"{request.host_cached} can be found by a host lookup",
        )
    if not set(request.valid).issuperset(range(request.ready)):
        yield Seen(
            Cause.READY_NOT_VALID,
            f"request {request.id}: its {request.ready} ready pages are not all valid",
        )


def _ended_requests_are_published(transition: Transition) -> Iterator[Seen]:
    """A request that ends with writes under way leaves a lease; the last write publishes it."""
    alive = {request.id for request in transition.after.requests}
    leases = {t.request: t.lease for t in transition.after.transfers}
    for request in transition.before.requests:
        if request.id not in alive and request.publication and request.pending:
            pages = min(request.publication[0], len(host_row(request, hisparse=True)))
            if pages and request.id in leases and not leases[request.id]:
                yield Seen(
                    Cause.NO_LEASE,
                    f"request {request.id} ended with writes under way and left no lease",
                )
    for transfer in transition.before.transfers:
        if transfer.lease and transfer.request not in leases:
            yield from _lease_was_published(transition, transfer)


def _lease_was_published(transition: Transition, transfer: TransferState) -> Iterator[Seen]:
    assert transition.after.host is not None
    published = {block for block, _, _ in transition.after.host.keys}
    for page, block in enumerate(transfer.lease):
        if not _is_durable(transition, transfer.request, page, block):
            return
        if block not in published:
            yield Seen(
                Cause.LEASE_NOT_PUBLISHED,
                f"host block {block} of an ended request is complete and cannot be found",
            )


def host_block_for_each_page(transition: Transition) -> Iterator[Seen]:
    """I14."""
    if not transition.configuration.hisparse:
        return
    for request in transition.after.requests:
        row = host_row(request, hisparse=True)
        if len(row) != len(request.tables[1]) or NULL in row:
            yield Seen(
                Cause.NO_HOST_BLOCK,
                f"request {request.id} has {len(request.tables[1])} pages and host blocks {row}",
            )
