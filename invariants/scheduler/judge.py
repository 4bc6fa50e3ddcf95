"""The judge: watches a session, asks each checker about what concerns it, and keeps violations.

What costs a pass over the pools is asked now and then only, see ``audit``; what is left at the end
is asked by ``drain``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from invariants.scheduler.audit import audit, counters, quiescence
from invariants.scheduler.contents import misreads, wrong_tokens
from invariants.scheduler.fences import writes_beside_steps
from invariants.scheduler.found import Found
from invariants.scheduler.preemption import Page, never_written, preemptions
from invariants.violation import Cause, Violation
from model.scheduler.actions import Action
from model.scheduler.engine import Engine
from model.scheduler.events import Response
from model.scheduler.ghost_worker import Misread
from model.scheduler.happenings import (
    ActionTaken,
    Delivered,
    Happening,
    LoadStarted,
    PreemptionPlanned,
    StepExecuted,
)
from model.scheduler.plan import PoolState
from model.scheduler.session import Session
from model.scheduler.setup import SchedulerSetup

BLOCKS_AUDITED = 16
"""Blocks that the audit looks at per action, taken over many."""


@dataclass(slots=True)
class Judge:
    """``audit_every``: actions between two looks at the whole of the pools; by default the more,
    the larger they are, so that looking costs the same per action whatever their size."""

    setup: SchedulerSetup
    engine: Engine
    audit_every: int = 0
    session: Session = field(init=False)
    violations: list[Violation] = field(default_factory=list)
    pools: tuple[PoolState, ...] = ()
    """As the last audit saw them."""
    misread: list[Misread] = field(default_factory=list)
    """All that was misread, where that broke a rule."""
    never_written: set[Page] = field(default_factory=set)
    """Pages that a preempted request was still to write."""

    def __post_init__(self) -> None:
        blocks = self.setup.num_blocks + self.setup.num_host_blocks
        self.audit_every = self.audit_every or 1 + blocks // BLOCKS_AUDITED
        self.session = Session(self.setup, self.engine, observers=[self._watch])

    def do(self, action: Action) -> Response:
        """Take one action, and judge it."""
        return self.session.do(action)

    def report(self, rule: str, cause: Cause, *evidence: str) -> None:
        """Keep a violation; a rule is broken once by an action, whatever else shows it."""
        step = self.session.taken
        if not any((known.rule, known.step) == (rule, step) for known in self.violations):
            self.violations.append(Violation(rule, step, cause, evidence))

    def judge_quiescence(self) -> None:
        """Nothing may be left of what has ended."""
        self._report(found for pool in self.engine.pool_states() for found in quiescence(pool))

    def _report(self, findings: Iterable[Found]) -> None:
        for found in findings:
            self.report(*found)

    def _watch(self, happening: Happening) -> None:
        self._report(self._findings(happening))
        if isinstance(happening, PreemptionPlanned):
            self.never_written.update(never_written(self.session, happening))
        elif isinstance(happening, StepExecuted):
            self.misread += [misread for found in happening.misread for misread in found]

    def _findings(self, happening: Happening) -> Iterator[Found]:
        match happening:
            case PreemptionPlanned():
                yield from preemptions(self.engine, happening)
            case LoadStarted():
                yield from writes_beside_steps(self.session.flight, happening)
            case StepExecuted():
                yield from misreads(self.session.contents, happening)
            case Delivered():
                yield from wrong_tokens(happening)
            case ActionTaken():
                if (self.session.taken + 1) % self.audit_every == 0:
                    yield from self._audit()

    def _audit(self) -> Iterator[Found]:
        self.pools = self.engine.pool_states()
        for pool in self.pools:
            yield from audit(pool)
        yield from counters(self.engine.statuses().values())
