"""Findings as trace files: what a search leaves behind."""

import re
from importlib.metadata import version
from pathlib import Path

from kvproof.search import Finding, Outcome
from specs.traces import FORMAT, Found, TraceFile, write_trace

VERSION = version("kvproof")


def trace_of(finding: Finding, outcome: Outcome) -> TraceFile:
    breach = finding.breach
    known = f" (known defect {breach.known})" if breach.known else ""
    found = Found(
        rule=breach.rule,
        step=breach.step,
        evidence=breach.evidence,
        subject=outcome.subject,
        dialect=outcome.dialect,
        seed=outcome.seed,
        kvproof=VERSION,
    )
    about = f"{breach.rule} broken by {outcome.subject}{known}: {breach.evidence[0]}"
    return TraceFile(FORMAT, about, finding.program, found, None)


def save_findings(outcome: Outcome, folder: Path) -> dict[str, Path]:
    """Write a trace file for each finding; return the paths by rule."""
    paths: dict[str, Path] = {}
    for finding in outcome.findings:
        subject = re.sub(r"[^A-Za-z0-9.]+", "-", outcome.subject).strip("-")
        path = folder / f"{finding.breach.rule}-{subject}-seed-{outcome.seed}.json"
        write_trace(path, trace_of(finding, outcome))
        paths[finding.breach.rule] = path
    return paths
