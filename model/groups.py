"""The groups of a cache, in the order in which an engine has them."""

from typing import Literal

Cache = Literal["full", "sliding", "mamba", "hisparse"]
"""The groups of the cache: one of full attention; full and sliding window; full and Mamba in
"align" mode; HiSparse (host source, indexer, resident and hot groups)."""
Kind = Literal["full", "sliding", "state", "host", "indexer", "resident", "hot"]
"""What a group holds: every page; those of a window; one running state; every page on the host, and
its index on the GPU; pages that are on the GPU for a time; a region that the host is read to."""


def kinds_of(cache: Cache, resident_groups: int = 1) -> tuple[Kind, ...]:
    """HiSparse has as many hot groups as resident ones: the engine pairs them."""
    if cache == "hisparse":
        residents: list[Kind] = ["resident"] * resident_groups
        hot: list[Kind] = ["hot"] * resident_groups
        return ("host", "indexer", *residents, *hot)
    if cache == "sliding":
        return ("full", "sliding")
    return ("full", "state") if cache == "mamba" else ("full",)


def positions(kinds: tuple[Kind, ...], kind: Kind) -> tuple[int, ...]:
    """Which rows of a block table are of a kind."""
    return tuple([row for row, each in enumerate(kinds) if each == kind])
