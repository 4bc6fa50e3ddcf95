"""The start-up minimum: the smallest pools with which an engine starts.

The engine refuses to start unless one request of the longest length fits: its indexer pages, the
resident pages that its dialect asks for, a hot region in each group, and the null block.
"""

from typing import Protocol

from model.dialect import Dialect
from model.manager.configuration import Configuration

HOST_SPARE_BLOCKS = 2
"""Host blocks beyond the longest request: the null block and one copy-on-write tail."""


class Sized(Protocol):
    """What the minimum depends on, of an engine at either level."""

    @property
    def hisparse(self) -> bool: ...
    @property
    def max_pages(self) -> int: ...
    @property
    def resident_cap(self) -> int: ...
    @property
    def num_resident_groups(self) -> int: ...
    @property
    def hot_blocks(self) -> int: ...


def longest_request(engine: Sized, resident_pages: int | None = None) -> int:
    """Blocks of the GPU pool that hold one request of the longest length, and the null block.

    ``resident_pages`` of it are resident, in each group; by default those that admission reserves.
    """
    if not engine.hisparse:
        return engine.max_pages + 1
    resident = engine.resident_cap if resident_pages is None else resident_pages
    return engine.max_pages + engine.num_resident_groups * (resident + engine.hot_blocks) + 1


def longest_on_host(engine: Sized) -> int:
    """Blocks of the host pool that hold it, with what a pool needs beside; 0 without HiSparse."""
    return engine.max_pages + HOST_SPARE_BLOCKS if engine.hisparse else 0


def minimum_blocks(configuration: Configuration, dialect: Dialect) -> int:
    """Least blocks of the GPU pool, the null block included."""
    whole = configuration.max_pages if dialect.startup_full_length else None
    return longest_request(configuration, whole)


def minimum_host_blocks(configuration: Configuration, dialect: Dialect) -> int:
    """Least blocks of the host pool, its null block included; 0 without HiSparse."""
    if not configuration.hisparse:
        return 0
    if not dialect.startup_checks_host:
        return 2
    return longest_on_host(configuration)


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
