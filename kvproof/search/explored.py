"""What an exhaustive search came to."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvproof.search.outcome import Verdict

Mode = Literal["model", "abstract"]
"""Searched is the model itself, or the abstract machine of ``specs/README.md``."""


@dataclass(frozen=True, slots=True)
class ShortestWay:
    rule: str
    evidence: tuple[str, ...]
    actions: tuple[dict[str, Any], ...]
    trace: Path | None = None
    """Trace file of the actions, where an engine can take them."""


@dataclass(frozen=True, slots=True)
class Explored:
    mode: Mode
    dialect: str
    instance: str
    """Blocks, requests, shared pages and hot blocks."""
    complete: bool
    states: int
    transitions: int
    depth: int
    seconds: float
    stopped: str | None
    """Why not every state was seen, or what makes the search worthless; None if nothing does."""
    violation: ShortestWay | None
    taken: Counter[str]
    below_minimum: str | None = None
    known: Counter[str] = field(default_factory=Counter)
    waived: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        if self.violation is not None:
            return "counterexample"
        return "clean" if self.complete else "incomplete"
