"""The shortest way to a failure: breadth-first over small instances and few actions.

Deleting actions from a long program ends in a local minimum. A small scope is soon exhausted, and
breadth-first gives the shortest program in it. That another one fails elsewhere in fewer actions
is not excluded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from model.dialect import Dialect
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
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS
from model.startup import minimum_blocks, minimum_host_blocks
from specs.exhaustive.breadth import Limits, breadth_first
from specs.exhaustive.checkpoint import Checkpoints, Played
from specs.manager.generator import ReferenceSession

Fails = Callable[[ManagerProgram], bool]

EVERYTHING = 99
"""More tokens, or transfers, than any small instance has."""
MAX_STATES = 1_200
"""States after which a scope is given up."""
MAX_ALIVE = 2
"""Requests alive at once."""


def shortest(
    modes: Configuration, fails: Fails, dialect: Dialect, below: int
) -> ManagerProgram | None:
    """The shortest failing program of fewer than ``below`` actions in a few small scopes.

    ``modes`` gives everything but the sizes.
    """
    best: ManagerProgram | None = None
    for configuration in small_scopes(modes):
        found = search_scope(configuration, fails, dialect, below)
        if found is not None:
            best, below = found, len(found.actions)
    return best


def small_scopes(modes: Configuration) -> Iterator[Configuration]:
    """Instances with two or three pages, at the largest start-up minimum of all dialects."""
    size = 2
    for pages in (2, 3):
        for batch in (2 * size, pages * size):
            draft = replace(
                modes, block_size=size, max_model_len=pages * size, max_num_batched_tokens=batch
            )
            blocks = max(minimum_blocks(draft, dialect) for dialect in DIALECTS.values())
            hosts = max(minimum_host_blocks(draft, dialect) for dialect in DIALECTS.values())
            draft = replace(draft, num_host_blocks=hosts)
            for spare in (0, 1):
                yield replace(draft, num_blocks=blocks + spare)


def search_scope(
    configuration: Configuration, fails: Fails, dialect: Dialect, below: int
) -> ManagerProgram | None:
    """Breadth-first over all programs of the scope, states already seen left out."""
    scope = Scope(configuration, fails, Checkpoints(configuration, dialect))
    return breadth_first(scope, Limits(states=MAX_STATES, depth=below - 1)).violation


Path = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """A small instance as a space to search; a state comes with the actions that led to it."""

    configuration: Configuration
    fails: Fails
    checkpoints: Checkpoints

    def initial(self) -> tuple[Path, Played]:
        return (), self.checkpoints.start()

    def expand(self, kept: tuple[Path, bytes]) -> Iterator[tuple[Action, tuple[Path, Played]]]:
        path, saved = kept
        session = self.checkpoints.restore(saved).session
        for action in [] if session.dead else choices(session):
            played = self.checkpoints.restore(saved)
            played.take(action)
            yield action, ((*path, action), played)

    def key(self, live: tuple[Path, Played]) -> str:
        return live[1].session.fingerprint()

    def keep(self, live: tuple[Path, Played]) -> tuple[Path, bytes]:
        return live[0], self.checkpoints.save(live[1])

    def violation(self, live: tuple[Path, Played], new: bool) -> ManagerProgram | None:
        program = Program(self.configuration, live[0])
        return program if new and live[0] and self.fails(program) else None


def choices(session: ReferenceSession) -> list[Action]:
    """The few actions of a scope that are possible now: whole chunks, and chunks of one page."""
    size, longest = session.configuration.block_size, session.configuration.max_model_len
    enabled = session.enabled()
    found: list[Action] = []
    if len(session.requests) < MAX_ALIVE and not session.waiting:
        prompts = dict.fromkeys((longest - 1, size + 1))
        found += [Arrive(0, longest, prompt) for prompt in prompts]
    found += [Admit(0, EVERYTHING), Admit(0, size)] if Admit in enabled else []
    found += [Extend(0, EVERYTHING)] if Extend in enabled else []
    found += [Preempt(n) for n in range(enabled.get(Preempt, 0))]
    found += [] if session.between_steps else [EndStep()]
    found += [Output()] if Output in enabled else []
    if CompleteTransfers in enabled:
        found += [CompleteTransfers(worker, EVERYTHING) for worker in session.busy_workers]
    return found + [Finish(n) for n in range(enabled.get(Finish, 0))]
