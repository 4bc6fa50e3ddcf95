"""The command line: runs one command, imported when it is called, and ends with an exit code.

Exit codes: 0 clean, 1 counterexample, 2 could not run or incomplete.
"""

import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Annotated, Any, cast

import typer

from kvproof.errors import CouldNotRun
from kvproof.reports.streams import replace_what_cannot_be_encoded, write_line, write_out

COMMANDS = {
    "table": "Pages adopted by a hit, by free blocks: the table of the proposals.",
    "export": "Write a stand-alone pytest file that reproduces a trace with vLLM's own classes.",
    "prove": "Prove the theorems on admission for every size, each beside a twin that must fail.",
    "gate": "Run the table, the canaries, the corpus, lockstep and search; red if anything is.",
    "search": "Search for programs that break a rule, and minimise them.",
    "soak": "Run many drawn programs in a bare loop: volume.",
    "diff": "Run two subjects in lockstep with each other.",
    "replay": "Replay traces: FIXED, FAILED or ERROR for each subject, those that it names by "
    "default.",
    "bounds": "Exact numbers of a deployment, each with its theorem, and whether its pool "
    "suffices.",
    "explore": "Search all states of a small instance, breadth-first: complete, or a shortest "
    "violation.",
    "record": "Write the module that records the allocator's calls of a live vLLM.",
    "check-trace": "Judge the recorded calls of a live vLLM: conformance to the model, and the "
    "rules.",
}
"""By name, with its sentence: ``NAME_command`` in the file of its name in ``kvproof/commands/``."""
SUBJECTS = {
    "list": "Built-in dialects, provisioned releases, and subjects that were added.",
    "add": "Give a subject a name (add mine vllm@src), or provision a release (add vllm==VERSION).",
    "remove": "Forget a subject that was added, or remove a provisioned release (vllm==VERSION).",
}
"""``kvproof subjects NAME``, all of them in ``kvproof/commands/subjects.py``."""

INCOMPLETE, INTERRUPTED = 2, 130
UsageError = cast(type[Exception], typer.BadParameter.__bases__[0])
"""What all errors in the command line are; typer has it of click, or of its own copy."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: what could not run is one line on standard error, and exit code 2."""
    replace_what_cannot_be_encoded()
    given = list(sys.argv[1:] if arguments is None else arguments)
    raise SystemExit(run(given))


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code."""
    try:
        app = app_for(arguments)
        _keep_out_of_the_folder()
        code = app(arguments, prog_name="kvproof", standalone_mode=False)
    except UsageError as error:
        return could_not_run(_usage(error), arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if _tells_what_to_do(error):
            return could_not_run(str(error), arguments)
        traceback.print_exc()
        message = f"this is a defect of kvproof: {type(error).__name__}: {error}; report it"
        return could_not_run(message, arguments)
    if code == INTERRUPTED:
        write_line("interrupted")
    return int(code or 0)


def _print_version(wanted: bool) -> None:
    if wanted:
        write_out(f"kvproof {version_of('kvproof')}\n")
        raise typer.Exit()


def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Check the KV-cache block allocator of vLLM against a reference model and its rules."""


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line, in which the command that is called is whole, and all others are names.

    Each imports much that is of no use to the others: provers, generators, clients of indexes.
    """
    called = next((word for word in arguments if not word.startswith("-")), None)
    app = _group(callback=options)
    for name, sentence in COMMANDS.items():
        _add(app, name, sentence, name.replace("-", "_") if called == name else None)
    subjects = _group(help="List, add and remove subjects.")
    for name, sentence in SUBJECTS.items():
        _add(subjects, name, sentence, "subjects" if called == "subjects" else None)
    app.add_typer(subjects, name="subjects")
    return app


def _group(**options: Any) -> typer.Typer:
    return typer.Typer(
        no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, **options
    )


def _add(group: typer.Typer, name: str, sentence: str, file: str | None) -> None:
    """Without a file it is only named."""
    command = _only_named
    if file is not None:
        module = import_module(f"kvproof.commands.{file}")
        command = getattr(module, f"{name.replace('-', '_')}_command")
    group.command(name=name, help=sentence)(command)


def _only_named() -> None:
    """Stands for a command that is not called."""


def _keep_out_of_the_folder() -> None:
    """Hypothesis, where a command imports it, keeps what it has to keep in the cache."""
    if "hypothesis" in sys.modules:
        home, cache = map(import_module, ("hypothesis.configuration", "kvproof.provision.cache"))
        home.set_hypothesis_home_dir(cache.cache_root() / "hypothesis")


def _tells_what_to_do(error: Exception) -> bool:
    """Whether the error is one line for the user, of this layer or of the one below."""
    below = import_module("specs.casefile")
    return isinstance(error, CouldNotRun | below.CaseFileError)


def could_not_run(message: str, arguments: list[str]) -> int:
    write_line(message)
    if "--json" in arguments:
        error = {"verdict": "incomplete", "error": " ".join(message.split())}
        with suppress(CouldNotRun):
            write_out(json.dumps(error) + "\n")
    return INCOMPLETE


def _usage(error: Any) -> str:
    """What is wrong with the command line, in one line; the whole help if it is empty."""
    if error.ctx is None:
        return str(error.format_message())
    command = error.ctx.command_path
    if not str(error.format_message()).strip():
        return f"name a command; see {command} --help"
    return f"{error.format_message().rstrip('.')}; see {command} --help"


if __name__ == "__main__":
    main()
