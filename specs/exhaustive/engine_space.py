"""The reference itself as a space to search: its own step function, and every rule on every step.

The actions that are offered are those that the engine's scheduler could take next. What is possible
at all is decided by the session.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from invariants.rules import RULES, Rule
from invariants.violation import Violation
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    Extend,
    Finish,
    Output,
    Preempt,
)
from model.manager.events import Admitted, Extended
from specs.exhaustive.checkpoint import Checkpoints, Played
from specs.exhaustive.instance import Instance
from specs.exhaustive.normal_form import forget_unreadable, key_of
from specs.manager.generator import ReferenceSession


@dataclass(slots=True)
class EngineSpace:
    instance: Instance
    rules: Sequence[Rule] = RULES
    known: Counter[str] = field(default_factory=Counter)
    """Known defects that were seen, and how often: they are no violations."""
    taken: Counter[str] = field(default_factory=Counter)
    """How often what happened, by the first word of the event; ``hit`` is an admission with one."""
    _checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        self._checkpoints = Checkpoints(self.instance.configuration, self.instance.dialect)

    def initial(self) -> Played:
        return self._checkpoints.start(self.rules)

    def expand(self, kept: bytes) -> Iterator[tuple[Action, Played]]:
        session = self._checkpoints.restore(kept).session
        if session.dead:
            return
        if session.refused is not None:
            yield Preempt(0), self._taken(kept, Preempt(0))
            return
        running_first = False
        for action in extensions(session):
            played = self._taken(kept, action)
            running_first |= must_come_first(played)
            yield action, played
        offered = between_steps(session, self.instance)
        if not running_first:
            offered += after_the_running(session)
        for action in offered:
            yield action, self._taken(kept, action)

    def _taken(self, kept: bytes, action: Action) -> Played:
        played = self._checkpoints.restore(kept)
        played.take(action)
        forget_unreadable(played)
        self.taken.update(event.word for event in played.response)
        self.taken["hit"] += sum(isinstance(e, Admitted) and e.hit > 0 for e in played.response)
        return played

    def key(self, live: Played) -> bytes:
        return key_of(live)

    def keep(self, live: Played) -> bytes:
        return self._checkpoints.save(live)

    def violation(self, live: Played, new: bool) -> Violation | None:
        for violation in live.violations:
            if violation.known is None:
                return violation
            self.known[violation.known] += 1
        return None


def extensions(session: ReferenceSession) -> list[Action]:
    """Chunks for the first running request that has none in this step: all of it, or one page."""
    return [Extend(0, tokens) for tokens in chunks(session)] if Extend in session.enabled() else []


def must_come_first(extension: Played) -> bool:
    """Whether an engine goes no further before this: it could be made, or must preempt.

    If it was refused while blocks are about to come back, the engine leaves the request out of the
    step and goes on to the waiting ones.
    """
    extended = isinstance(extension.response[-1], Extended)
    return extended or extension.session.refused is not None


def after_the_running(session: ReferenceSession) -> list[Action]:
    """What an engine does once the running requests have their chunks, or must wait for them."""
    found: list[Action] = []
    if Admit in session.enabled():
        found += [Admit(0, tokens) for tokens in chunks(session)]
    if session.scheduled or session.preempted or session.admitting:
        found.append(EndStep())
    return found


def chunks(session: ReferenceSession) -> tuple[int, int]:
    return session.configuration.max_model_len, session.configuration.block_size


def between_steps(session: ReferenceSession, instance: Instance) -> list[Action]:
    """What comes from outside, while no step is being built."""
    if not session.between_steps or session.admitting:
        return []
    found: list[Action] = []
    if arrived(session) < instance.requests:
        found.append(Arrive(0, session.configuration.max_model_len, instance.prompt))
    enabled = session.enabled()
    found += [Output()] if Output in enabled else []
    for worker in session.busy_workers:
        queued = session.queued_transfers(worker)
        found += [CompleteTransfers(worker, count) for count in range(1, queued + 1)]
    return found + [Finish(n) for n in range(enabled.get(Finish, 0))]


def arrived(session: ReferenceSession) -> int:
    """Requests that have arrived, those that ended included."""
    return session._next_id
