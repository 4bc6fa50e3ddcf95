"""A trace: what a subject answered, and its state, after every action of a program."""

from dataclasses import dataclass, field
from typing import Any, Literal

from model.program import AnyProgram
from model.snapshot import Snapshot

Ending = Literal["ended", "raised", "violated", "refused", "crashed", "hung", "error"]
"""How a run ended: all actions were taken; the allocator raised; a rule was broken, where it is
judged beside the engine; the engine would not start with the configuration; the worker process
died; it did not answer in time; it could not run the program at all."""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one action, or of what was done after the last one."""

    response: tuple[Any, ...]
    """The events of the level."""
    digest: str = ""
    """Fingerprint of response and snapshot; empty if none was asked for."""
    snapshot: Snapshot | None = None
    """The state after the action, where it was asked for."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A program as one subject ran it. There are fewer steps than actions if it ended early."""

    subject: str
    program: AnyProgram
    steps: tuple[Step, ...]
    ending: Ending
    failure: str | None = None
    """What the subject raised, or why it could not run, in its own words."""
    seconds: float = field(default=0.0, compare=False)
    """Time that the subject itself took: two traces are equal whatever it was."""
    account: object = None
    """What was judged and counted beside the engine, if anything was: see
    ``invariants.scheduler.account``."""
