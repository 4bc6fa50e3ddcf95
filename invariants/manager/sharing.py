"""Rules of what a block may be at once: sharing, reuse, contents behind host pages."""

from collections.abc import Iterator

from invariants.manager.transition import Transition, hot_rows, indexer_row
from invariants.violation import Cause, Seen
from model.pool import NULL
from model.snapshot import Snapshot

Use = tuple[str, int, int]
"""(group, content id or -1 where it is not known, 0 or the owner's number while it is written)."""


def uses_of_blocks(
    snapshot: Snapshot, hisparse: bool, groups: int, size: int
) -> dict[int, set[Use]]:
    """What each GPU block is used as, by rows. Full pages of equal content are one use."""
    uses: dict[int, set[Use]] = {}
    for request in snapshot.requests:
        final = min(request.computed // size, len(request.contents))
        rows = [("indexer", indexer_row(request, hisparse))]
        rows += [(f"resident {group}", row) for group, row in enumerate(request.resident)]
        for name, row in rows:
            for page, block in enumerate(row):
                content = request.contents[page] if page < len(request.contents) else -1
                owner = 0 if page < final else request.id * 10_000 + page
                uses.setdefault(block, set()).add((name, content, owner))
        if hisparse:
            for group, row in enumerate(hot_rows(request, groups)):
                for block in row:
                    uses.setdefault(block, set()).add((f"hot {group}", -1, request.id))
    uses.pop(NULL, None)
    return uses


def no_sharing(transition: Transition) -> Iterator[Seen]:
    """I3."""
    if not transition.changed:
        return
    c, after = transition.configuration, transition.after
    uses = uses_of_blocks(after, c.hisparse, c.num_resident_groups, c.block_size)
    for block, found in uses.items():
        if len(found) > 1 and not _same_new_page(found):
            yield Seen(Cause.TWO_USES, f"block {block} is at once {_wording(found)}")
    for content, *blocks in after.copies:
        for group, block in enumerate(blocks):
            wrong = [
                use
                for use in uses.get(block, ())
                if use[0] != f"resident {group}" or use[1] not in (content, -1)
            ]
            if wrong:
                yield Seen(
                    Cause.COPY_IN_USE,
                    f"block {block} is the copy of content {content} and {_wording(set(wrong))}",
                )
    fresh = set(transition.new_gpu_blocks)
    for content, *blocks in after.copies:
        if fresh.intersection(blocks):
            yield Seen(
                Cause.COPY_HANDED_OUT,
                f"newly allocated block in {blocks} is still recorded as copy of {content}",
            )


def _same_new_page(uses: set[Use]) -> bool:
    """Requests of one step may share a full page that this very step computes."""
    kinds = {(name, content) for name, content, _ in uses}
    written_by_one = sum(owner != 0 for _, _, owner in uses) == 1
    return len(kinds) == 1 and written_by_one and all(content != -1 for _, content in kinds)


def _wording(uses: set[Use]) -> str:
    return " and ".join(
        f"{name} page of content {content}" if content != -1 else f"{name} page being written"
        for name, content, _ in sorted(uses)
    )


def reuse(transition: Transition) -> Iterator[Seen]:
    """I9."""
    fresh = set(transition.new_gpu_blocks)
    if not fresh:
        return
    for block, request, page in transition.after.readers:
        if block in fresh:
            yield Seen(
                Cause.STILL_READ,
                f"block {block} was handed out; request {request} still reads page {page} there",
            )
    for block in fresh.intersection(transition.after.gpu.watched):
        yield Seen(
            Cause.WATCHER_SILENT,
            f"block {block} was handed out, and its reuse watcher has not fired",
        )
