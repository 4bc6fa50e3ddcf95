"""A ghost of the external store: which loads are under way, and which fail.

A load within a step fails by block, one beside the steps by request where the cache has several
groups. What failed is told to the engine with the next output; until then nobody can know of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from model.scheduler.ghost_worker import Cell, Groups
from model.scheduler.life import Life
from model.scheduler.plan import Load, StepPlan
from model.scheduler.setup import SchedulerSetup


@dataclass(frozen=True, slots=True)
class LoadUnderWay:
    """A load beside the steps."""

    load: Load
    lost: int | None
    """Position from which it will fail, if it does."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the store tells the engine with the next output."""

    received: frozenset[int]
    """Requests whose load beside the steps ended, failed ones too."""
    failed: frozenset[int]
    """Those of them whose contents are not to be used."""
    invalid: frozenset[int]
    """Blocks that a load did not fill."""


@dataclass(slots=True)
class GhostStore:
    setup: SchedulerSetup
    groups: Groups
    loads: list[LoadUnderWay] = field(default_factory=list)
    """Beside the steps, oldest first."""
    failed_beside: set[int] = field(default_factory=set)
    """Requests whose load beside the steps failed, ever."""
    failed_within: set[int] = field(default_factory=set)
    """Requests whose load within a step failed, ever."""
    unreported: set[int] = field(default_factory=set)
    """Requests whose load failed and that the engine was not told of."""
    _received: set[int] = field(default_factory=set)
    _failed: set[int] = field(default_factory=set)
    _invalid: set[int] = field(default_factory=set)

    def storable(self, prompt: int) -> int:
        """Tokens that a store has at most: a state cannot be taken back by a token, and a prompt
        of one token is nothing to store."""
        if not self.setup.external_store or prompt == 1:
            return 0
        return prompt - (self.setup.cache == "mamba")

    def filled(self, load: Load) -> Iterator[Cell]:
        """The blocks that a load writes: a prefix hit before it is only read, and what a step
        itself fills (resident pages, hot regions) is written in the order of the steps."""
        size, groups = self.setup.block_size, self.groups
        first, end = load.start // size, -(-(load.start + load.tokens) // size)
        for group in (*groups.full, *groups.sliding, *groups.state):
            yield from (("gpu", block) for block in load.blocks[group][first:end] if block)
        if groups.host is not None:
            yield from (("host", block) for block in load.blocks[groups.host][first:end] if block)

    def start(self, load: Load, life: Life) -> None:
        """A load beside the steps is under way from now on."""
        self.loads.append(LoadUnderWay(load, self._lost_from(load, life)))

    def run_within(self, plan: StepPlan, lives: dict[int, Life]) -> dict[int, int]:
        """Try the loads within a step; request → position from which its load fails."""
        within = [load for load in plan.loads if not load.asynchronous]
        lost = {load.request: self._lost_from(load, lives[load.request]) for load in within}
        failing = {number: position for number, position in lost.items() if position is not None}
        self.unreported.update(failing)
        self.failed_within.update(failing)
        return failing

    def end(self, index: int) -> LoadUnderWay:
        """A load beside the steps is done, or failed: the next output says so."""
        done = self.loads.pop(index % len(self.loads))
        number = done.load.request
        self._received.add(number)
        if done.lost is not None:
            self.unreported.add(number)
            self.failed_beside.add(number)
            if len(done.load.blocks) == 1:
                self._invalid.update(self._lost_blocks(done.load, done.lost))
            else:
                self._failed.add(number)
        return done

    def report(self, plan: StepPlan, lost: dict[int, int]) -> Report:
        """What goes with the output of a step, whose own loads failed from ``lost`` on."""
        invalid = set(self._invalid)
        for load in plan.loads:
            if load.request in lost and not load.asynchronous:
                invalid.update(self._lost_blocks(load, lost[load.request]))
        told = Report(frozenset(self._received), frozenset(self._failed), frozenset(invalid))
        self._received, self._failed, self._invalid = set(), set(), set()
        return told

    def _lost_from(self, load: Load, life: Life) -> int | None:
        """Position from which the store fails to load, if it does: a whole page at least."""
        fails = life.arrive.lost > 0 and not life.tried
        life.tried = True
        if not fails or (not load.asynchronous and len(load.blocks) > 1):
            return None  # a load within a step fails by block, which only one group allows
        size, end = self.setup.block_size, load.start + load.tokens
        return max(load.start, (-(-end // size) - life.arrive.lost) * size)

    def _lost_blocks(self, load: Load, lost: int) -> tuple[int, ...]:
        size = self.setup.block_size
        end = -(-(load.start + load.tokens) // size)
        return load.blocks[0][lost // size : end]
