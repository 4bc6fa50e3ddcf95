"""A request: its tokens, the contents of its blocks, and how far it is computed."""

from dataclasses import dataclass, field
from enum import IntEnum


class Status(IntEnum):
    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    STOPPED = 3
    ABORTED = 4


@dataclass(slots=True)
class Request:
    """One request over its whole life, as the scheduler keeps it."""

    id: int
    family: int
    shared: int
    salt: int
    tokens: list[int]
    """Prompt and generated tokens."""
    status: Status = Status.WAITING
    computed: int = 0
    """Tokens computed, those of steps in flight included."""
    in_flight: int = 0
    """Tokens of steps in flight."""
    placeholders: int = 0
    """Tokens that steps in flight will sample (asynchronous scheduling)."""
    life: int = 0
    """How often the request was preempted: outputs of an earlier life are stale."""
    last_step: int = 0
    """Sequence number of the last step that scheduled the request."""
    contents: list[int] = field(default_factory=list)
    """Content id of each full block: equal ids mean equal prefixes and equal salts."""

    @property
    def finished(self) -> bool:
        return self.status >= Status.STOPPED

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


OWN_TOKENS = 1_000_000


def token_at(request_id: int, family: int, shared: int, position: int) -> int:
    """The token of a request at a position: its family's, or beyond ``shared`` its own."""
    if position < shared:
        return 1 + family * 1_000 + position
    return OWN_TOKENS * (request_id + 1) + position
