"""The command line: every command opens its subjects, runs, reports, and ends with a verdict.

Exit codes: 0 clean, 1 counterexample, 2 could not run or incomplete.
"""

import json
import os
import secrets
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from hypothesis.configuration import set_hypothesis_home_dir
from rich.console import Console
from rich.markup import escape

from invariants.rules import RULES
from kvproof.diff import PairExaminer
from kvproof.errors import CouldNotRun
from kvproof.examine import Comparison, Examiner
from kvproof.export import ExportError, export_test
from kvproof.findings import VERSION, check_writable, save_findings
from kvproof.gate import PROFILES, Gate, GateResult
from kvproof.options import (
    EXIT,
    CompareOption,
    DialectOption,
    JsonOption,
    LoadOption,
    OutOption,
    SeedOption,
    SubjectOption,
    SubjectsOption,
    TimeOption,
    finish,
)
from kvproof.progress import counting
from kvproof.prove import run_proofs
from kvproof.provision import Load, cache_root, list_provisioned, remove_provisioned
from kvproof.replay import Replayed, not_replayed, replay, subjects_of
from kvproof.report.as_json import gate_json, outcome_json, proofs_json, replay_json, table_json
from kvproof.report.github import annotate
from kvproof.report.junit import write_junit
from kvproof.report.streams import (
    replace_what_cannot_be_encoded,
    write_line,
    write_out,
)
from kvproof.report.terminal import show_gate, show_outcome, show_proofs, show_replayed, show_table
from kvproof.search import Outcome, rules_for, search, soak
from kvproof.settings import read_settings
from kvproof.subjects import Subject, open_subject
from kvproof.subjects.naming import dialect_named
from kvproof.subjects.reference import ReferenceSubject
from kvproof.subjects.registry import add_subject, registered_subjects, remove_subject
from kvproof.table import EXPECTED, measure
from model.dialect import DIALECTS
from specs.traces import MAX_SEED, TraceError, TraceFile, read_trace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
subjects_app = typer.Typer(no_args_is_help=True, help="List, add and remove subjects.")
app.add_typer(subjects_app, name="subjects")

COMPARED_RULES = ("lockstep", "crash", "hang")
"""Rules that only another implementation than the model can break."""
RULE_IDS = (*(rule.id for rule in RULES), *COMPARED_RULES)
DIFF_PROGRAMS = 1_000
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
    except (CouldNotRun, TraceError, ExportError) as error:
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


@contextmanager
def opened_examiner(
    name: str, dialect: str | None, rule: str | None, load: Load, compare: Comparison
) -> Iterator[Examiner]:
    """An examiner that looks for one rule or all; raises ``CouldNotRun`` if it would see none."""
    if rule is not None and rule not in RULE_IDS:
        raise CouldNotRun(f"there is no rule {rule!r}; there are {', '.join(RULE_IDS)}")
    with open_subject(name, load=load, dialect=dialect) as subject:
        if subject.dialect is None:
            raise CouldNotRun(f"{name} has no dialect of its own: name one with --dialect")
        waived = dict(subject.dialect.by_design)
        if rule in waived:
            raise CouldNotRun(
                f"{rule} is not judged under the dialect {subject.dialect.name}: {waived[rule]}"
            )
        itself = isinstance(subject, ReferenceSubject) and subject.runs_as == subject.dialect
        if itself and rule in COMPARED_RULES:
            raise CouldNotRun(
                f"{name} is the model itself, so {rule} cannot be broken: "
                "name another dialect to compare with by --dialect"
            )
        yield Examiner(
            subject,
            subject.dialect,
            rules_for(rule),
            watch_goals=rule is None,
            comparison=compare,
        )


def findings_folder(out: Path | None) -> Path:
    """Where findings go; raises ``CouldNotRun`` when they cannot."""
    folder = out or Path(read_settings(Path.cwd()).out)
    check_writable(folder, "--out")
    return folder


def conclude(
    outcome: Outcome, folder: Path, as_json: bool, subject: Subject, model: Subject | None = None
) -> None:
    """Save and report what a search found; ``model`` is the other subject if two were compared."""
    traces: dict[str, Path] = {}
    try:
        traces = save_findings(outcome, folder, subject.name)
    except TraceError as error:  # the disk filled up: what was found is shown all the same
        write_line(str(error))
    finish(
        outcome.verdict,
        as_json,
        lambda: outcome_json(outcome, traces),
        lambda console: show_outcome(console, outcome, traces, subject, model),
    )


@app.command(name="search")
def search_command(
    subject: SubjectOption,
    dialect: DialectOption = None,
    rule: Annotated[
        str | None, typer.Option(help="Look for one rule only, for example I4.")
    ] = None,
    seed: SeedOption = None,
    max_examples: Annotated[int | None, typer.Option(min=1)] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
    compare: CompareOption = "exact",
) -> None:
    """Search with Hypothesis for programs that break a rule, and minimise them."""
    folder = findings_folder(out)
    with opened_examiner(subject, dialect, rule, load, compare) as examiner:
        number = secrets.randbelow(1_000_000) if seed is None else seed
        with counting(f"search {subject}", max_examples) as progress:
            outcome = search(examiner, number, rule, max_examples, time, progress)
        conclude(outcome, folder, json_output, examiner.subject)


@app.command(name="soak")
def soak_command(
    subject: SubjectOption,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED)],
    dialect: DialectOption = None,
    rule: Annotated[str | None, typer.Option(help="Look for one rule only.")] = None,
    programs: Annotated[int | None, typer.Option(min=1)] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
    compare: CompareOption = "exact",
) -> None:
    """Run many drawn programs in a bare loop: volume."""
    if (programs is None) == (time is None):
        raise CouldNotRun("soak needs either --programs or --time: say how much to run")
    folder = findings_folder(out)
    with opened_examiner(subject, dialect, rule, load, compare) as examiner:
        with counting(f"soak {subject}", programs) as progress:
            outcome = soak(examiner, seed, programs, time, rule, progress=progress)
        conclude(outcome, folder, json_output, examiner.subject)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="The first subject; programs are drawn for it.")],
    b: Annotated[str, typer.Argument(help="The second subject.")],
    seed: SeedOption = None,
    programs: Annotated[int | None, typer.Option(min=1, help="1000 if no --time is given.")] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Run two subjects in lockstep with each other."""
    folder = findings_folder(out)
    if programs is None and time is None:
        programs = DIFF_PROGRAMS
    with open_subject(a, load=load) as first, open_subject(b, load=load) as second:
        dialect = first.dialect or second.dialect
        if dialect is None:
            raise CouldNotRun(f"neither {a} nor {b} has a dialect to draw programs for")
        examiner = PairExaminer(first, second, dialect)
        number = secrets.randbelow(1_000_000) if seed is None else seed
        with counting(f"diff {a} {b}", programs) as progress:
            outcome = soak(examiner, number, programs, time, progress=progress)
        outcome.subject = f"{first.name} {second.name}"
        outcome.other = "each other"
        conclude(outcome, folder, json_output, second, first)


@app.command(name="replay")
def replay_command(
    trace: Annotated[list[Path], typer.Argument(help="Trace files.")],
    subject: SubjectsOption = None,
    dialect: DialectOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Replay traces: FIXED, FAILED or ERROR for each subject, those that it names by default."""
    if dialect is not None:
        dialect_named(dialect)
    files = [(path, read_trace(path)) for path in trace]
    replayed = list(_replay_all(files, subject, dialect, load))
    verdict = "clean"
    if any(entry.outcome == "ERROR" for entry in replayed) or not replayed:
        verdict = "incomplete"
    if any(not entry.as_expected and entry.outcome != "ERROR" for entry in replayed):
        verdict = "counterexample"
    finish(
        verdict,
        json_output,
        lambda: replay_json(replayed),
        lambda console: show_replayed(console, replayed),
    )


def _replay_all(
    files: list[tuple[Path, TraceFile]], names: list[str] | None, dialect: str | None, load: Load
) -> Iterator[Replayed]:
    with ExitStack() as stack:
        opened: dict[str, Subject | CouldNotRun] = {}
        for path, trace in files:
            named = names or list(subjects_of(trace))
            if not named:
                raise CouldNotRun(f"{path} names no subject: name one with --subject")
            for name in named:
                if name not in opened:
                    opened[name] = _opened(name, load, stack, trusted=names is not None)
                subject = opened[name]
                if not isinstance(subject, CouldNotRun):
                    yield replay(path, trace, subject, dialect)
                elif names:
                    raise subject
                else:  # a subject of the trace's that this machine cannot have
                    yield not_replayed(path, trace, name, subject)


def _opened(name: str, load: Load, stack: ExitStack, trusted: bool) -> Subject | CouldNotRun:
    """A trace may come from anywhere: code in a folder runs only if the user names the folder."""
    if name.startswith("vllm@") and not trusted:
        return CouldNotRun(f"the trace names a checkout; to run it, add --subject {name}")
    try:
        return stack.enter_context(open_subject(name, load=load))
    except CouldNotRun as error:
        return error


@app.command()
def export(
    trace: Annotated[Path, typer.Argument(help="A trace file.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; standard output if none.")
    ] = None,
) -> None:
    """Write a stand-alone pytest file that reproduces a trace with vLLM's own classes."""
    text = export_test(read_trace(trace))
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
