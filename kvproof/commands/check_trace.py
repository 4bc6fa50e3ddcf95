"""``kvproof check-trace``: judge a call log that the recorder wrote in a live vLLM."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from invariants.conformance.check import Checked, check
from invariants.conformance.log import CallLog
from invariants.conformance.reading import CallLogError
from invariants.conformance.records import Header
from kvproof.commands.options import DialectOption, JsonOption, OutOption, finish
from kvproof.errors import CouldNotRun
from kvproof.reports.checked import checked_json, show_checked
from kvproof.search.findings import check_writable
from kvproof.subjects.names import dialect_named
from kvproof.subjects.rows import Compared, compared_as


def compared(header: Header, name: str | None) -> Compared:
    """The dialect that was asked for, or that of the release that wrote a log."""
    if name is not None:
        return Compared(dialect_named(name))
    return compared_as(f"vllm=={header.vllm}", header.vllm)


def check_log(path: Path, dialect: str | None, rules: bool = True) -> Checked:
    """Raises CouldNotRun for what is no log."""
    try:
        under = compared(CallLog(path).header(), dialect)
        return replace(check(path, under.dialect, rules), notes=under.notes)
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
