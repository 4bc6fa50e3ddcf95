"""What became of a call log, for people and as JSON."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from invariants.conformance.check import CallFinding, Checked
from invariants.rules import sentence_of
from kvproof.reports.styles import STYLES


def checked_json(result: Checked, rules: bool, saved: dict[str, Path]) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "log": str(result.path),
        "dialect": result.dialect,
        "calls": result.calls,
        "steps": result.steps,
        "rules_judged": rules,
        "findings": [_finding_json(finding, saved) for finding in result.findings],
        "known_defects": dict(result.known),
        "not_judged": result.waived,
        "ended": result.ended,
        "torn_line": result.torn,
        "notes": list(result.notes),
    }


def _finding_json(finding: CallFinding, saved: dict[str, Path]) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "line": finding.line,
        "call": finding.call,
        "evidence": list(finding.evidence),
        "cause": finding.cause,
        "log": str(saved[finding.rule]) if finding.rule in saved else None,
    }


def show_checked(console: Console, result: Checked, rules: bool, saved: dict[str, Path]) -> None:
    for finding in result.findings:
        _show_finding(console, result, finding, saved.get(finding.rule))
    for note, style in _notes(result, rules):
        console.print(Text(note, style), soft_wrap=True)
    summary = (
        f"{result.path}: {result.calls} calls in {result.steps} steps followed, "
        f"dialect {result.dialect}: "
    )
    console.print(Text(summary).append(result.verdict, STYLES[result.verdict]), soft_wrap=True)


def _show_finding(
    console: Console, result: Checked, finding: CallFinding, saved: Path | None
) -> None:
    console.print(Text(f"{finding.rule}: {sentence_of(finding.rule)}", "bold red"), soft_wrap=True)
    lines = [f"{result.path}, line {finding.line}: {finding.call}", *finding.evidence]
    if saved is not None:
        lines.append(f"the log up to there: {saved}")
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _notes(result: Checked, rules: bool) -> list[tuple[str, str]]:
    notes = [(note, "yellow") for note in result.notes]
    notes += [(f"not judged: {rule}: {why}", "dim") for rule, why in result.waived.items()]
    notes += [(f"known defect {d}, seen {n} times", "yellow") for d, n in result.known.items()]
    if not rules:
        notes.append(("not judged: all rules, as asked for", "dim"))
    if result.torn is not None:
        notes.append((f"line {result.torn} is the last and was not written to its end", "yellow"))
    if result.ended is not None:
        notes.append((f"ended early: {result.ended}", "yellow"))
    elif not result.calls:
        notes.append(("the log holds no calls", "yellow"))
    return notes
