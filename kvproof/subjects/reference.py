"""The reference model as a subject: it runs in this process, under one dialect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from kvproof.subjects.subject import Detail
from model.dialect import Dialect
from model.manager.actions import Action
from model.manager.events import plain
from model.manager.session import Session
from model.program import AnyProgram, Level
from model.reference import ReferenceAllocator
from model.snapshot import Digester
from model.trace import Ending, Step, Trace


@dataclass(frozen=True, slots=True)
class ReferenceSubject:
    """Anything that the model raises beyond running out of blocks is a bug of the model, and
    propagates."""

    levels: ClassVar[tuple[Level, ...]] = ("manager",)
    """It is a model of the allocator only."""

    runs_as: Dialect
    dialect: Dialect
    name: str

    @property
    def level(self) -> Level:
        return self.levels[0]

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def run(self, program: AnyProgram, detail: Detail = "digests") -> Trace:
        started = time.perf_counter()
        allocator = ReferenceAllocator(program.configuration, self.runs_as)
        session = Session(program.configuration, allocator)
        digester = Digester()
        steps: list[Step] = []
        for action in program.actions:
            steps.append(_step(session, digester, action, detail))
            if session.dead:
                break
        ending: Ending = "raised" if session.dead else "ended"
        seconds = time.perf_counter() - started
        return Trace(self.name, program, tuple(steps), ending, session.failure, seconds)

    def run_many(
        self, programs: Iterable[AnyProgram], detail: Detail = "digests"
    ) -> Iterator[Trace]:
        for program in programs:
            yield self.run(program, detail)

    def close(self) -> None:
        """Nothing runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reference_subject(dialect: Dialect, name: str | None = None) -> ReferenceSubject:
    """The reference under one dialect, which is also the one that it is compared with."""
    return ReferenceSubject(dialect, dialect, name or f"reference:{dialect.name}")


def _step(session: Session[Any, Any], digester: Digester, action: Action, detail: Detail) -> Step:
    response = session.do(action)
    if detail == "none":
        return Step(response)
    snapshot = session.snapshot()
    digest = digester.digest(plain(response), snapshot)
    return Step(response, digest, snapshot if detail == "all" else None)
