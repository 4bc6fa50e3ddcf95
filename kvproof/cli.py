"""The command line: registers the commands, runs one, and ends with an exit code.

Exit codes: 0 clean, 1 counterexample, 2 could not run or incomplete.
"""

import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, cast

import typer
from hypothesis.configuration import set_hypothesis_home_dir

from kvproof.commands.bounds import bounds_command
from kvproof.commands.check_trace import check_trace_command
from kvproof.commands.diff import diff_command
from kvproof.commands.explore import explore_command
from kvproof.commands.export import export_command
from kvproof.commands.gate import gate_command
from kvproof.commands.options import EXIT
from kvproof.commands.prove import prove_command
from kvproof.commands.record import record_command
from kvproof.commands.replay import replay_command
from kvproof.commands.search import search_command
from kvproof.commands.soak import soak_command
from kvproof.commands.subjects import add_command, list_command, remove_command
from kvproof.commands.table import table_command
from kvproof.engines.vllm.export.head import ExportError
from kvproof.errors import CouldNotRun
from kvproof.provision.cache import cache_root
from kvproof.reports.streams import replace_what_cannot_be_encoded, write_line, write_out
from kvproof.search.findings import VERSION
from specs.casefile import CaseFileError

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


app.command(name="table")(table_command)
app.command(name="export")(export_command)
app.command(name="prove")(prove_command)
app.command(name="gate")(gate_command)
app.command(name="search")(search_command)
app.command(name="soak")(soak_command)
app.command(name="diff")(diff_command)
app.command(name="replay")(replay_command)
app.command(name="bounds")(bounds_command)
app.command(name="explore")(explore_command)
app.command(name="record")(record_command)
app.command(name="check-trace")(check_trace_command)
subjects_app.command(name="list")(list_command)
subjects_app.command(name="add")(add_command)
subjects_app.command(name="remove")(remove_command)


if __name__ == "__main__":
    main()
