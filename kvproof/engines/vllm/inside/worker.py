"""The worker: runs programs on one engine, in the engine's own interpreter.

It speaks JSON lines. The first line that it writes says what it is; then it answers each line
that it reads with one line. A whole program comes in one message; at the level of the allocator
(for that of the scheduler see ``kvproof.engines.vllm.inside.scheduler_worker``):

    → {"program": …, "snapshots": "none" | "digests" | "all"}
    ← {"responses": […], "digests": […], "snapshots": […], "seconds": …}
    ← {"error": "…"}                      the program could not be run
    ← {"unlike": "…"}                     no program can: the engine lacks what kvproof reads
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from kvproof.engines.vllm.inside.missing import unlike
from kvproof.engines.vllm.inside.sources import SourceFinder
from model.allocator import Allocator
from model.events import PlainResponse
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.events import Raised, plain
from model.manager.program import MANAGER
from model.manager.session import Session
from model.snapshot import Digester

PROTOCOL_VERSION = 1

NewAllocator = Callable[[Configuration], Allocator[Any, Any]]
Runner = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers a message; what it raises is an error of the message."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--load", choices=("focused", "full"), required=True)
    parser.add_argument("--level", choices=tuple(RUNNERS), required=True)
    options = parser.parse_args()
    answers = _take_over_stdout()
    try:
        could_not_run = _make_importable(options.source, options.load)
        runner = RUNNERS[options.level](options.source, could_not_run)
    except Exception as error:
        what = unlike(error) or _describe(error)
        _write(answers, {"protocol": PROTOCOL_VERSION, "error": what})
        raise SystemExit(1) from error
    _write(answers, {"protocol": PROTOCOL_VERSION, "python": sys.version.split()[0]})
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer = runner(message)
        except Exception as error:
            answer = _failed(error)
        _write(answers, answer)


def run(
    message: dict[str, Any],
    new_allocator: NewAllocator,
    could_not_run: tuple[type[Exception], ...] = (),
) -> dict[str, Any]:
    """Run one program. What the engine raises is part of the answer; the rest propagates."""
    program = MANAGER.read(message["program"])
    mode = message["snapshots"]
    started = time.perf_counter()
    session = Session(program.configuration, new_allocator(program.configuration))
    responses: list[PlainResponse] = []
    digests: list[str] = []
    snapshots: list[Any] = []
    digester = Digester()
    failure = None
    for action in program.actions:
        response, failure = _do(session, action, could_not_run)
        responses.append(response)
        if mode != "none":
            snapshot = session.snapshot()
            digests.append(digester.digest(response, snapshot))
            if mode == "all":
                snapshots.append(snapshot)
        if session.dead:
            break
    return {
        "responses": responses,
        "digests": digests,
        "snapshots": snapshots,
        "seconds": time.perf_counter() - started,
        "failure": failure,
    }


def _do(
    session: Session[Any, Any], action: Action, could_not_run: tuple[type[Exception], ...]
) -> tuple[PlainResponse, str | None]:
    """Take one action; an exception of the engine ends its life."""
    try:
        return plain(session.do(action)), session.failure
    except could_not_run:
        raise
    except Exception as error:
        if unlike(error) is not None:
            raise
        session.dead = True
        return plain((Raised(type(error).__name__),)), traceback.format_exc()


def _make_importable(source: Path, load: str) -> tuple[type[Exception], ...]:
    """Let the engine be imported; return what is raised where this way of loading ends."""
    if load == "focused":
        from kvproof.engines.vllm.inside.loading import install  # noqa: PLC0415
        from kvproof.engines.vllm.inside.stand_ins import StandInCalled  # noqa: PLC0415

        install(source)
        return (StandInCalled,)
    sys.path.insert(0, str(source))
    sys.meta_path.insert(0, SourceFinder(source))
    return ()


def _manager_runner(_source: Path, could_not_run: tuple[type[Exception], ...]) -> Runner:
    """Import the adapter of the allocator, and with it the engine."""
    from kvproof.engines.vllm.inside.allocator import EngineAllocator  # noqa: PLC0415

    return partial(run, new_allocator=EngineAllocator, could_not_run=could_not_run)


def _scheduler_runner(source: Path, could_not_run: tuple[type[Exception], ...]) -> Runner:
    """Import the adapter of the scheduler, and with it the engine."""
    if not could_not_run:  # full loading
        from kvproof.engines.vllm.inside.loading import leave_out_gpu_code  # noqa: PLC0415

        leave_out_gpu_code()
    from kvproof.engines.vllm.inside.scheduler import EngineScheduler  # noqa: PLC0415
    from kvproof.engines.vllm.inside.scheduler_worker import SchedulerRunner  # noqa: PLC0415
    from kvproof.engines.vllm.inside.shadow import Shadows  # noqa: PLC0415

    return SchedulerRunner(EngineScheduler, source, could_not_run, Shadows().new)


RUNNERS = {"manager": _manager_runner, "scheduler": _scheduler_runner}
"""By level."""


def _take_over_stdout() -> TextIO:
    """Keep standard output for the protocol: whatever the engine prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _write(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _failed(error: Exception) -> dict[str, Any]:
    what = unlike(error)
    return {"error": _describe(error)} if what is None else {"unlike": what}


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
