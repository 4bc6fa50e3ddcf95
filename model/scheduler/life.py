"""A request as its client and the external store see it."""

from dataclasses import dataclass

from model.contents import Text
from model.scheduler.actions import Arrive


@dataclass(slots=True)
class Life:
    arrive: Arrive
    text: Text
    prompt: int
    """Tokens of its prompt."""
    stored: int
    """Leading tokens of it that the external store has."""
    written: int = 0
    """Tokens up to which its steps have written, since it was last preempted."""
    delivered: int = 0
    """Output tokens that the client got."""
    tried: bool = False
    """Whether the store has tried to load for it: only the first time some is lost."""
