"""What the commands that look for broken rules share."""

import secrets
from pathlib import Path

from kvproof.commands.options import finish
from kvproof.gate.settings import read_settings
from kvproof.reports.as_json import outcome_json
from kvproof.reports.streams import write_line
from kvproof.reports.terminal import show_outcome
from kvproof.search.findings import check_writable, save_findings
from kvproof.search.outcome import Outcome
from specs.casefile import CaseFileError

MANY_PROGRAMS = 2_000
"""Programs of a search in a bare loop, if no budget is given."""


def seed_or_drawn(seed: int | None) -> int:
    return secrets.randbelow(1_000_000) if seed is None else seed


def findings_folder(out: Path | None) -> Path:
    """Where findings go; raises ``CouldNotRun`` when they cannot."""
    folder = out or Path(read_settings(Path.cwd()).out)
    check_writable(folder, "--out")
    return folder


def conclude(outcome: Outcome, folder: Path, as_json: bool, subject: str) -> None:
    """Save and report what a search found; ``subject`` is the name of what replays it."""
    paths: dict[str, Path] = {}
    try:
        paths = save_findings(outcome, folder, subject)
    except CaseFileError as error:  # the disk filled up: what was found is shown all the same
        write_line(str(error))
    finish(
        "interrupted" if outcome.interrupted else outcome.verdict,
        as_json,
        lambda: outcome_json(outcome, paths),
        lambda console: show_outcome(console, outcome, paths),
    )
