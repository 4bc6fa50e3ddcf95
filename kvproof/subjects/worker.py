"""An engine as a subject: it runs in a worker process, in the engine's own interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from kvproof.engines.vllm.engine import Engine
from kvproof.engines.vllm.inside import start
from kvproof.provision.cache import cache_root
from kvproof.subjects.decoding import WIRES, Beside, trace_of
from kvproof.subjects.pipeline import Job, Pipeline, Reply, submitted_ahead
from kvproof.subjects.process import WorkerCommand
from kvproof.subjects.subject import Detail
from model.dialect import Dialect
from model.program import AnyProgram, Level
from model.trace import Trace

START = Path(start.__file__)
PROGRAM_SECONDS = 10.0
"""Time for one program, if nothing else is said."""


class EngineSubject:
    """``timeout`` is the time for one program, in seconds. The worker is started when needed.

    ``dialect`` is what the engine is compared with. Where a level is judged beside the engine,
    its known defects are named, and with ``shadow`` the model under it follows every call of the
    allocator.
    """

    def __init__(
        self,
        engine: Engine,
        level: Level,
        dialect: Dialect,
        timeout: float = PROGRAM_SECONDS,
        shadow: bool = True,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name = engine.name
        self.notes = notes
        self.level = level
        self.dialect = dialect
        self._wire = WIRES[level]
        self._beside = Beside(dialect.name, shadow)
        self._pipeline = Pipeline(worker_command(engine, level), timeout)

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None if none runs."""
        return self._pipeline.pid

    def run(self, program: AnyProgram, detail: Detail = "digests") -> Trace:
        return self._trace(program, detail, self._submit(program, detail))

    def run_many(
        self, programs: Iterable[AnyProgram], detail: Detail = "digests"
    ) -> Iterator[Trace]:
        ahead = submitted_ahead(programs, lambda program: self._submit(program, detail))
        for program, job in ahead:
            yield self._trace(program, detail, job)

    def ask(self, message: dict[str, Any]) -> Reply:
        """Put a question that is no program; raises ``CouldNotRun``."""
        return self._pipeline.reply_to(self._pipeline.submit(message))

    def close(self) -> None:
        self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, program: AnyProgram, detail: Detail) -> Job:
        return self._pipeline.submit(self._wire.question(program, detail, self._beside))

    def _trace(self, program: AnyProgram, detail: Detail, job: Job) -> Trace:
        return trace_of(self._wire, self.name, program, detail, self._pipeline.reply_to(job))


def worker_command(engine: Engine, level: Level) -> WorkerCommand:
    options = ("--source", str(engine.source), "--load", engine.load, "--level", level)
    # -P: what lies in the user's working folder must not be taken for a module.
    arguments = (str(engine.python), "-P", str(START), *options)
    return WorkerCommand(engine.name, arguments, _environment(os.environ))


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without what would make two runs of one program differ."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PYTHON", "VLLM_"))  # PYTHONOPTIMIZE drops assertions
    }
    return kept | {
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": str(cache_root() / "bytecode"),
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
