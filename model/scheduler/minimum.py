"""The start-up minimum: the smallest pools with which an engine starts.

One request of the longest length must fit. The arithmetic is the same in every
release: for each group of the cache what its own specification asks for, and the null block. (The
first release itself checks less for HiSparse; a request needs as much there.)
"""

from model.scheduler.setup import Minimum, SchedulerSetup

STEPS_IN_FLIGHT = {False: 1, True: 2}
"""By ``async_scheduling``."""
MAMBA_BLOCKS = 2
"""Blocks of a request in a Mamba group in "align" mode: the state before a chunk and after it."""
HOST_SPARE_BLOCKS = 2
"""Host blocks beyond the longest request: the null block and one copy-on-write tail."""


def minimum_pools(setup: SchedulerSetup) -> Minimum:
    """Least ``num_blocks`` and ``num_host_blocks``, the null blocks included."""
    pages = pages_of(setup, setup.max_model_len)
    host = pages + HOST_SPARE_BLOCKS if setup.hisparse else 0
    return Minimum(pages + _other_groups(setup) + 1, host)


def _other_groups(setup: SchedulerSetup) -> int:
    """Blocks of a request beside those of the group that keeps every page on the GPU."""
    if setup.cache == "sliding":
        window = setup.sliding_window - 1 + tokens_in_flight(setup)
        return pages_of(setup, min(window, setup.max_model_len)) + 1
    if setup.cache == "mamba":
        return MAMBA_BLOCKS
    if setup.hisparse:
        return setup.num_resident_groups * (resident_cap(setup) + setup.hot_blocks)
    return 0


def resident_cap(setup: SchedulerSetup) -> int:
    """HiSparse: resident pages that admission reserves at most, in each resident group."""
    return pages_of(setup, min(tokens_in_flight(setup), setup.max_model_len))


def tokens_in_flight(setup: SchedulerSetup) -> int:
    """Most tokens of the steps that are in flight at once."""
    return STEPS_IN_FLIGHT[setup.async_scheduling] * setup.max_num_batched_tokens


def pages_of(setup: SchedulerSetup, tokens: int) -> int:
    return -(-tokens // setup.block_size)
