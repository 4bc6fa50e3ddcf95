"""I17 and I16 at a preemption: who is preempted holds nothing any more, and had company."""

from collections.abc import Iterator

from invariants.scheduler.found import Found
from invariants.violation import Cause
from model.scheduler.engine import Engine
from model.scheduler.happenings import PreemptionPlanned
from model.scheduler.session import Session

Page = tuple[int, int]
"""(group, content)."""


def preemptions(engine: Engine, planned: PreemptionPlanned) -> Iterator[Found]:
    """With nothing pending before, a request that is preempted must have had company."""
    holders = {
        holder.split(" (")[0]
        for pool in engine.pool_states()
        for names in pool.holders.values()
        for holder in names
    }
    views, preempted = engine.statuses(), planned.plan.preempted
    for number in preempted:
        still = number in views and views[number].status == "preempted"
        if still and f"request {number}" in holders:
            yield (
                "I17",
                Cause.HOLDS_AFTER_PREEMPTION,
                f"request {number} was preempted and still holds blocks",
            )
    if len(preempted) == 1 and planned.alone and not holders:
        yield (
            "I16",
            Cause.PREEMPTED_ALONE,
            f"request {preempted[0]} runs alone, with nothing to wait for, and is preempted",
        )


def never_written(session: Session, planned: PreemptionPlanned) -> Iterator[Page]:
    """Pages that preempted requests were still to write: one that is preempted may have been given
    blocks in the very same step."""
    groups, size = session.worker.groups, session.setup.block_size
    for number in planned.plan.preempted:
        life = session.lives[number]
        known, first = (life.prompt + life.delivered) // size, life.written // size
        for group in (*groups.full, *groups.sliding, *groups.state, *groups.resident):
            for content in life.text.pages(group, known)[first:]:
                yield group, content
