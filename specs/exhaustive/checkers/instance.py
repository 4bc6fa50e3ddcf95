"""An instance of the abstract machine, with its policy as numbers for other checkers."""

from dataclasses import dataclass

from model.dialect import Dialect
from specs.exhaustive.checkers.errors import CheckerError

ADOPTION = ("commit", "allocation", "end_of_step")
"""Adoption points, in the order in which ``machine.pml`` and ``machine.m`` number them."""


@dataclass(frozen=True, slots=True)
class Instance:
    blocks: int
    """Blocks of the pool, the null block included."""
    requests: int
    pages: int
    """Shared pages, which a hit reuses."""
    hot: int
    """Blocks of a hot region."""

    def __str__(self) -> str:
        return f"{self.blocks}/{self.requests}/{self.pages}/{self.hot}"

    def constants(self, dialect: Dialect) -> dict[str, int]:
        """What the texts of the machine leave open."""
        return {
            "N": self.blocks,
            "R": self.requests,
            "P": self.pages,
            "H": self.hot,
            "ADOPT_AT": ADOPTION.index(dialect.adopt_at),
            "CHARGE": int(dialect.charge_copies),
        }


def parse_instance(text: str) -> Instance:
    """Read ``N/R/P/H``. Raises CheckerError if it is not that, or if a checker cannot have it."""
    parts = text.strip().split("/")
    if len(parts) != 4 or not all(part.isdecimal() for part in parts):
        raise CheckerError(f"not an instance N/R/P/H: {text!r}")
    blocks, requests, pages, hot = map(int, parts)
    if blocks < 2 or min(requests, pages, hot) < 1:
        raise CheckerError(f"{text}: at least 2 blocks, 1 request, 1 page and 1 hot block")
    return Instance(blocks, requests, pages, hot)
