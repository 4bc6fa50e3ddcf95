"""The settings of one engine, at the scheduler level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from model.groups import Cache
from model.program import Level
from model.sizes import pages_of, steps_in_flight


class NotStartableError(ValueError):
    """The engine would not start with this setup, for the reason given."""


@dataclass(frozen=True, slots=True)
class SchedulerSetup:
    """The settings of one engine.

    ``num_blocks`` counts the null block; ``sliding_window`` is in tokens; ``hot_blocks`` is the
    hot region of a request in each of the ``num_resident_groups``; ``long_prefill_threshold`` is
    in tokens, 0 for none.  ``external_store`` adds a KV store that other engines fill, beside
    HiSparse or alone.
    """

    level: ClassVar[Level] = "scheduler"

    cache: Cache
    block_size: int
    num_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    sliding_window: int = 0
    num_resident_groups: int = 1
    hot_blocks: int = 1
    num_host_blocks: int = 0
    prefix_caching: bool = True
    async_scheduling: bool = False
    policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_threshold: int = 0
    watermark_blocks: int = 0
    reserve_full_isl: bool = True
    external_store: bool = False
    load_failure: Literal["recompute", "fail"] = "fail"

    @property
    def hisparse(self) -> bool:
        return self.cache == "hisparse"

    @property
    def steps_in_flight(self) -> int:
        return steps_in_flight(self.async_scheduling)

    @property
    def max_in_flight_tokens(self) -> int:
        return self.max_num_batched_tokens * self.steps_in_flight

    @property
    def max_pages(self) -> int:
        """Pages of the longest request."""
        return pages_of(self.max_model_len, self.block_size)

    @property
    def resident_cap(self) -> int:
        """Resident pages that admission reserves at most for one request, in each group."""
        return pages_of(min(self.max_in_flight_tokens, self.max_model_len), self.block_size)


@dataclass(frozen=True, slots=True)
class Minimum:
    """The fewest blocks of each pool with which one request of the longest length fits."""

    gpu_blocks: int
    host_blocks: int
