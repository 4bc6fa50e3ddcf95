"""What a checker of the scheduler level yields."""

from invariants.violation import Cause

Found = tuple[str, Cause, *tuple[str, ...]]
"""(id of the rule, in what way it is broken, what was seen: a line each)."""
