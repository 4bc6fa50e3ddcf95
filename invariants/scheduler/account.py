"""What a run of the scheduler comes to beside its answers: it is judged where the engine runs."""

from collections import Counter
from dataclasses import dataclass, field

from invariants.violation import Violation
from model.trace import Trace


@dataclass(frozen=True, slots=True)
class Account:
    violations: tuple[Violation, ...] = ()
    steps: int = 0
    """Scheduler steps, those after the last action included."""
    goals: Counter[str] = field(default_factory=Counter)
    shadowed_calls: int = 0
    """Calls of the allocator that were compared with the model's."""
    shadowed_states: int = 0
    shadow_ended: str | None = None
    """Why the model did not follow to the end, if it did not."""


def account_of(trace: Trace) -> Account:
    """The account of a trace; an empty one if the engine did not live to give it."""
    if trace.account is None:
        return Account()
    assert isinstance(trace.account, Account)
    return trace.account
