"""The command line: every command opens its subjects, runs, reports, and ends with a verdict.

Exit codes: 0 clean, 1 counterexample, 2 could not run or incomplete.
"""

import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from hypothesis.configuration import set_hypothesis_home_dir
from rich.console import Console
from rich.markup import escape

from kvproof.commands.bounds import bounds_command
from kvproof.commands.check_trace import check_trace_command
from kvproof.commands.explore import explore_command
from kvproof.commands.options import EXIT, JsonOption, LoadOption, OutOption, SubjectsOption, finish
from kvproof.commands.record import record_command
from kvproof.commands.replay import replay_command
from kvproof.commands.search import diff_command, search_command, soak_command
from kvproof.engines.vllm.export.manager import ExportError, export_test
from kvproof.engines.vllm.release import list_provisioned, remove_provisioned
from kvproof.errors import CouldNotRun
from kvproof.gate.gate import PROFILES, Gate, GateResult
from kvproof.gate.settings import read_settings
from kvproof.gate.table import EXPECTED, measure
from kvproof.proving import run_proofs
from kvproof.provision.cache import cache_root
from kvproof.reports.as_json import gate_json, proofs_json, table_json
from kvproof.reports.github import annotate
from kvproof.reports.junit import write_junit
from kvproof.reports.streams import replace_what_cannot_be_encoded, write_line, write_out
from kvproof.reports.terminal import show_gate, show_proofs, show_table
from kvproof.search.findings import VERSION, check_writable
from kvproof.subjects.names import open_subject
from kvproof.subjects.registry import add_subject, registered_subjects, remove_subject
from model.dialect import DIALECTS
from specs.casefile import CaseFileError, read_case

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
subjects_app = typer.Typer(no_args_is_help=True, help="List, add and remove subjects.")
app.add_typer(subjects_app, name="subjects")

INTERRUPTED = 130
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])
"""What all errors in the command line are; typer has it of click, or of its own copy."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: what could not run is one line on standard error, and exit code 2."""
    set_hypothesis_home_dir(cache_root() / "hypothesis")
    replace_what_cannot_be_encoded()
    given = list(sys.argv[1:] if arguments is None else arguments)
    raise SystemExit(run(given))


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    try:
        code = app(arguments, prog_name="kvproof", standalone_mode=False)
    except (CouldNotRun, CaseFileError, ExportError) as error:
        return could_not_run(str(error), arguments)
    except UsageError as error:
        return could_not_run(_usage(error), arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        message = f"this is a defect of kvproof: {type(error).__name__}: {error}; report it"
        return could_not_run(message, arguments)
    if code == INTERRUPTED:
        write_line("interrupted")
    return int(code or 0)


def could_not_run(message: str, arguments: list[str]) -> int:
    write_line(message)
    if "--json" in arguments:
        error = {"verdict": "incomplete", "error": " ".join(message.split())}
        with suppress(CouldNotRun):
            write_out(json.dumps(error) + "\n")
    return EXIT["incomplete"]


def _usage(error: Any) -> str:
    """What is wrong with the command line, in one line; the whole help if it is empty."""
    if error.ctx is None:
        return str(error.format_message())
    command = error.ctx.command_path
    if not str(error.format_message()).strip():
        return f"name a command; see {command} --help"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


def _print_version(wanted: bool) -> None:
    if wanted:
        write_out(f"kvproof {VERSION}\n")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Check the KV-cache block allocator of vLLM against a reference model and its rules."""


@app.command()
def table(
    subject: SubjectsOption = None, json_output: JsonOption = False, load: LoadOption = "focused"
) -> None:
    """Pages adopted by a hit, by free blocks: the table of the proposals."""
    names = subject or [f"reference:{policy}" for policy in EXPECTED]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_subject(name, load=load)) for name in names]
        cells = measure(opened)
    finish("clean", json_output, lambda: table_json(cells), lambda out: show_table(out, cells))


@app.command()
def export(
    trace: Annotated[Path, typer.Argument(help="A trace file.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; standard output if none.")
    ] = None,
) -> None:
    """Write a stand-alone pytest file that reproduces a trace with vLLM's own classes."""
    text = export_test(read_case(trace))
    if out is None:
        write_out(text)
        return
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CouldNotRun(f"cannot write {out}: {error.strerror}; name another file") from error


@app.command(name="prove")
def prove_command(
    only: Annotated[list[str] | None, typer.Option(help="One obligation; may be repeated.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Prove the theorems on admission for every size, each beside a twin that must fail."""
    proofs = run_proofs(only or ())
    finish(
        proofs.verdict,
        json_output,
        lambda: proofs_json(proofs),
        lambda console: show_proofs(console, proofs),
    )


@app.command()
def gate(
    profile: Annotated[str, typer.Option(help="pr or nightly.")] = "pr",
    subject: SubjectsOption = None,
    junit: Annotated[Path | None, typer.Option(help="JUnit file to write.")] = None,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run the table, the canaries, the corpus, lockstep and search; red if anything is."""
    if profile not in PROFILES:
        raise CouldNotRun(f"there is no profile {profile!r}; there are {', '.join(PROFILES)}")
    settings = read_settings(Path.cwd())
    if subject:
        settings = replace(settings, subjects=tuple(subject))
    folder = out or Path(settings.out)
    check_writable(folder, "--out")
    if junit is not None:
        check_writable(junit.parent, "--junit")
    result = _run_gate(Gate(settings, PROFILES[profile], folder))
    unwritten = _write_junit(result, junit)
    annotate(result)
    finish(
        unwritten or result.verdict,
        json_output,
        lambda: gate_json(result),
        lambda console: show_gate(console, result),
    )


def _run_gate(gate: Gate) -> GateResult:
    """Run it, and show what it does where that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return gate.run()
    with console.status("gate") as status:
        return replace(gate, announce=lambda text: status.update(escape(text))).run()


def _write_junit(result: GateResult, path: Path | None) -> str | None:
    """What the verdict is if the file cannot be written: the result is shown all the same."""
    try:
        if path is not None:
            write_junit(result, path)
    except CouldNotRun as error:
        write_line(str(error))
        return "incomplete" if result.verdict == "clean" else None
    return None


app.command(name="search")(search_command)
app.command(name="soak")(soak_command)
app.command(name="diff")(diff_command)
app.command(name="replay")(replay_command)
app.command(name="bounds")(bounds_command)
app.command(name="explore")(explore_command)
app.command(name="record")(record_command)
app.command(name="check-trace")(check_trace_command)


@subjects_app.command(name="list")
def list_subjects(json_output: JsonOption = False) -> None:
    """Built-in dialects, provisioned releases, and subjects that were added."""
    data = {
        "references": [f"reference:{name}" for name in DIALECTS],
        "provisioned": [f"vllm=={release.version}" for release in list_provisioned()],
        "added": registered_subjects(),
    }
    finish("clean", json_output, lambda: data, lambda console: _show_subjects(console, data))


def _show_subjects(console: Console, data: dict[str, Any]) -> None:
    for name in (*data["references"], *data["provisioned"]):
        console.print(name, highlight=False)
    for name, subject in data["added"].items():
        console.print(f"{name} = {subject}", highlight=False, markup=False)


@subjects_app.command(name="add")
def add(
    name: Annotated[str, typer.Argument(help="A name of your own, or vllm==VERSION.")],
    subject: Annotated[str | None, typer.Argument(help="What the name stands for.")] = None,
    load: LoadOption = "focused",
) -> None:
    """Give a subject a name (add mine vllm@src), or provision a release (add vllm==0.33.0)."""
    if subject is not None:
        add_subject(name, subject)
        write_line(f"{name} stands for {registered_subjects()[name]}")
    elif name.startswith("vllm=="):
        open_subject(name, load=load).close()
        write_line(f"{name} is provisioned")
    else:
        raise CouldNotRun(f"what does {name} stand for? kvproof subjects add {name} SUBJECT")


@subjects_app.command(name="remove")
def remove(
    name: Annotated[str, typer.Argument(help="A name that you gave, or vllm==VERSION.")],
) -> None:
    """Forget a subject that was added, or remove a provisioned release (vllm==VERSION)."""
    if name.startswith("vllm=="):
        remove_provisioned(name.removeprefix("vllm=="))
    else:
        remove_subject(name)
    write_line(f"{name} is removed")


if __name__ == "__main__":
    main()
