"""What judging a trace comes to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a trace broke."""

    rule: str
    """Id of the rule, or ``lockstep``, ``crash`` or ``hang``."""
    step: int
    """Index of the action after which it showed, from 0."""
    evidence: tuple[str, ...]
    """What was seen, a line each."""
    known: str | None = None
    """Id of the known defect that this is, if it is one."""
