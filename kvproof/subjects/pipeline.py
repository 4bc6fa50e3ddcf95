"""Jobs for a worker, several at a time: each gets exactly one reply, whatever happens to it.

The worker answers in order, so a failure always belongs to the oldest job without a reply. That
job is told what happened; the jobs behind it go to the next life of the worker.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from kvproof.engines.vllm.inside.worker import PROTOCOL_VERSION
from kvproof.errors import CouldNotRun, EngineUnlike
from kvproof.subjects.process import End, Line, WorkerCommand, WorkerProcess

START_SECONDS = 180.0
"""Time to say hello: full loading compiles and imports 2 GB of packages the first time."""
PROGRAMS_AHEAD = 8
"""Programs that the worker has at most: enough to keep it busy while the caller works."""
SHOWN_BYTES = 200
"""How much of a line that makes no sense is shown."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The worker's message, or why there is none."""

    outcome: Literal["answered", "crashed", "hung", "error"]
    message: dict[str, Any]
    failure: str | None = None


@dataclass(slots=True)
class Job:
    """A message for the worker, and what became of it."""

    line: bytes
    sent: float = 0.0
    """When it was sent last (monotonic seconds)."""
    reply: Reply | None = None


class Pipeline:
    """A worker that is started when it is needed, and again when it died.

    ``timeout`` is the time for one job, in seconds.
    """

    def __init__(
        self, command: WorkerCommand, timeout: float, start_timeout: float = START_SECONDS
    ) -> None:
        self._command = command
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._worker: WorkerProcess | None = None
        self._unanswered: deque[Job] = deque()
        self._last_arrival = 0.0

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None if none runs."""
        return self._worker.pid if self._worker else None

    def submit(self, message: dict[str, Any]) -> Job:
        """Queue a message; the worker takes it up as soon as it can."""
        job = Job(json.dumps(message).encode() + b"\n")
        if self._worker is not None and self._worker.ended and not self._unanswered:
            self._end_worker()  # it died while it was idle, which is no job's fault
        self._unanswered.append(job)
        if self._worker is None:
            self._start_worker()
        else:
            self._send(self._worker, job)
        return job

    def reply_to(self, job: Job) -> Reply:
        """Wait for the reply.

        Raises ``CouldNotRun`` when a worker that died cannot be replaced, ``EngineUnlike`` when the
        engine lacks what kvproof needs of it.
        """
        while job.reply is None:
            if self._worker is None:
                self._start_worker()
            else:
                self._reply_to_oldest(self._worker)
        if "unlike" in job.reply.message:
            raise EngineUnlike(f"{self._command.name}: {job.reply.message['unlike']}")
        return job.reply

    def close(self) -> None:
        self._end_worker()
        self._unanswered.clear()

    def _reply_to_oldest(self, worker: WorkerProcess) -> None:
        oldest = self._unanswered[0]
        started = max(oldest.sent, self._last_arrival)
        arrival = worker.receive(started + self._timeout)
        reply = self._reply(worker, arrival)
        if isinstance(arrival, Line):
            self._last_arrival = arrival.arrived
        if reply.outcome != "answered":
            self._end_worker()
        self._unanswered.popleft().reply = reply

    def _reply(self, worker: WorkerProcess, arrival: Line | End | None) -> Reply:
        if arrival is None:
            what = f"the worker did not answer within {self._timeout:g} s and was killed"
            return Reply("hung", {}, _with_last_words(what, worker))
        if isinstance(arrival, End):
            return Reply("crashed", {}, _with_last_words(arrival.how, worker))
        message = _message(arrival.text)
        if message is None:
            what = f"the worker wrote a line that is no answer: {_shown(arrival.text)}"
            return Reply("error", {}, _with_last_words(what, worker))
        return Reply("answered", message)

    def _start_worker(self) -> None:
        worker = WorkerProcess(self._command)
        problem = _problem_at_start(worker, self._start_timeout)
        if problem is not None:
            worker.close()
            raise CouldNotRun(f"{self._command.name}: {problem}")
        self._worker = worker
        for job in self._unanswered:
            self._send(worker, job)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @staticmethod
    def _send(worker: WorkerProcess, job: Job) -> None:
        job.sent = time.monotonic()
        worker.send(job.line)


Program = TypeVar("Program")


def submitted_ahead(
    programs: Iterable[Program], submit: Callable[[Program], Job]
) -> Iterator[tuple[Program, Job]]:
    """Submit programs in order, a few ahead of the caller, who takes them with their jobs."""
    ahead: deque[tuple[Program, Job]] = deque()
    for program in programs:
        ahead.append((program, submit(program)))
        if len(ahead) == PROGRAMS_AHEAD:
            yield ahead.popleft()
    yield from ahead


def _problem_at_start(worker: WorkerProcess, seconds: float) -> str | None:
    """Wait for the worker's hello; say in one line why it cannot be used, or None."""
    arrival = worker.receive(time.monotonic() + seconds)
    if arrival is None:
        return f"the worker did not start within {seconds:g} s"
    if isinstance(arrival, End):
        words = worker.last_words()
        return arrival.how + (f" when it was started: {words[-1]}" if words else "")
    hello = _message(arrival.text)
    if hello is None or "protocol" not in hello:
        shown = _shown(arrival.text)
        return f"the worker names no protocol version; its first line is {shown}"
    if hello["protocol"] != PROTOCOL_VERSION:
        return (
            f"the worker speaks protocol version {hello['protocol']!r} and this kvproof speaks "
            f"{PROTOCOL_VERSION}; let both come from the same kvproof"
        )
    return f"the engine cannot be loaded: {hello['error']}" if "error" in hello else None


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").rstrip()
    return repr(text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "…")


def _with_last_words(what: str, worker: WorkerProcess) -> str:
    return "\n".join([what, *worker.last_words()])
