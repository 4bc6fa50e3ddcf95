"""The worker: runs programs on one engine, in the engine's own interpreter.

It speaks JSON lines. The first line that it writes says what it is; then it answers each line
that it reads with one line. A whole program comes in one message.

    → {"program": …, "snapshots": "none" | "digests" | "all"}
    ← {"responses": […], "digests": […], "snapshots": […], "seconds": …}
    ← {"error": "…"}                      the program could not be run
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from model.actions import Action
from model.allocator import Allocator
from model.configuration import Configuration
from model.program import program_from_json
from model.session import Session
from model.snapshot import Digester

PROTOCOL_VERSION = 1

NewAllocator = Callable[[Configuration], Allocator[Any, Any]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--load", choices=("focused", "full"), required=True)
    options = parser.parse_args()
    answers = _take_over_stdout()
    try:
        new_allocator, could_not_run = _load(options.source, options.load)
    except Exception as error:
        _write(answers, {"protocol": PROTOCOL_VERSION, "error": _describe(error)})
        raise SystemExit(1) from error
    _write(answers, {"protocol": PROTOCOL_VERSION, "python": sys.version.split()[0]})
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer = run(message, new_allocator, could_not_run)
        except Exception as error:
            answer = {"error": _describe(error)}
        _write(answers, answer)


def run(
    message: dict[str, Any],
    new_allocator: NewAllocator,
    could_not_run: tuple[type[Exception], ...] = (),
) -> dict[str, Any]:
    """Run one program. What the engine raises is part of the answer; the rest propagates."""
    program = program_from_json(message["program"])
    mode = message["snapshots"]
    started = time.perf_counter()
    session = Session(program.configuration, new_allocator(program.configuration))
    responses: list[Any] = []
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
) -> tuple[Any, str | None]:
    """Take one action; an exception of the engine ends its life."""
    try:
        return session.do(action), session.failure
    except could_not_run:
        raise
    except Exception as error:
        session.dead = True
        return (("raised", type(error).__name__),), traceback.format_exc()


def _load(source: Path, load: str) -> tuple[NewAllocator, tuple[type[Exception], ...]]:
    """Make the engine importable, and import the adapter."""
    could_not_run: tuple[type[Exception], ...] = ()
    if load == "focused":
        from kvproof.focused import StandInCalled, install  # noqa: PLC0415

        install(source)
        could_not_run = (StandInCalled,)
    else:
        sys.path.insert(0, str(source))
    from kvproof.engine_allocator import EngineAllocator  # noqa: PLC0415

    return EngineAllocator, could_not_run


def _take_over_stdout() -> TextIO:
    """Keep standard output for the protocol: whatever the engine prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _write(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
