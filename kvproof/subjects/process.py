"""One life of a worker process: lines go in, lines come out, and its end is noticed.

Three threads stand between the caller and the pipes, so that neither side ever waits for the
other to read: one feeds standard input, one drains standard output, one keeps the last lines of
standard error.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import IO

TAIL_LINES = 20
TAIL_LINE_BYTES = 500
GRACE_SECONDS = 0.05
"""An answer is waited for at least so long: the caller may come late, or this process may have
been stopped for a while."""
PIPE_SECONDS = 1.0
"""How long the pipes of a dead worker are read on; a process that it left behind may hold them
open."""


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """How to start a worker. ``name`` is the subject's, for messages."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line that the worker wrote, and when it came (monotonic seconds)."""

    text: bytes
    arrived: float


@dataclass(frozen=True, slots=True)
class End:
    """The worker is gone: how, in words."""

    how: str


class WorkerProcess:
    """A running worker, in a process group of its own."""

    def __init__(self, command: WorkerCommand) -> None:
        self.ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._arrivals: SimpleQueue[Line | End] = SimpleQueue()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._started = Event()
        # The thread that starts the worker is the one that outlives it: the kernel's parent
        # death signal is tied to the starting thread, not to its process.
        self._reader = Thread(target=self._live, args=(command,), daemon=True)
        self._reader.start()
        self._started.wait()
        atexit.register(self.close)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def send(self, line: bytes) -> None:
        """Queue a line; never blocks, and a dead worker is noticed by ``receive``."""
        self._outgoing.put(line)

    def receive(self, deadline: float) -> Line | End | None:
        """The next line, or the worker's end; None if neither came until then (monotonic)."""
        try:
            return self._arrivals.get(timeout=max(deadline - time.monotonic(), GRACE_SECONDS))
        except Empty:
            return None

    def last_words(self) -> list[str]:
        """The last lines on its standard error."""
        return list(self._tail)

    def close(self) -> None:
        """Kill the worker and whatever it started."""
        atexit.unregister(self.close)
        if not self.ended:
            self._kill_group()
        self._reader.join(PIPE_SECONDS)

    def _live(self, command: WorkerCommand) -> None:
        try:
            process = self._process = _start(command)
        except OSError as error:
            how = f"{command.arguments[0]} cannot be started: {error.strerror}"
            self.ended = True
            self._arrivals.put(End(how))
            return
        finally:
            self._started.set()
        assert process.stdin
        assert process.stdout
        assert process.stderr
        Thread(target=self._feed, args=(process.stdin,), daemon=True).start()
        listener = Thread(target=self._listen, args=(process.stderr,), daemon=True)
        listener.start()
        with process.stdout:
            for line in process.stdout:
                self._arrivals.put(Line(line, time.monotonic()))
        code = process.wait()
        self.ended = True
        self._outgoing.put(None)
        self._kill_group()
        listener.join(PIPE_SECONDS)
        self._arrivals.put(End(describe_exit(code)))

    def _feed(self, stdin: IO[bytes]) -> None:
        with suppress(OSError), stdin:  # a worker that is gone is the reader's business
            while (line := self._outgoing.get()) is not None:
                stdin.write(line)
                stdin.flush()

    def _listen(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(TAIL_LINE_BYTES):
                if text := line.decode(errors="replace").rstrip():
                    self._tail.append(text)

    def _kill_group(self) -> None:
        """Its process group is named by its id, which stays taken while any member lives."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _start(command: WorkerCommand) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.environment,
        start_new_session=True,  # a group of its own, to be killed as one
    )


def describe_exit(code: int) -> str:
    """Say how a process ended, from the exit code that ``subprocess`` gives."""
    if code >= 0:
        return f"the worker exited with code {code}"
    try:
        return f"the worker was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"the worker was killed by signal {-code}"
