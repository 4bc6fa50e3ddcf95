"""``kvproof check-trace``: judge a call log that the recorder wrote in a live vLLM."""

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from invariants.conformance.check import CallFinding, Checked, check
from invariants.conformance.log import CallLog
from invariants.conformance.reading import CallLogError
from invariants.conformance.records import Header
from invariants.rules import sentence_of
from kvproof.commands.options import DialectOption, JsonOption, OutOption, finish
from kvproof.errors import CouldNotRun
from kvproof.reports.terminal import STYLES
from kvproof.search.findings import check_writable
from kvproof.subjects.names import RELEASE_PREFIX, dialect_named
from model.dialect import Dialect
from model.releases import DIALECTS


def dialect_of(header: Header, name: str | None) -> Dialect:
    """The dialect of the release that wrote a log, or the one that was asked for."""
    if name is not None:
        return dialect_named(name)
    release = RELEASE_PREFIX + header.vllm.split("+")[0]
    if release not in DIALECTS:
        raise CouldNotRun(
            f"the log is of vLLM {header.vllm}, whose dialect is not known: choose one with "
            f"--dialect ({', '.join(DIALECTS)})"
        )
    return DIALECTS[release]


def check_log(path: Path, dialect: str | None, rules: bool = True) -> Checked:
    """Raises CouldNotRun for what is no log."""
    try:
        return check(path, dialect_of(CallLog(path).header(), dialect), rules)
    except CallLogError as error:
        raise CouldNotRun(str(error)) from error


def save_prefixes(result: Checked, folder: Path) -> dict[str, Path]:
    """For each finding, the log up to its line; by rule. Raises CouldNotRun."""
    written: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for finding in result.findings:
            target = folder / f"{finding.rule}-{result.path.stem}-line-{finding.line}.ndjson"
            with result.path.open("rb") as log, target.open("wb") as prefix:
                prefix.writelines(islice(log, finding.line))
            written[finding.rule] = target
    except OSError as error:
        raise CouldNotRun(f"cannot write to {folder}: {error.strerror}") from error
    return written


def check_trace_command(
    file: Annotated[Path, typer.Argument(help="A log of the recorder, see kvproof record.")],
    dialect: DialectOption = None,
    rules: Annotated[
        bool, typer.Option("--rules/--no-rules", help="Judge the rules, or conformance alone.")
    ] = True,
    json_output: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Judge the recorded calls of a live vLLM: conformance to the model, and the rules."""
    if out is not None:
        check_writable(out, "--out")
    result = check_log(file, dialect, rules)
    saved = save_prefixes(result, out) if out is not None and result.findings else {}
    finish(
        result.verdict,
        json_output,
        lambda: checked_json(result, rules, saved),
        lambda console: show_checked(console, result, rules, saved),
    )


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
    }


def _finding_json(finding: CallFinding, saved: dict[str, Path]) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "line": finding.line,
        "call": finding.call,
        "evidence": list(finding.evidence),
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
    notes = [(f"not judged: {rule}: {why}", "dim") for rule, why in result.waived.items()]
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
