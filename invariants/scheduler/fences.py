"""I15: what the store writes beside the steps, no step in flight uses."""

from collections.abc import Iterable, Iterator

from invariants.scheduler.found import Found
from invariants.violation import Cause
from model.scheduler.happenings import LoadStarted
from model.scheduler.session import InFlight


def writes_beside_steps(flight: Iterable[InFlight], started: LoadStarted) -> Iterator[Found]:
    for step in flight:
        if shared := started.cells & step.reach:
            yield (
                "I15",
                Cause.WRITES_BESIDE_STEP,
                f"the load of request {started.load.request} writes blocks {sorted(shared)} beside "
                f"step {step.plan.step}, which is in flight and uses them",
            )
