"""``kvproof gate``: everything that must be green before a change goes in."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kvproof.commands.options import JsonOption, OutOption, SubjectsOption, finish
from kvproof.errors import CouldNotRun
from kvproof.gate.events import GateResult
from kvproof.gate.gate import run_gate
from kvproof.gate.plan import PROFILES, Plan
from kvproof.gate.settings import read_settings
from kvproof.reports.as_json import gate_json
from kvproof.reports.github import annotate
from kvproof.reports.junit import write_junit
from kvproof.reports.progress import showing_stages
from kvproof.reports.streams import write_line
from kvproof.reports.terminal import show_gate
from kvproof.search.findings import check_writable


def gate_command(
    profile: Annotated[str, typer.Option(help="pr or nightly.")] = "pr",
    subject: SubjectsOption = None,
    junit: Annotated[Path | None, typer.Option(help="JUnit file to write.")] = None,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run the table, the canaries, the corpus, lockstep and search; red if anything is."""
    plan = _plan(profile, subject, out)
    check_writable(plan.out, "--out")
    if junit is not None:
        check_writable(junit.parent, "--junit")
    with showing_stages() as observe:
        result = run_gate(plan, observe)
    unwritten = _write_junit(result, junit)
    annotate(result)
    finish(
        "interrupted" if result.interrupted else unwritten or result.verdict,
        json_output,
        lambda: gate_json(result),
        lambda console: show_gate(console, result),
    )


def _plan(profile: str, subjects: list[str] | None, out: Path | None) -> Plan:
    if profile not in PROFILES:
        raise CouldNotRun(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    settings = read_settings(Path.cwd())
    if subjects:
        settings = replace(settings, subjects=tuple(subjects))
    return Plan(settings, PROFILES[profile], out or Path(settings.out))


def _write_junit(result: GateResult, path: Path | None) -> str | None:
    """What the verdict is if the file cannot be written: the result is shown all the same."""
    try:
        if path is not None:
            write_junit(result, path)
    except CouldNotRun as error:
        write_line(str(error))
        return "incomplete" if result.verdict == "clean" else None
    return None
