"""The whole scheduler of a vLLM as a subject: it runs in a worker process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from invariants.scheduler.effort import Effort
from invariants.scheduler.run import Response
from invariants.violation import Violation
from kvproof.engines.vllm.engine import Engine
from kvproof.errors import CouldNotRun
from kvproof.subjects.decoding import as_tuples
from kvproof.subjects.manager import worker_command
from kvproof.subjects.pipeline import Job, Pipeline, Reply, submitted_ahead
from model.dialect import Dialect
from model.program import program_to_json
from model.scheduler.program import SchedulerProgram

Ending = Literal["ended", "violated", "refused", "crashed", "hung", "error"]
"""How a run ended: all requests did; a rule was broken; the engine would not start with the
setup; the worker process died; it did not answer in time; it could not run the program."""


@dataclass(frozen=True, slots=True)
class SchedulerTrace:
    """A program as one engine ran it, up to the first action that broke a rule."""

    subject: str
    program: SchedulerProgram
    ending: Ending
    failure: str | None = None
    """What the engine raised, why it would not start, or why it could not run."""
    violations: tuple[Violation, ...] = ()
    steps: int = 0
    """Scheduler steps, those after the last action included."""
    goals: Counter[str] = field(default_factory=Counter)
    responses: tuple[Response, ...] = ()
    """To each action, and to what was done after the last one; where they were asked for."""
    seconds: float = 0.0
    shadowed_calls: int = 0
    """Calls of the allocator that were compared with the model's."""
    shadowed_states: int = 0
    shadow_ended: str | None = None
    """Why the model did not follow to the end, if it did not."""


class SchedulerSubject:
    """``timeout`` is the time for one program, in seconds. The worker is started when needed.

    ``dialect`` is that of the release: its known defects are named, and with ``shadow`` the model
    under it follows every call of the allocator.
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, timeout: float = 10.0, shadow: bool = True
    ) -> None:
        self.name = engine.name
        self.dialect = dialect
        self.shadow = shadow
        self._pipeline = Pipeline(worker_command(engine, "scheduler"), timeout)

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None if none runs."""
        return self._pipeline.pid

    def run(self, program: SchedulerProgram, responses: bool = False) -> SchedulerTrace:
        """Run one program; ``responses`` asks for what the engine answered to each action.

        Raises ``CouldNotRun`` when the engine cannot be started at all.
        """
        return self._trace(program, self._submit(program, responses))

    def run_many(self, programs: Iterable[SchedulerProgram]) -> Iterator[SchedulerTrace]:
        """Run programs in order, one trace each; a few are run ahead of the caller."""
        for program, job in submitted_ahead(programs, lambda p: self._submit(p, False)):
            yield self._trace(program, job)

    def efforts(self) -> tuple[Effort, ...]:
        """What a step costs after a short and after a long context; raises ``CouldNotRun``."""
        reply = self._pipeline.reply_to(self._pipeline.submit({"efforts": True}))
        try:
            return tuple([Effort(**effort) for effort in reply.message["efforts"]])
        except (KeyError, TypeError) as error:
            why = reply.failure or reply.message.get("error") or "the answer cannot be read"
            raise CouldNotRun(f"{self.name} could not count its effort: {why}") from error

    def close(self) -> None:
        """Leave nothing running. A second call does nothing."""
        self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, program: SchedulerProgram, responses: bool) -> Job:
        message = {
            "program": program_to_json(program),
            "release": self.dialect.name,
            "responses": responses,
            "shadow": self.shadow,
        }
        return self._pipeline.submit(message)

    def _trace(self, program: SchedulerProgram, job: Job) -> SchedulerTrace:
        return _trace_of(self.name, program, self._pipeline.reply_to(job))


def _trace_of(subject: str, program: SchedulerProgram, reply: Reply) -> SchedulerTrace:
    if reply.outcome != "answered":
        return SchedulerTrace(subject, program, reply.outcome, reply.failure)
    message = reply.message
    if "error" in message:
        return SchedulerTrace(subject, program, "error", str(message["error"]))
    if "refused" in message:
        return SchedulerTrace(subject, program, "refused", str(message["refused"]))
    try:
        return _decoded(subject, program, message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        failure = f"the worker's answer cannot be read: {type(error).__name__}: {error}"
        return SchedulerTrace(subject, program, "error", failure)


def _decoded(subject: str, program: SchedulerProgram, message: dict[str, Any]) -> SchedulerTrace:
    violations = tuple(
        [
            Violation(b["rule"], b["step"], tuple(b["evidence"]), b["known"])
            for b in message["violations"]
        ]
    )
    shadow = message.get("shadow") or {"calls": 0, "states": 0, "ended": None}
    return SchedulerTrace(
        subject,
        program,
        "violated" if violations else "ended",
        message["failure"],
        violations,
        message["steps"],
        Counter(message["goals"]),
        as_tuples(message["responses"]),
        message["seconds"],
        shadow["calls"],
        shadow["states"],
        shadow["ended"],
    )
