"""The start-up minimum: the smallest pools with which an engine starts.

The engine refuses to start unless one request of the longest length fits: its indexer pages, the
resident pages that its dialect asks for, a hot region in each group, and the null block.
"""

from model.dialect import Dialect
from model.manager.configuration import Configuration

HOST_SPARE_BLOCKS = 2
"""Host blocks beyond the longest request: the null block and one copy-on-write tail."""


def minimum_blocks(configuration: Configuration, dialect: Dialect) -> int:
    """Least blocks of the GPU pool, the null block included."""
    c = configuration
    if not c.hisparse:
        return c.max_pages + 1
    resident = c.max_pages if dialect.startup_full_length else c.resident_cap
    return c.max_pages + c.num_resident_groups * (resident + c.hot_blocks) + 1


def minimum_host_blocks(configuration: Configuration, dialect: Dialect) -> int:
    """Least blocks of the host pool, its null block included; 0 without HiSparse."""
    if not configuration.hisparse:
        return 0
    if not dialect.startup_checks_host:
        return 2
    return configuration.max_pages + HOST_SPARE_BLOCKS


def below_minimum(configuration: Configuration, dialect: Dialect) -> str | None:
    """Say which pool is too small for the engine to start, or None."""
    least, least_host = (
        minimum_blocks(configuration, dialect),
        minimum_host_blocks(configuration, dialect),
    )
    if configuration.num_blocks < least:
        return f"num_blocks {configuration.num_blocks} is below the start-up minimum {least}"
    if configuration.num_host_blocks < least_host:
        hosts = configuration.num_host_blocks
        return f"num_host_blocks {hosts} is below the start-up minimum {least_host}"
    return None
