"""What the gate is to run: the project's settings, how much of everything, where findings go."""

from dataclasses import dataclass
from pathlib import Path

from kvproof.gate.settings import Settings


@dataclass(frozen=True, slots=True)
class Profile:
    """How much the gate runs."""

    examples: int
    """Programs of the Hypothesis search."""
    programs: int
    """Programs of the bare loop."""
    scheduler_programs: int
    """Programs of whole engine steps."""
    canary_examples: int = 3_000
    """Programs in which a canary must be seen to fail."""
    programs_loaded_twice: int = 0
    """Programs on which focused and full loading must agree: full loading installs 2.3 GB."""


PROFILES = {
    "pr": Profile(examples=1_500, programs=2_000, scheduler_programs=1_000),
    "nightly": Profile(
        examples=10_000, programs=50_000, scheduler_programs=20_000, programs_loaded_twice=1_000
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    settings: Settings
    profile: Profile
    out: Path
    """Folder for the case files of findings."""
