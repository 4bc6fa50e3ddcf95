"""What a run needs of a scheduler."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from model.scheduler.plan import (
    NewRequest,
    Output,
    Pending,
    PoolState,
    RequestView,
    StepOutcome,
    StepPlan,
)


class Engine(Protocol):
    """A scheduler with its KV-cache manager and the scheduler's half of its connectors."""

    @property
    def steps_in_flight_max(self) -> int: ...

    def add(self, request: NewRequest) -> None: ...

    def schedule(self) -> StepPlan: ...

    def update(self, step: int, outcome: StepOutcome) -> tuple[Output, ...]: ...

    def abort(self, ids: Iterable[int]) -> tuple[int, ...]: ...

    def reset_prefix_cache(self, running: bool = False, connector: bool = False) -> bool: ...

    def has_requests(self) -> bool: ...

    def statuses(self) -> Mapping[int, RequestView]: ...

    def pending(self) -> Pending: ...

    def pool_states(self) -> tuple[PoolState, ...]:
        """All of every pool, and every holder of a block: O(pool), for the audit."""
