"""The shape of one engine: pools, groups, limits and modes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from model.program import Level
from model.sizes import pages_of, steps_in_flight

Policy = Literal["fcfs", "priority"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that is fixed when an engine starts.

    With ``num_host_blocks`` 0 the engine has one full-attention group and no HiSparse. Otherwise
    its groups are: host source, indexer, ``num_resident_groups`` resident groups, and as many
    hot groups (the engine pairs them), in this order.
    """

    level: ClassVar[Level] = "manager"

    block_size: int = 4
    """Tokens in a block (a page has the same size)."""
    num_blocks: int = 16
    """Blocks of the GPU pool, the null block included."""
    num_host_blocks: int = 12
    """Blocks of the host pool, its null block included; 0 means no HiSparse."""
    num_resident_groups: int = 1
    hot_blocks: int = 1
    """Blocks of one request's hot region, in each hot group."""
    max_model_len: int = 24
    """Longest request, prompt and output together, in tokens."""
    max_num_batched_tokens: int = 24
    """Most tokens that one step computes, over all requests."""
    prefix_caching: bool = True
    async_scheduling: bool = False
    """Two steps in flight; the block release of a request in flight is deferred."""
    policy: Policy = "fcfs"
    watermark_blocks: int = 0
    """Blocks kept free when a waiting request is admitted beside running ones."""
    full_sequence_must_fit: bool = True
    """Whether a waiting request must find room for all of its tokens, not only its first chunk."""
    num_workers: int = 1
    """Workers that each report a transfer; it is complete when all have."""

    @property
    def hisparse(self) -> bool:
        return self.num_host_blocks > 0

    @property
    def steps_in_flight(self) -> int:
        return steps_in_flight(self.async_scheduling)

    @property
    def max_in_flight_tokens(self) -> int:
        return self.max_num_batched_tokens * self.steps_in_flight

    @property
    def defers_release(self) -> bool:
        """HiSparse runs behind a KV connector, which makes an asynchronous engine defer frees."""
        return self.async_scheduling and self.hisparse

    @property
    def max_pages(self) -> int:
        """Pages of the longest request."""
        return pages_of(self.max_model_len, self.block_size)

    @property
    def resident_cap(self) -> int:
        """Resident pages that admission reserves at most for one request, in each group."""
        return pages_of(min(self.max_in_flight_tokens, self.max_model_len), self.block_size)


def problem_of(configuration: Configuration) -> str | None:
    """Say what no engine would accept in this configuration, or None.

    The start-up minimum of the pools is a matter of the dialect: see ``model.startup``.
    """
    c = configuration
    positive = ("block_size", "num_blocks", "max_model_len", "max_num_batched_tokens")
    for name in (*positive, "num_workers"):
        if getattr(c, name) < 1:
            return f"{name} must be at least 1, not {getattr(c, name)}"
    for name in ("num_host_blocks", "watermark_blocks"):
        if getattr(c, name) < 0:
            return f"{name} must not be negative, not {getattr(c, name)}"
    if c.max_model_len < 2:
        return f"max_model_len must leave room for a prompt and an output, not {c.max_model_len}"
    if c.policy not in ("fcfs", "priority"):
        return f"policy must be fcfs or priority, not {c.policy!r}"
    if c.hisparse and (c.num_resident_groups < 1 or c.hot_blocks < 1):
        return "HiSparse needs at least one resident group and one hot block"
    return None
