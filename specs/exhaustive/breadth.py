"""Breadth-first search: every reachable state once, and a shortest way to the first violation."""

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

StepT = TypeVar("StepT")
LiveT = TypeVar("LiveT")
KeptT = TypeVar("KeptT")
BrokenT = TypeVar("BrokenT")
StepT_co = TypeVar("StepT_co", covariant=True)
BrokenT_co = TypeVar("BrokenT_co", covariant=True)


class Space(Protocol[StepT_co, LiveT, KeptT, BrokenT_co]):
    """What is searched. A state is *live* when it was just reached, and *kept* for later."""

    def initial(self) -> LiveT: ...

    def expand(self, kept: KeptT) -> Iterator[tuple[StepT_co, LiveT]]:
        """Every step that is possible in a state, with the state after it."""

    def key(self, live: LiveT) -> Hashable:
        """Equal for states that need not be told apart."""

    def keep(self, live: LiveT) -> KeptT:
        """What ``expand`` needs of a state. Called once for each key."""

    def violation(self, live: LiveT, new: bool) -> BrokenT_co | None:
        """What is wrong with a state or with the step to it. ``new``: its key was not seen yet."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far to search before giving up. None is no limit."""

    seconds: float | None = None
    states: int | None = None
    depth: int | None = None
    """Most steps of a way."""


@dataclass(frozen=True, slots=True)
class Exploration(Generic[StepT, BrokenT]):
    """What a search saw."""

    states: int
    """Distinct keys, the initial state's included."""
    transitions: int
    """Steps taken, those to states already seen included."""
    depth: int
    """Steps to the farthest state seen."""
    seconds: float
    stopped: str | None = None
    """Which limit ended the search, or None."""
    way: tuple[StepT, ...] | None = None
    """A shortest way to a violation."""
    violation: BrokenT | None = None

    @property
    def complete(self) -> bool:
        """Whether every reachable state was seen."""
        return self.stopped is None and self.violation is None


def breadth_first(
    space: Space[StepT, LiveT, KeptT, BrokenT], limits: Limits
) -> Exploration[StepT, BrokenT]:
    """Search until a violation, a limit, or the end."""
    search = _Search(space, limits)
    start = space.initial()
    broken = space.violation(start, True)
    search.add(space.key(start), start, None)
    while search.layer and broken is None and search.stopped is None:
        broken = search.next_layer()
    return search.result(broken)


class _Search(Generic[StepT, LiveT, KeptT, BrokenT]):
    """A search under way. States are numbered in the order in which they were first seen."""

    def __init__(self, space: Space[StepT, LiveT, KeptT, BrokenT], limits: Limits) -> None:
        self.stopped: str | None = None
        self.layer: list[tuple[int, KeptT]] = []
        """Number of each state that is one step farther than the last layer, and the state."""
        self._space = space
        self._limits = limits
        self._started = time.perf_counter()
        self._seen: set[Hashable] = set()
        self._came: list[tuple[int, StepT] | None] = []
        """(state before, step) of each state."""
        self._transitions = 0
        self._depth = 0
        self._last: tuple[int, StepT] | None = None

    def add(self, key: Hashable, live: LiveT, came: tuple[int, StepT] | None) -> None:
        self._seen.add(key)
        self.layer.append((len(self._came), self._space.keep(live)))
        self._came.append(came)

    def next_layer(self) -> BrokenT | None:
        """Expand all states of a layer, unless a violation or a limit comes first."""
        layer, self.layer = self.layer, []
        if self._depth == self._limits.depth:
            self.stopped = f"{self._depth} steps"
            return None
        for number, kept in layer:
            self.stopped = self._over()
            if self.stopped:
                return None
            broken = self._expand(number, kept)
            if broken is not None:
                return broken
        self._depth += bool(self.layer)
        return None

    def _expand(self, number: int, kept: KeptT) -> BrokenT | None:
        for step, live in self._space.expand(kept):
            self._transitions += 1
            key = self._space.key(live)
            new = key not in self._seen
            broken = self._space.violation(live, new)
            if broken is not None:
                self._last = (number, step)
                return broken
            if new:
                self.add(key, live, (number, step))
        return None

    def _over(self) -> str | None:
        seconds, states = self._limits.seconds, self._limits.states
        if states is not None and len(self._came) >= states:
            return f"{states} states"
        if seconds is not None and time.perf_counter() - self._started >= seconds:
            return f"{seconds:g} s"
        return None

    def result(self, broken: BrokenT | None) -> Exploration[StepT, BrokenT]:
        way = None if broken is None else self._way()
        return Exploration(
            states=len(self._came),
            transitions=self._transitions,
            depth=self._depth if way is None else max(self._depth, len(way)),
            seconds=time.perf_counter() - self._started,
            stopped=self.stopped,
            way=way,
            violation=broken,
        )

    def _way(self) -> tuple[StepT, ...]:
        steps: list[StepT] = []
        came = self._last
        while came is not None:
            number, step = came
            steps.append(step)
            came = self._came[number]
        return tuple(reversed(steps))
