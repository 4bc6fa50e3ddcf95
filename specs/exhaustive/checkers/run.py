"""Running a checker, and what it counted."""

import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specs.exhaustive.checkers.errors import CheckerError

TOOLS = ("spin", "rumur", "gcc")
INSTALL = "scripts/install_model_checkers.sh"


@dataclass(frozen=True, slots=True)
class Count:
    """What a search of all states saw. Transitions are pairs of a state and an action."""

    states: int
    transitions: int
    seconds: float
    """Processor time, without the compiler's."""


@dataclass(frozen=True, slots=True)
class Finished:
    output: str
    status: int
    seconds: float
    """Processor time."""

    def last_words(self) -> str:
        """The end of the output, on one line."""
        return " ".join(self.output.split())[-300:] or f"exit code {self.status}"


def missing() -> str | None:
    """Which tools are not there, and how to get them. None if nothing is missing."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)} (Debian: {INSTALL})" if absent else None


def build(command: Sequence[str], where: Path) -> None:
    """Run a translator or a compiler. Raises CheckerError with its words if it fails."""
    done = finish(command, where)
    if done.status != 0:
        raise CheckerError(f"{command[0]} failed: {done.last_words()}")


def finish(command: Sequence[str], where: Path) -> Finished:
    """Run a command to its end, in a folder."""
    before = _children()
    done = subprocess.run(
        command, cwd=where, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return Finished(done.stdout, done.returncode, _children() - before)


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
