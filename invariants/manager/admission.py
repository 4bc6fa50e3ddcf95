"""Rules of admission: promises are enough, refusals change nothing, what fits is let in."""

from collections.abc import Iterator

from invariants.manager.peak import peak_blocks
from invariants.manager.transition import Transition
from invariants.violation import Cause, Seen
from model.manager.actions import Admit, Extend
from model.manager.events import AdmissionRefused, ExtensionRefused, Raised

OUT_OF_BLOCKS = "OutOfBlocks"
"""What is said to be raised where a pool has too few blocks."""


def soundness(transition: Transition) -> Iterator[Seen]:
    """I4."""
    allocating = isinstance(transition.action, Admit | Extend)
    for event in transition.response:
        if isinstance(event, Raised) and allocating and not _asks_for_nothing(transition):
            yield Seen(
                Cause.OUT_OF_BLOCKS if event.kind == OUT_OF_BLOCKS else Cause.RAISED,
                f"the allocation was admitted, then raised {event.kind}",
            )
    if transition.allocation is not None:
        promised, taken = transition.allocation.promised, transition.allocation.taken
        if taken > promised[-1]:
            yield Seen(
                Cause.MORE_THAN_PROMISED,
                f"the predictor promised {promised[-1]} blocks, the allocation took {taken}",
            )


def _asks_for_nothing(transition: Transition) -> bool:
    """An allocation of no tokens is refused by an exception, by contract."""
    return isinstance(transition.action, Admit) and transition.action.tokens == 0


def never_raises(transition: Transition) -> Iterator[Seen]:
    """I19."""
    if not isinstance(transition.action, Admit | Extend):
        for event in transition.response:
            if isinstance(event, Raised):
                yield Seen(Cause.RAISED, f"the call raised {event.kind}")


def refusal_changes_nothing(transition: Transition) -> Iterator[Seen]:
    """I5."""
    if transition.refusal is None or len(transition.response) > 1:
        return
    for name, before, after in zip(
        transition.before._fields, transition.before, transition.after, strict=True
    ):
        if before != after:
            yield Seen(Cause.REFUSAL_CHANGED, f"the refused allocation changed {name}")


def progress_alone(transition: Transition) -> Iterator[Seen]:
    """I16, at this level: nobody could make room for the request but itself.

    Its own writes may be under way: the engine does not wait for them, since it says that they
    will give nothing back, and preempts it.
    """
    refusal, after = transition.refusal, transition.after
    if not isinstance(refusal, ExtensionRefused):
        return
    if after.deferred or after.held or refusal.pending:
        return
    others = [r for r in after.requests if r.id != refusal.request and any(r.tables)]
    if not others and all(transfer.request == refusal.request for transfer in after.transfers):
        need, free = refusal.promised[-1], len(after.gpu.free)
        late = " while its own late writes hold blocks" if after.transfers else ""
        yield Seen(
            Cause.REFUSED_FOR_OWN_WRITES if after.transfers else Cause.REFUSED_ALONE,
            f"alone, with nothing to wait for, request {refusal.request} needs {need} blocks for "
            f"its next {refusal.tokens} tokens and {free} are free{late}: it can only preempt "
            "itself",
        )


def completeness(transition: Transition) -> Iterator[Seen]:
    """I6, where it is plain: nothing else holds or waits for a block."""
    refusal, after = transition.refusal, transition.after
    if not isinstance(refusal, AdmissionRefused):
        return
    pools = [after.gpu] + ([after.host] if after.host is not None else [])
    if any(len(pool.free) != len(pool.counts) - 1 for pool in pools):
        return
    (request,) = (request for request in after.requests if request.id == refusal.request)
    peaks = peak_blocks(transition.configuration, transition.dialect, request.num_tokens)
    for pool, peak in zip(pools, peaks, strict=False):
        if peak > len(pool.free):
            return
    yield Seen(
        Cause.FITS_AND_REFUSED,
        f"request {request.id} was refused with all blocks free; alone in an ample pool it "
        f"holds at most {peaks[0]} GPU and {peaks[1]} host blocks",
    )
