"""Small instances of the engine: so many blocks, requests, shared pages and hot blocks."""

from dataclasses import dataclass, replace

from model.dialect import Dialect
from model.manager.configuration import Configuration
from model.releases import DIALECTS
from model.startup import minimum_host_blocks


@dataclass(frozen=True, slots=True)
class Instance:
    """All requests have one text: ``pages`` pages and a token, and another that they generate."""

    configuration: Configuration
    dialect: Dialect
    requests: int
    """Requests that arrive in all."""
    pages: int
    """Pages that a hit reuses."""

    @property
    def prompt(self) -> int:
        return self.pages * self.configuration.block_size + 1


def instance_of(
    dialect: Dialect,
    blocks: int,
    requests: int,
    pages: int,
    hot: int,
    block_size: int = 2,
    host_blocks: int | None = None,
    batch: int | None = None,
) -> Instance:
    """The instance of these sizes; ``blocks`` counts the null block.

    The longest request is the prompt and one more token. A step computes ``batch`` tokens: by
    default one page less than the prompt needs, so that a cold request takes several steps. By
    default the host pool is the smallest with which every dialect would start.
    """
    configuration = Configuration(
        block_size=block_size,
        num_blocks=blocks,
        num_host_blocks=host_blocks or 1,
        hot_blocks=hot,
        max_model_len=pages * block_size + 2,
        max_num_batched_tokens=batch or pages * block_size,
    )
    if host_blocks is None:
        host_blocks = max(minimum_host_blocks(configuration, d) for d in DIALECTS.values())
    configuration = replace(configuration, num_host_blocks=host_blocks)
    return Instance(configuration, dialect, requests, pages)
