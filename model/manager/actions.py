"""What can happen to an engine, one small record each.

Indices are taken modulo what is live, and an action that the engine could not take now is idle:
so deleting any action from a program leaves a valid program.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrive:
    """A request joins the waiting queue.

    Its first ``shared`` tokens are those of the ``family``; all others are its own. Tokens that
    it generates follow the same rule, so two requests with a long ``shared`` stay alike.
    """

    family: int = 0
    shared: int = 0
    prompt: int = 1
    """Prompt tokens, at most the longest request less one."""
    salt: int = 0
    """Cache salt; requests with different salts never share blocks. 0 is none."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Look a waiting request's prefix up and allocate its next ``tokens`` tokens."""

    request: int = 0
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Extend:
    """Allocate the next ``tokens`` tokens of a running request not yet scheduled in this step."""

    request: int = 0
    tokens: int = 1


@dataclass(frozen=True, slots=True)
class Preempt:
    """After an ``Extend`` was refused: take a running request's blocks away.

    Under ``fcfs`` the victim is the youngest; under ``priority`` any, even one that is already
    scheduled in this step.
    """

    request: int = 0


@dataclass(frozen=True, slots=True)
class EndStep:
    """Hand the step to the workers; without asynchronous scheduling also process its output."""


@dataclass(frozen=True, slots=True)
class Output:
    """Process the output of the oldest step in flight."""


@dataclass(frozen=True, slots=True)
class CompleteTransfers:
    """A worker reports its oldest ``count`` host writes as done."""

    worker: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Finish:
    """A request ends, between steps: stopped, or aborted by its client."""

    request: int = 0
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the prefix cache, between steps; optionally preempt all running requests first."""

    preempt_running: bool = False


@dataclass(frozen=True, slots=True)
class EvictBlocks:
    """A connector reports the blocks of a request's page as invalid, between steps."""

    request: int = 0
    page: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """Take blocks from the head of the free queue until ``free_blocks`` are left.

    No engine does this: it stands for other load, and only tables may use it.
    """

    free_blocks: int = 0


Action = (
    Arrive
    | Admit
    | Extend
    | Preempt
    | EndStep
    | Output
    | CompleteTransfers
    | Finish
    | Reset
    | EvictBlocks
    | Hold
)

ACTIONS: tuple[type[Action], ...] = (
    Arrive,
    Admit,
    Extend,
    Preempt,
    EndStep,
    Output,
    CompleteTransfers,
    Finish,
    Reset,
    EvictBlocks,
    Hold,
)
