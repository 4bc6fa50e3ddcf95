"""Findings as trace files: what a search leaves behind."""

import os
import re
from importlib.metadata import version
from pathlib import Path

from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.search.outcome import Finding, Outcome
from specs.casefile import FORMAT, CaseFile, Found, write_case

VERSION = version("kvproof")
MAX_NAME = 80
"""Characters of a subject's name in the name of a file."""


def headline(violation: Violation) -> str:
    """What was seen, in one line."""
    lines = "\n".join(violation.evidence).strip().splitlines()
    return lines[0] if lines else violation.rule


def trace_of(finding: Finding, outcome: Outcome, subject: str) -> CaseFile:
    violation, program = finding.violation, finding.program
    known = f" (known defect {violation.known})" if violation.known else ""
    found = Found(
        rule=violation.rule,
        step=violation.step,
        evidence=violation.evidence,
        subject=subject,
        dialect=outcome.dialect,
        seed=outcome.seed,
        kvproof=VERSION,
        cause=violation.cause,
    )
    about = f"{violation.rule} broken by {outcome.subject}{known}: {headline(violation)}"
    return CaseFile(FORMAT, about, program, found, None, finding.digests)


def save_findings(outcome: Outcome, folder: Path, subject: str | None = None) -> dict[str, Path]:
    """Write a trace file for each finding; return the paths by rule. Raises ``CaseFileError``.

    ``subject`` is what replays them, if the outcome's own subject is not one but two.
    """
    paths: dict[str, Path] = {}
    for finding in outcome.findings:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", outcome.subject).strip("-")[-MAX_NAME:]
        level = "" if outcome.level == "manager" else f"{outcome.level}-"
        path = folder / f"{finding.violation.rule}-{level}{name}-seed-{outcome.seed}.json"
        write_case(path, trace_of(finding, outcome, subject or outcome.subject))
        paths[finding.violation.rule] = path
    return paths


def check_writable(folder: Path, what: str) -> None:
    """Find out before hours of search that the result has nowhere to go; makes nothing.

    Raises ``CouldNotRun``.
    """
    existing = next(f for f in (folder.absolute(), *folder.absolute().parents) if f.exists())
    if not existing.is_dir():
        raise CouldNotRun(f"{what}: {existing} is not a folder; name another place")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CouldNotRun(f"{what}: {existing} is not writable; name another place")
