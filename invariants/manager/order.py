"""The rule of the free block queue's order."""

from collections.abc import Iterator

from invariants.manager.transition import Transition
from invariants.violation import Cause, Seen
from model.manager.actions import Admit, EndStep, Extend, Finish, Preempt, Reset
from model.manager.events import Ended


def eviction_order(transition: Transition) -> Iterator[Seen]:
    """I11."""
    unmoved = transition.before.gpu.free == transition.after.gpu.free
    if unmoved or isinstance(transition.action, Reset) or _is_compound(transition):
        return
    if transition.allocation is not None:
        yield from _handed_out_from_the_head(transition)
    else:
        yield from _freed_to_the_right_end(transition)
    if isinstance(transition.action, Admit | Extend | EndStep | Finish | Preempt):
        yield from _copies_leave_tail_first(transition)


def _is_compound(transition: Transition) -> bool:
    """Whether several updates of the queue followed each other, so that its order tells little."""
    if isinstance(transition.action, Admit | Extend):
        return len(transition.response) > 1
    if not isinstance(transition.action, EndStep):
        return False
    adopting = any(request.to_adopt for request in transition.before.requests)
    return adopting or transition.happened(Ended)


def _handed_out_from_the_head(transition: Transition) -> Iterator[Seen]:
    """New blocks are the longest unused ones, apart from those that the hit itself pinned."""
    fresh = set(transition.new_gpu_blocks)
    after = set(transition.after.gpu.free)
    for block in transition.before.gpu.free:
        if not fresh:
            return
        if block in after:
            left = sorted(fresh)
            yield Seen(
                Cause.NOT_FROM_THE_HEAD,
                f"blocks {left} were handed out before block {block}, which was ahead of them",
            )
            return
        fresh.discard(block)


def _freed_to_the_right_end(transition: Transition) -> Iterator[Seen]:
    """Blocks without a key are queued before all others, cached and readable ones behind."""
    before, after = transition.before.gpu, transition.after.gpu
    were_free = set(before.free)
    stayed = [place for place, block in enumerate(after.free) if block in were_free]
    if not stayed or not transition.configuration.prefix_caching:
        return
    first, last = stayed[0], stayed[-1]
    keyed = {block for block, _, _ in before.keys} | {block for block, _, _ in after.keys}
    watched = set(after.watched)
    newly_watched = watched.difference(before.watched)
    for place, block in enumerate(after.free):
        if block in were_free:
            continue
        findable = block in keyed or block in newly_watched
        if findable and place < last:
            yield Seen(
                Cause.FREED_TO_WRONG_END,
                f"cached block {block} was freed ahead of blocks that were free before it",
            )
        if not findable and place > first and block not in watched:
            yield Seen(
                Cause.FREED_TO_WRONG_END,
                f"block {block} without a key was freed behind blocks that can still be found",
            )


def _copies_leave_tail_first(transition: Transition) -> Iterator[Seen]:
    """Pages unpinned by one update or one release: the tail of the prefix is reused first.

    Pages that others held too are left out: the last holder's update decided their place.
    """
    place = {block: index for index, block in enumerate(transition.after.gpu.free)}
    counts = transition.before.gpu.counts
    freed = {block for block in place if counts[block] == 1}
    watched = set(transition.after.gpu.watched)
    for request in transition.before.requests:
        unpinned = set(request.unpinned)
        for row in request.resident:
            pinned = [block for page, block in enumerate(row) if page not in unpinned]
            blocks = [block for block in pinned if block in freed and block in watched]
            places = [place[block] for block in blocks]
            if places != sorted(places, reverse=True):
                yield Seen(
                    Cause.HEAD_FIRST,
                    f"pages of request {request.id} left head first, blocks {blocks}",
                )
