"""A trace: what a subject answered, and its state, after every action of a program."""

from dataclasses import dataclass
from typing import Literal

from model.manager.program import ManagerProgram
from model.manager.session import Response
from model.snapshot import Snapshot

Ending = Literal["ended", "raised", "crashed", "hung", "error"]
"""How a run ended: all actions taken; the allocator raised; the worker process died; it did not
answer in time; it could not run the program at all."""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one action."""

    response: Response
    digest: str
    """Fingerprint of response and snapshot; empty if none was asked for."""
    snapshot: Snapshot | None = None
    """The state after the action, where it was asked for."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A program as one subject ran it. There are fewer steps than actions if it ended early."""

    subject: str
    program: ManagerProgram
    steps: tuple[Step, ...]
    ending: Ending
    failure: str | None = None
    """What the subject raised, or why it could not run, in its own words."""
    seconds: float = 0.0
    """Time that the subject itself took."""
