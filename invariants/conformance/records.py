"""The records of a call log: one small frozen dataclass for each kind of call.

Requests, contents and deferred releases are numbers. ``free`` is the number of free blocks of the
GPU pool, and of the host pool if there is one, after the call.
"""

from dataclasses import dataclass

from model.allocator import Rows

Pairs = tuple[tuple[int, int], ...]
Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One KV-cache group, as the engine describes it."""

    kind: str
    role: str | None
    block_size: int
    hot_blocks: int


@dataclass(frozen=True, slots=True)
class Header:
    """What the engine was started with. Lengths in tokens, pools in blocks."""

    kvproof_calls: int
    vllm: str
    num_blocks: int
    num_host_blocks: int
    max_model_len: int
    max_in_flight_tokens: int
    prefix_caching: bool
    watermark_blocks: int
    hash_block_size: int | None
    groups: tuple[Group, ...]
    features: tuple[str, ...]
    """Features in use that change what the allocator does."""


@dataclass(frozen=True, slots=True)
class View:
    """What the allocator sees of a request at a call."""

    request: int
    status: str
    computed: int
    in_flight: int
    length: int
    """Tokens known."""
    contents: Ints = ()
    """Classes of full blocks that earlier calls did not tell."""
    hashes: Ints | None = None
    """Numbers of their block hashes, where they do not agree with the classes."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """``get_computed_blocks``"""

    view: View
    hit: int = 0
    blocks: Rows = ()
    limit: int | None = None
    """Longest hit that was asked for, in tokens, where it is not all but the last token."""
    skipped: bool = False
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Allocate:
    """``allocate_slots``"""

    view: View
    new: int
    hit: int
    hit_blocks: Rows | None
    """None for a running request, which brings no hit."""
    full: bool
    beside: bool
    promised: Ints
    popped: int
    blocks: Rows | None
    """New blocks of each group, None if refused."""
    beyond: tuple[str, ...] = ()
    """Arguments in use that the model does not know, as ``name=value``."""
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Free:
    """``free``"""

    view: View
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Pop:
    """``pop_blocks_for_free``: a deferred release begins."""

    view: View
    release: int
    """Its number, 0 if the request held nothing."""
    gpu: Ints = ()
    host: Ints = ()
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class FreePopped:
    """The blocks of a deferred release are freed."""

    release: int
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Cache:
    """``cache_blocks``"""

    view: View
    tokens: int
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """``advance_scheduled``: (request, tokens computed after the step)."""

    scheduled: Pairs
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Command:
    """``build_offload_command``: (transfer, request, host block, source blocks …)."""

    transfers: Rows
    restored: Ints = ()
    """Transfers from the host to the GPU, or before the step's forward pass."""
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Residency:
    """``take_residency_updates``: (request, pages …, blocks of each resident group …)."""

    requests: Ints
    updates: Rows
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """``take_block_table_updates``: (request, blocks of each group …), by request."""

    updates: Rows
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Report:
    """``update_spills``: (transfer, workers) that took it on, and that completed it."""

    enqueued: Pairs
    completed: Pairs
    published: Ints = ()
    """Requests whose pages were offered for publication, in the engine's order: it is a set's."""
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """``has_pending_reclamation``"""

    pending: bool
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class CommonPrefix:
    """``get_num_common_prefix_blocks``: by group."""

    request: int
    shared: Ints
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Evict:
    """``evict_blocks``"""

    blocks: Ints
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """``reset_prefix_cache``"""

    done: bool
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Step:
    """``new_step_starts``"""

    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The step is built: (request, tokens that it computes), in the engine's order."""

    tokens: Pairs
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Other:
    """A call that changes the allocator and that the model does not know."""

    name: str
    raised: str | None = None
    free: Ints = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """The recorder gave up."""

    reason: str


Call = (
    Lookup
    | Allocate
    | Free
    | Pop
    | FreePopped
    | Cache
    | Advance
    | Command
    | Residency
    | Tables
    | Report
    | Reclaimable
    | CommonPrefix
    | Evict
    | Reset
    | Step
    | Scheduled
    | Other
    | Stopped
)

CALLS: dict[str, type[Call]] = {
    "lookup": Lookup,
    "allocate": Allocate,
    "free": Free,
    "pop": Pop,
    "free_popped": FreePopped,
    "cache": Cache,
    "advance": Advance,
    "command": Command,
    "residency": Residency,
    "tables": Tables,
    "report": Report,
    "reclaimable": Reclaimable,
    "common_prefix": CommonPrefix,
    "evict": Evict,
    "reset": Reset,
    "step": Step,
    "scheduled": Scheduled,
    "other": Other,
    "stopped": Stopped,
}
"""What a record's ``call`` says → its class."""
