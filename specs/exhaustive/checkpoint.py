"""Checkpoints: the whole state of a session and of its judge, as bytes.

To take another step from a state costs less than to play all steps to it again, or to copy its
objects one by one. What never changes along a search is left out and put back.
"""

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from invariants.manager.judge import Judge
from invariants.rules import RULE_BY_ID, Rule
from invariants.violation import Violation
from model.dialect import Dialect
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.events import Response
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.state import stop_reading
from specs.manager.generator import ReferenceSession

WATCHER, NO_WATCHER = "watcher", "no watcher"
"""What a pool calls when a watched block is handed out: the GPU pool's acts on the state."""


@dataclass(slots=True)
class Played:
    """A session that took some steps, and what the judge said of the last one."""

    session: ReferenceSession
    judge: Judge | None
    """None where nothing is judged."""
    response: Response = ()
    violations: tuple[Violation, ...] = ()

    def take(self, action: Action) -> None:
        self.response = self.session.do(action)
        if self.judge is not None:
            self.violations = tuple(
                self.judge.judge(action, self.response, self.session.snapshot())
            )


class Checkpoints:
    """Saves and restores sessions of one configuration and dialect."""

    def __init__(self, configuration: Configuration, dialect: Dialect) -> None:
        self._configuration = configuration
        self._dialect = dialect

    def start(self, rules: Sequence[Rule] = ()) -> Played:
        """The state before the first action; judged by some rules, or not at all."""
        session = Session(
            self._configuration, ReferenceAllocator(self._configuration, self._dialect)
        )
        judge = Judge(self._configuration, self._dialect, rules) if rules else None
        return Played(session, judge)

    def save(self, played: Played) -> bytes:
        file = io.BytesIO()
        _Saver(file).dump((played.session, played.judge))
        return file.getvalue()

    def restore(self, saved: bytes) -> Played:
        return Played(*_restored(saved, self._configuration, self._dialect))


class _Saver(pickle.Pickler):
    """Names what is the same in every state instead of writing it out."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)

    def persistent_id(self, value: Any) -> str | None:
        kind = type(value)
        if kind is Configuration or kind is Dialect:
            return str(kind.__name__)
        if kind is Rule:
            return str(value.id)
        if kind is FunctionType:
            return WATCHER if value.__closure__ else NO_WATCHER
        return None


def _restored(saved: bytes, configuration: Configuration, dialect: Dialect) -> Any:
    loaded: Any = None

    def watcher(block: int) -> None:
        stop_reading(loaded[0].allocator.state, block)

    restorer = _Restorer(io.BytesIO(saved))
    restorer.known = {
        "Configuration": configuration,
        "Dialect": dialect,
        WATCHER: watcher,
        NO_WATCHER: _nobody_watches,
        **RULE_BY_ID,
    }
    loaded = restorer.load()
    return loaded


def _nobody_watches(block: int) -> None:
    """Host blocks are never read without a reference."""


class _Restorer(pickle.Unpickler):
    known: dict[str, Any]

    def persistent_load(self, name: str) -> Any:
        return self.known[name]
