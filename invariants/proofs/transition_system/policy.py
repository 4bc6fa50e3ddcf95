"""Policies: the three choices of a dialect that the proofs turn on."""

from dataclasses import dataclass
from typing import Literal

from model.dialect import Dialect

AdoptAt = Literal["commit", "own_end", "end_of_step", "anywhere"]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    adopt_at: AdoptAt
    """When copies of a hit are pinned: after its touches and before its pops, after its own pops,
    after all allocations of the step; or at any time, also between another's pops, which no
    dialect does."""
    charge_copies: bool
    """Whether admission charges the free copies of the hit (k) or nothing (0)."""
    tail_first: bool
    """Whether a release unpins tail first."""


EAGER = Policy("eager", "commit", charge_copies=False, tail_first=False)
CHARGED = Policy("charged", "commit", charge_copies=True, tail_first=False)
DEFERRED = Policy("deferred", "own_end", charge_copies=False, tail_first=True)
END_OF_STEP = Policy("end-of-step", "end_of_step", charge_copies=False, tail_first=True)
ANYWHERE = Policy("anywhere", "anywhere", charge_copies=False, tail_first=True)

SOUND = (DEFERRED, CHARGED, END_OF_STEP)
"""#59282 and the release that took it; #57457; later releases."""


def policy_of(dialect: Dialect) -> Policy:
    """What a dialect of the model is in the transition system."""
    moments: dict[str, AdoptAt] = {
        "commit": "commit",
        "allocation": "own_end",
        "end_of_step": "end_of_step",
    }
    return Policy(
        dialect.name,
        moments[dialect.adopt_at],
        dialect.charge_copies,
        dialect.unpin_release_tail_first,
    )
