"""How programs of each level are put to a worker, and how its answers become traces.

Reading an answer costs about 6 µs per action, JSON included.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from invariants.scheduler.account import Account
from invariants.violation import Cause, Violation
from kvproof.subjects.pipeline import Reply
from kvproof.subjects.subject import Detail
from model.manager.events import Raised, Response, read
from model.program import AnyProgram, Level, program_to_json
from model.scheduler import events as scheduler
from model.snapshot import snapshot_from_json
from model.trace import Ending, Step, Trace

DIGEST_CHARACTERS = 8
"""Of the digest of an answer at the scheduler level: case files hold them."""

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Beside:
    """What judges beside the engine, where a level is judged there."""

    release: str
    """Name of the dialect whose known defects count as known."""
    shadow: bool
    """Whether the model follows every call of the allocator under that dialect."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What a worker is asked at one level, and how its answer is read."""

    question: Callable[[AnyProgram, Detail, Beside], Message]
    read: Callable[[str, AnyProgram, Detail, Message], Trace]
    """From the subject's name; what it raises is the answer's fault."""


def trace_of(wire: Wire, subject: str, program: AnyProgram, detail: Detail, reply: Reply) -> Trace:
    if reply.outcome != "answered":
        return Trace(subject, program, (), reply.outcome, reply.failure)
    if "error" in reply.message:
        return Trace(subject, program, (), "error", str(reply.message["error"]))
    if "refused" in reply.message:
        return Trace(subject, program, (), "refused", str(reply.message["refused"]))
    try:
        return wire.read(subject, program, detail, reply.message)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        failure = f"the worker's answer cannot be read: {type(error).__name__}: {error}"
        return Trace(subject, program, (), "error", failure)


# The manager level


def _ask_manager(program: AnyProgram, detail: Detail, _: Beside) -> Message:
    return {"program": program_to_json(program), "snapshots": detail}


def _read_manager(subject: str, program: AnyProgram, detail: Detail, message: Message) -> Trace:
    steps = _steps(message, program, detail)
    ending = _ending(steps, program)
    return Trace(subject, program, steps, ending, message["failure"], message["seconds"])


def _steps(message: Message, program: AnyProgram, detail: Detail) -> tuple[Step, ...]:
    responses = _responses(message["responses"], program)
    if detail == "none":
        return tuple([Step(response) for response in responses])
    digests = message["digests"]
    if detail == "digests":
        return tuple([Step(*both) for both in zip(responses, digests, strict=True)])
    states = [snapshot_from_json(state) for state in message["snapshots"]]
    return tuple([Step(*all_) for all_ in zip(responses, digests, states, strict=True)])


def _ending(steps: tuple[Step, ...], program: AnyProgram) -> Ending:
    last = steps[-1].response if steps else ()
    if any(isinstance(event, Raised) for event in last):
        return "raised"
    if len(steps) != len(program.actions):
        raise ValueError(f"{len(steps)} responses to {len(program.actions)} actions")
    return "ended"


def _responses(data: list[Any], program: AnyProgram) -> list[Response]:
    """There are fewer than actions where the allocator raised."""
    if len(data) > len(program.actions):
        raise ValueError(f"{len(data)} responses to {len(program.actions)} actions")
    return [read(*both) for both in zip(data, program.actions, strict=False)]


# The scheduler level


def _ask_scheduler(program: AnyProgram, detail: Detail, beside: Beside) -> Message:
    return {
        "program": program_to_json(program),
        "release": beside.release,
        "responses": detail != "none",
        "shadow": beside.shadow,
    }


def _read_scheduler(subject: str, program: AnyProgram, detail: Detail, message: Message) -> Trace:
    violations = tuple(
        [
            Violation(b["rule"], b["step"], Cause(b["cause"]), tuple(b["evidence"]), b["known"])
            for b in message["violations"]
        ]
    )
    shadow = message.get("shadow") or {"calls": 0, "states": 0, "ended": None}
    account = Account(
        violations,
        message["steps"],
        Counter(message["goals"]),
        shadow["calls"],
        shadow["states"],
        shadow["ended"],
    )
    steps = tuple(
        [Step(scheduler.read(answer), digest_of_answer(answer)) for answer in message["responses"]]
    )
    ending: Ending = "violated" if violations else "ended"
    return Trace(subject, program, steps, ending, message["failure"], message["seconds"], account)


def digest_of_answer(answer: object) -> str:
    """A short fingerprint of an answer, or of several, as JSON has them."""
    text = json.dumps(answer, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


WIRES: dict[Level, Wire] = {
    "manager": Wire(_ask_manager, _read_manager),
    "scheduler": Wire(_ask_scheduler, _read_scheduler),
}
