"""The abstract machine as a space to search."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from specs.exhaustive.abstract import Machine, State, Step
from specs.exhaustive.symmetry import normal_form

CRASH = "an admitted request is short of a block, and none is free"


@dataclass(frozen=True, slots=True)
class AbstractSpace:
    machine: Machine
    reduce: bool = True
    """Whether states that differ by names alone are one."""
    stop_at_crash: bool = True
    """Whether a crash is a violation; for counting, it is a state like others."""
    taken: Counter[str] = field(default_factory=Counter)
    """How often each action was taken."""

    def initial(self) -> State:
        return self.machine.initial()

    def expand(self, kept: State) -> Iterator[tuple[Step, State]]:
        for step, after in self.machine.steps(kept):
            self.taken[step[0]] += 1
            yield step, after

    def key(self, live: State) -> State:
        return normal_form(live) if self.reduce else live

    def keep(self, live: State) -> State:
        return live

    def violation(self, live: State, new: bool) -> str | None:
        return CRASH if new and self.stop_at_crash and self.machine.crashed(live) else None
