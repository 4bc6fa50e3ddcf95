"""Findings as trace files: what a search leaves behind."""

import os
import re
from importlib.metadata import version
from pathlib import Path

from invariants.violation import Breach
from kvproof.errors import CouldNotRun
from kvproof.search.hunt import Finding, Outcome
from model.program import Program
from specs.casefile import FORMAT, AnyTraceFile, Found, SchedulerTraceFile, TraceFile, write_trace

VERSION = version("kvproof")
MAX_NAME = 80
"""Characters of a subject's name in the name of a file."""


def headline(breach: Breach) -> str:
    """What was seen, in one line."""
    lines = "\n".join(breach.evidence).strip().splitlines()
    return lines[0] if lines else breach.rule


def trace_of(finding: Finding, outcome: Outcome, subject: str) -> AnyTraceFile:
    breach, program = finding.breach, finding.program
    known = f" (known defect {breach.known})" if breach.known else ""
    found = Found(
        rule=breach.rule,
        step=breach.step,
        evidence=breach.evidence,
        subject=subject,
        dialect=outcome.dialect,
        seed=outcome.seed,
        kvproof=VERSION,
    )
    about = f"{breach.rule} broken by {outcome.subject}{known}: {headline(breach)}"
    if isinstance(program, Program):
        return TraceFile(FORMAT, about, program, found, None)
    return SchedulerTraceFile(FORMAT, about, program, found, None, finding.digests)


def save_findings(outcome: Outcome, folder: Path, subject: str | None = None) -> dict[str, Path]:
    """Write a trace file for each finding; return the paths by rule. Raises ``TraceError``.

    ``subject`` is what replays them, if the outcome's own subject is not one but two.
    """
    paths: dict[str, Path] = {}
    for finding in outcome.findings:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", outcome.subject).strip("-")[-MAX_NAME:]
        level = "" if outcome.level == "manager" else f"{outcome.level}-"
        path = folder / f"{finding.breach.rule}-{level}{name}-seed-{outcome.seed}.json"
        write_trace(path, trace_of(finding, outcome, subject or outcome.subject))
        paths[finding.breach.rule] = path
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
