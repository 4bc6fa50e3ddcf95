"""What can happen to an engine, one small record each.

Indices are taken modulo what is live, and an action that could not be taken now is idle: so
deleting any action from a program leaves a valid program.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrive:
    """A request joins the waiting queue.

    Its first ``shared`` tokens, prompt and output, are those of the ``family``; all others are
    its own.
    """

    family: int = 0
    shared: int = 0
    prompt: int = 1
    """Prompt tokens, at most the longest request less one."""
    output: int = 1
    """Tokens to generate, at least 1."""
    salt: int = 0
    """Cache salt; requests with different salts never share blocks. 0 is none."""
    priority: int = 0
    """Under the policy ``priority``, lower goes first."""
    stored: int = 0
    """Leading tokens that the external store has."""
    asynchronous: bool = False
    """Whether the store loads beside the engine's steps, or within the step that asks."""
    delays: int = 0
    """Look-ups that the store answers with "not known yet" first."""
    lost: int = 0
    """Last pages of what is stored that the store fails to load, the first time it tries."""


@dataclass(frozen=True, slots=True)
class Step:
    """Schedule a step and hand it to the worker; with all steps in flight, wait for one first."""


@dataclass(frozen=True, slots=True)
class Output:
    """Process the output of the oldest step in flight."""


@dataclass(frozen=True, slots=True)
class CompleteTransfers:
    """The worker's oldest ``count`` host transfers are done; the next output says so."""

    count: int = 1


@dataclass(frozen=True, slots=True)
class CompleteLoad:
    """An asynchronous load is done, or failed; the next output says so."""

    load: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """A client gives up."""

    request: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the prefix cache; optionally preempt all running requests first."""

    preempt_running: bool = False


Action = Arrive | Step | Output | CompleteTransfers | CompleteLoad | Abort | Reset

ACTIONS: tuple[type[Action], ...] = (
    Arrive,
    Step,
    Output,
    CompleteTransfers,
    CompleteLoad,
    Abort,
    Reset,
)
