"""What can happen during one action at the manager level, one small record each.

Requests, transfers and blocks are ids; pages count from 0 in a request's context.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from model.events import PlainEvent, PlainResponse, as_tuples, event_of, plain_event
from model.manager.actions import Action, Admit

Ints = tuple[int, ...]
Rows = tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """The action was not possible now, and nothing happened."""

    word: ClassVar[str] = "idle"


# Requests come and go


@dataclass(frozen=True, slots=True)
class Arrived:
    word: ClassVar[str] = "arrived"
    request: int
    prompt: int
    """Tokens of its prompt."""


@dataclass(frozen=True, slots=True)
class Preempted:
    word: ClassVar[str] = "preempted"
    request: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A request finished or was aborted."""

    word: ClassVar[str] = "ended"
    request: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """The blocks of a request wait for the steps in flight before they are freed."""

    word: ClassVar[str] = "deferred"
    request: int


# Allocations


@dataclass(frozen=True, slots=True)
class Admitted:
    """A waiting request got blocks, and runs."""

    word: ClassVar[str] = "admitted"
    request: int
    tokens: int
    """Tokens to compute in the step being built, those of its hit not counted."""
    promised: Ints
    """Blocks that the predictor answered, at each gate that was passed."""
    taken: int
    """GPU blocks popped for the request, and free blocks of its hit."""
    blocks: Rows
    """New blocks of each group of the cache."""
    hit: int
    """Tokens found in the cache."""


@dataclass(frozen=True, slots=True)
class Extended:
    """A running request got blocks for its next tokens."""

    word: ClassVar[str] = "extended"
    request: int
    tokens: int
    """Tokens to compute in the step being built."""
    promised: Ints
    """Blocks that the predictor answered, at each gate that was passed."""
    taken: int
    """GPU blocks popped for the request."""
    blocks: Rows
    """New blocks of each group of the cache."""


@dataclass(frozen=True, slots=True)
class AdmissionRefused:
    """A waiting request goes on waiting."""

    word: ClassVar[str] = "refused"
    request: int
    tokens: int
    """Tokens that were asked for, those of its hit not counted."""
    promised: Ints
    """Blocks that the predictor answered; the last are too many."""
    hit: int
    """Tokens found in the cache."""


@dataclass(frozen=True, slots=True)
class ExtensionRefused:
    """A running request gets no blocks for its next tokens."""

    word: ClassVar[str] = "refused"
    request: int
    tokens: int
    """Tokens that were asked for."""
    promised: Ints
    """Blocks that the predictor answered; the last are too many."""
    pending: int
    """1 if host writes under way will give blocks back, else 0: then somebody is preempted."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The allocator raised: nothing can happen any more."""

    word: ClassVar[str] = "raised"
    kind: str
    """Name of the exception's class; ``OutOfBlocks`` for the pool's own."""


# Steps


@dataclass(frozen=True, slots=True)
class StepEnded:
    """The step being built is complete, and was handed to the workers."""

    word: ClassVar[str] = "step"
    requests: int
    """Requests scheduled in it."""
    command: Rows
    """(transfer, request, host block, block in each resident group …) of each host write."""
    updates: Rows
    """What the workers are told of where pages are read from, as the release words it."""
    shared: Ints
    """Leading blocks that all running requests share, in each group."""


@dataclass(frozen=True, slots=True)
class OutputProcessed:
    """The output of the oldest step in flight arrived."""

    word: ClassVar[str] = "output"
    tokens: int
    """Requests to which it brings a sampled token."""


@dataclass(frozen=True, slots=True)
class TransfersCompleted:
    """A worker reported host writes as done."""

    word: ClassVar[str] = "completed"
    transfers: Ints


# From outside


@dataclass(frozen=True, slots=True)
class CacheReset:
    word: ClassVar[str] = "reset"
    done: int
    """1 if the allocator did it, 0 if it refused."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The block of a page lost its key."""

    word: ClassVar[str] = "evicted"
    request: int
    page: int


@dataclass(frozen=True, slots=True)
class Held:
    """Blocks were taken away from the GPU pool."""

    word: ClassVar[str] = "held"
    free_blocks: int
    """Blocks left free."""


Allocated = Admitted | Extended
Refused = AdmissionRefused | ExtensionRefused
Event = (
    Idle | Arrived | Preempted | Ended | Deferred | Allocated | Refused | Raised | StepEnded
    | OutputProcessed | TransfersCompleted | CacheReset | Evicted | Held
)  # fmt: skip
Response = tuple[Event, ...]
"""What happened during one action, in order; never nothing."""

IDLE: Response = (Idle(),)

_TOLD_BY_WORD: tuple[type[Event], ...] = (
    Idle, Arrived, Preempted, Ended, Deferred, Admitted, Extended, Raised, StepEnded,
    OutputProcessed, CacheReset, Evicted, Held,
)  # fmt: skip
"""Those whose plain form is read without more ado."""
_KINDS = {kind.word: kind for kind in _TOLD_BY_WORD}


def plain(response: Response) -> PlainResponse:
    """A response as JSON, digests and texts have it: words and numbers."""
    return tuple([_plain(event) for event in response])


def _plain(event: Event) -> PlainEvent:
    if type(event) is TransfersCompleted:
        return (event.word, *event.transfers)
    return plain_event(event)


def read(data: Any, action: Action) -> Response:
    """The response to an action from its plain form, in which JSON made lists of the tuples.

    A refusal is told by what was asked. Raises ``ValueError`` or ``TypeError`` for anything else.
    """
    return tuple([_read(event, action) for event in as_tuples(data)])


def _read(data: PlainEvent, action: Action) -> Event:
    word, *values = data
    if word == AdmissionRefused.word:
        kind = AdmissionRefused if isinstance(action, Admit) else ExtensionRefused
        return kind(*values)
    if word == TransfersCompleted.word:
        return TransfersCompleted(tuple(values))
    return event_of(_KINDS, data)
