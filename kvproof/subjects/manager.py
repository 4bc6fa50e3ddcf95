"""A vLLM as a subject: its allocator runs in a worker process, in the engine's own interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from kvproof.engines.vllm.engine import Engine
from kvproof.engines.vllm.inside import start
from kvproof.provision.cache import cache_root
from kvproof.subjects.decoding import trace_of
from kvproof.subjects.pipeline import Job, Pipeline, submitted_ahead
from kvproof.subjects.process import WorkerCommand
from kvproof.subjects.subject import Level, Snapshots
from model.dialect import Dialect
from model.manager.program import ManagerProgram
from model.program import program_to_json
from model.trace import Trace

START = Path(start.__file__)


class EngineSubject:
    """``timeout`` is the time for one program, in seconds. The worker is started when needed."""

    def __init__(self, engine: Engine, dialect: Dialect | None, timeout: float = 10.0) -> None:
        self.name = engine.name
        self.dialect = dialect
        self._pipeline = Pipeline(worker_command(engine), timeout)

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None if none runs."""
        return self._pipeline.pid

    def run(self, program: ManagerProgram, snapshots: Snapshots = "digests") -> Trace:
        return self._trace(program, snapshots, self._submit(program, snapshots))

    def run_many(
        self, programs: Iterable[ManagerProgram], snapshots: Snapshots = "digests"
    ) -> Iterator[Trace]:
        ahead = submitted_ahead(programs, lambda program: self._submit(program, snapshots))
        for program, job in ahead:
            yield self._trace(program, snapshots, job)

    def close(self) -> None:
        self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit(self, program: ManagerProgram, snapshots: Snapshots) -> Job:
        return self._pipeline.submit({"program": program_to_json(program), "snapshots": snapshots})

    def _trace(self, program: ManagerProgram, snapshots: Snapshots, job: Job) -> Trace:
        return trace_of(self.name, program, snapshots, self._pipeline.reply_to(job))


def worker_command(engine: Engine, level: Level = "manager") -> WorkerCommand:
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
