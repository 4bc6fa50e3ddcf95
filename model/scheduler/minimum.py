"""The start-up minimum: the smallest pools with which an engine starts.

One request of the longest length must fit. The arithmetic is the same in every
release: for each group of the cache what its own specification asks for, and the null block. (The
first release itself checks less for HiSparse; a request needs as much there.)
"""

from model.scheduler.setup import Minimum, SchedulerSetup
from model.sizes import pages_of
from model.startup import longest_on_host, longest_request

MAMBA_BLOCKS = 2
"""Blocks of a request in a Mamba group in "align" mode: the state before a chunk and after it."""


def minimum_pools(setup: SchedulerSetup) -> Minimum:
    """Least ``num_blocks`` and ``num_host_blocks``, the null blocks included."""
    return Minimum(longest_request(setup) + _beside(setup), longest_on_host(setup))


def _beside(setup: SchedulerSetup) -> int:
    """Blocks of a request in a group that the allocator's model does not have."""
    if setup.cache == "sliding":
        window = setup.sliding_window - 1 + setup.max_in_flight_tokens
        return pages_of(min(window, setup.max_model_len), setup.block_size) + 1
    return MAMBA_BLOCKS if setup.cache == "mamba" else 0
