"""What goes to a real scheduler and what comes back, as plain data.

Requests are numbers, tokens are numbers, blocks are ids.  Sizes are in blocks, tokens or pages
as named.  Standard library only, since both the driver and the engine's interpreter read this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

# Into the scheduler


@dataclass(frozen=True, slots=True)
class External:
    """What the external store holds of a request: its first ``tokens`` tokens.

    ``delays`` look-ups are answered "not known yet" first.
    """

    tokens: int = 0
    asynchronous: bool = False
    delays: int = 0


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request as a client sends it; ``external`` is what the store holds of it."""

    id: int
    tokens: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    arrival: float = 0.0
    salt: int = 0
    external: External = External()


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What the workers report about one step.

    ``sampled``: tokens by request; a request without an entry sampled none.  ``enqueued`` and
    ``completed``: workers by HiSparse transfer, of this step or of earlier ones.
    ``received``: asynchronous loads that ended, failed ones too; ``failed`` names those whose
    contents are not to be used.  ``invalid_blocks``: blocks that a load did not fill.
    """

    sampled: Mapping[int, Sequence[int]] = field(default_factory=dict)
    enqueued: Mapping[int, int] = field(default_factory=dict)
    completed: Mapping[int, int] = field(default_factory=dict)
    host_copies_done: Sequence[int] = ()
    received: Collection[int] = ()
    failed: Collection[int] = ()
    invalid_blocks: Collection[int] = ()


# Out of the scheduler

Table = tuple[tuple[int, ...], ...]
"""Block ids, one row per group of the cache."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """One request's share of a step: ``tokens`` tokens from position ``computed`` on.

    ``blocks``: for a "new" or "resumed" request the whole table, for a "running" one what is
    appended to each row (None: nothing).  ``samples``: the step reaches the last known token, so
    the workers return one token.
    """

    request: int
    tokens: int
    computed: int
    kind: Literal["new", "resumed", "running"]
    blocks: Table | None
    samples: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """A page between its host block and its block in each resident group.

    To the host after the forward pass, unless ``restore``: then from the host, before it.
    """

    id: int
    request: int
    page: int
    host_block: int
    blocks: tuple[int, ...]
    after_forward: bool
    restore: bool


@dataclass(frozen=True, slots=True)
class Mirror:
    """``rows`` rows that the step writes: to each resident group at ``sources``, and to the host
    at ``destination``; all counted in tokens (block id times block size plus offset)."""

    request: int
    sources: tuple[int, ...]
    destination: int
    rows: int


@dataclass(frozen=True, slots=True)
class Residency:
    """New contents of block table rows, which the workers note before the step.

    With ``pages``, ``rows`` has one row per resident group, for these pages only;
    without, ``rows`` is the request's whole table, one row per group of the cache.
    """

    request: int
    pages: tuple[int, ...] | None
    rows: Table


@dataclass(frozen=True, slots=True)
class Load:
    """The store is to write tokens ``[start, start + tokens)`` into the request's ``blocks``."""

    request: int
    start: int
    tokens: int
    blocks: Table
    asynchronous: bool

    @property
    def end(self) -> int:
        return self.start + self.tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step as the workers see it, in the order in which they act on it."""

    step: int
    scheduled: tuple[Scheduled, ...]
    preempted: tuple[int, ...]
    finished: tuple[int, ...]
    zeroed: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    loads: tuple[Load, ...]
    transfers: tuple[Transfer, ...] = ()
    host_copies: tuple[tuple[int, int], ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    residency: tuple[Residency, ...] = ()
    all_resident: bool = False

    @property
    def tokens(self) -> int:
        return sum(share.tokens for share in self.scheduled)


@dataclass(frozen=True, slots=True)
class Output:
    """What the engine tells a client: new tokens, and why its request finished, if it did."""

    request: int
    tokens: tuple[int, ...]
    finish: str | None


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that the scheduler still knows.

    ``status`` is the engine's name for it, in lower case.  ``computed`` counts tokens of steps in
    flight (``in_flight``) too; ``placeholders`` are outputs that are expected and not known.
    """

    id: int
    status: str
    tokens: int
    prompt_tokens: int
    computed: int
    in_flight: int
    placeholders: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class Pending:
    """What the engine waits for: reports of the workers, or the end of steps in flight.

    ``steps``: in flight; ``transfers``: HiSparse page transfers; ``host_copies``: their
    destinations; ``loads``: requests with a started asynchronous load that was not reported;
    ``deferred_loads``: those that wait for steps in flight before they start; ``deferred_blocks``:
    blocks that are freed when the steps in flight have ended.
    """

    steps: tuple[int, ...]
    transfers: tuple[int, ...]
    host_copies: tuple[int, ...]
    loads: tuple[int, ...]
    deferred_loads: tuple[int, ...]
    deferred_blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool, read from the engine."""

    name: str
    counts: tuple[int, ...]
    """Reference count of each block."""
    free: tuple[int, ...]
    """The free queue, head first."""
    num_free: int
    """The engine's own counter of it."""
    holders: Mapping[int, tuple[str, ...]]
    """Block → all that holds it, recomputed from rows, transfers and deferred releases."""
    keyed: Mapping[int, object]
    """Block → its own hash."""
    found: Mapping[int, object]
    """Block → the hash under which a lookup finds it."""
    null: int = 0
    """Id of the null block."""
    copies: frozenset[int] = frozenset()
    """Blocks recorded as copies of host pages, which a hit may adopt."""
