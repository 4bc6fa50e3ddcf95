"""What can happen during one action at the scheduler level, one small record each.

Requests, steps and transfers are numbers; positions and lengths are in tokens.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from model.events import PlainResponse, as_tuples, event_of, plain_event

Share = tuple[int, int, int]
"""(request, position of its first token in the step, tokens)."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The action was not possible now, and nothing happened."""

    word: ClassVar[str] = "idle"


@dataclass(frozen=True, slots=True)
class Arrived:
    word: ClassVar[str] = "arrived"
    request: int
    prompt: int
    """Tokens of its prompt."""
    output: int
    """Tokens to generate."""
    stored: int
    """Leading tokens that the external store has."""


@dataclass(frozen=True, slots=True)
class Ended:
    word: ClassVar[str] = "ended"
    request: int
    why: str
    """``abort``, or the engine's reason to finish."""


@dataclass(frozen=True, slots=True)
class StepScheduled:
    """The engine scheduled a step, and it was handed to the worker."""

    word: ClassVar[str] = "step"
    step: int
    shares: tuple[Share, ...]
    preempted: tuple[int, ...]
    """Requests that were preempted for it."""


@dataclass(frozen=True, slots=True)
class OutputProcessed:
    """The engine was told of the output of a step."""

    word: ClassVar[str] = "output"
    step: int


@dataclass(frozen=True, slots=True)
class TransfersCompleted:
    """The worker completed host transfers; the next output says so."""

    word: ClassVar[str] = "transferred"
    transfers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadEnded:
    """The store ended a load beside the steps; the next output says so."""

    word: ClassVar[str] = "loaded"
    request: int
    lost: int | None
    """Position of the first token that was not loaded, None if all were."""


@dataclass(frozen=True, slots=True)
class CacheReset:
    word: ClassVar[str] = "reset"
    running: bool
    """Whether all that ran was to be preempted first."""
    done: bool


Event = (
    Idle | Arrived | Ended | StepScheduled | OutputProcessed | TransfersCompleted | LoadEnded
    | CacheReset
)  # fmt: skip
Response = tuple[Event, ...]
"""What happened during one action, in order; never nothing."""

IDLE: Response = (Idle(),)

_ALL: tuple[type[Event], ...] = (
    Idle, Arrived, Ended, StepScheduled, OutputProcessed, TransfersCompleted, LoadEnded, CacheReset,
)  # fmt: skip
_KINDS = {kind.word: kind for kind in _ALL}


def plain(response: Response) -> PlainResponse:
    """A response as JSON and digests have it: words and numbers."""
    return tuple([plain_event(event) for event in response])


def read(data: Any) -> Response:
    """A response from its plain form, in which JSON made lists of the tuples.

    Raises ``ValueError`` or ``TypeError`` for anything else.
    """
    return tuple([event_of(_KINDS, event) for event in as_tuples(data)])
