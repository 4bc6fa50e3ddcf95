"""The worker at the level of the scheduler: whole engine steps, in the engine's interpreter.

    → {"program": …, "release": DIALECT, "responses": false, "shadow": true}
    ← {"violations": […], "steps": …, "goals": {…}, "responses": […], "failure": …, "seconds": …,
       "shadow": null | {"calls": …, "states": …, "ended": null | "…"}}
    ← {"refused": "…"}      the engine would not start with the program's setup

    → {"efforts": true}
    ← {"efforts": […]}      function calls of a step, after a short context and after a long one

After the last action everything pending is completed, and all requests must end; what is done for
that is answered too, behind the actions. A run ends at its first violation: what comes after it
would only follow from it.
"""

import re
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from invariants.conformance.shadow import Shadow
from invariants.known import labelled
from invariants.scheduler.effort import efforts
from invariants.scheduler.goals import GoalWatcher
from invariants.scheduler.judge import Judge
from invariants.scheduler.progress import drain
from invariants.violation import Cause
from kvproof.engines.vllm.inside.raised import is_out_of_blocks
from model.events import PlainResponse
from model.releases import DIALECTS
from model.scheduler.actions import Action
from model.scheduler.engine import Engine
from model.scheduler.events import plain
from model.scheduler.happenings import ActionTaken, Happening
from model.scheduler.program import SCHEDULER
from model.scheduler.setup import NotStartableError, SchedulerSetup

NewEngine = Callable[[SchedulerSetup], Engine]
NewShadow = Callable[[Any, str], Shadow | None]
"""From an engine that did nothing yet and the name of a dialect."""

NUMBER = re.compile(r"=\d+")
OWN_SOURCES = Path(__file__).resolve().parents[4]
REFUSALS = (ValueError, NotImplementedError, AssertionError)
"""What an engine raises when it does not want to start with a setup."""


@dataclass(frozen=True, slots=True)
class SchedulerRunner:
    """Answers messages. ``source`` is where the engine's own modules lie.

    ``could_not_run`` is what is raised when the way of loading does not reach.
    """

    new_engine: NewEngine
    source: Path
    could_not_run: tuple[type[Exception], ...] = ()
    new_shadow: NewShadow = lambda _engine, _dialect: None

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run one program. What the engine raises is part of the answer; the rest propagates."""
        if "efforts" in message:
            return {
                "efforts": [asdict(effort) for effort in efforts(self.new_engine, self._is_engine)]
            }
        program = SCHEDULER.read(message["program"])
        started = time.perf_counter()
        try:
            engine = self.new_engine(program.configuration)
        except NotStartableError as error:
            return {"refused": str(error)}
        except REFUSALS as error:
            if self._raised_at(error) is None:
                raise
            return {"refused": f"{type(error).__name__}: {error}"}
        judge = Judge(program.configuration, engine)
        watcher = GoalWatcher(judge)
        responses: list[PlainResponse] = []
        if message["responses"]:
            judge.session.observers.append(partial(_note, responses))
        asked = message.get("shadow", False)
        shadow = self.new_shadow(engine, message["release"]) if asked else None
        if shadow is not None:
            judge.session.observers.append(partial(_compare, judge, shadow))
        failure = self._play(judge, program.actions)
        violations = labelled(judge, DIALECTS[message["release"]])
        return {
            "violations": [
                asdict(violation) | {"step": min(violation.step, len(program.actions))}
                for violation in violations
            ],
            "steps": judge.session.steps,
            "goals": dict(watcher.seen),
            "responses": responses,
            "failure": failure,
            "seconds": time.perf_counter() - started,
            "shadow": _followed(shadow) if asked else None,
        }

    def _play(self, judge: Judge, actions: tuple[Action, ...]) -> str | None:
        """Play to the end or to the first violation; what the engine raises is one."""
        try:
            for action in actions:
                judge.do(action)
                if judge.violations:
                    return None
            drain(judge)
        except self.could_not_run:
            raise
        except Exception as error:
            place = self._raised_at(error)
            if place is None:
                raise
            text = " ".join(f"{type(error).__name__}: {error}".split())
            out_of_blocks = is_out_of_blocks(error)
            rule, cause = ("I4", Cause.OUT_OF_BLOCKS) if out_of_blocks else ("I19", Cause.RAISED)
            judge.report(rule, cause, text, f"raised {place}")
            return traceback.format_exc()
        return None

    def _raised_at(self, error: Exception) -> str | None:
        """Where the engine raised it, or None: what our own code raises is no violation."""
        frame, line = None, 0
        for each, number in traceback.walk_tb(error.__traceback__):
            if self._is_engine(each) or OWN_SOURCES in Path(each.f_code.co_filename).parents:
                frame, line = each, number
        if frame is None or not self._is_engine(frame):
            return None
        file = Path(frame.f_code.co_filename).relative_to(self.source)
        return f"in {frame.f_code.co_name}, {file.as_posix()}:{line}"

    def _is_engine(self, frame: FrameType) -> bool:
        return self.source / "vllm" in Path(frame.f_code.co_filename).parents


def _note(responses: list[PlainResponse], happening: Happening) -> None:
    if isinstance(happening, ActionTaken):
        responses.append(plain(happening.response))


def _compare(judge: Judge, shadow: Shadow, happening: Happening) -> None:
    """A difference between the engine and the model beside it is a violation of lockstep."""
    if isinstance(happening, ActionTaken) and shadow.difference is not None:
        judge.report("lockstep", Cause.DIFFERS, *shadow.difference)


def _followed(shadow: Shadow | None) -> dict[str, Any]:
    """How far the model came; the reason why no farther is named without its numbers."""
    if shadow is None:
        return {"calls": 0, "states": 0, "ended": "the model has no such cache"}
    ended = shadow.ended_because
    kind = None if ended is None else NUMBER.sub("", ended).split(",")[0]
    return {"calls": shadow.calls, "states": shadow.states, "ended": kind}
