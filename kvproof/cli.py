"""The command line: every command opens its subjects, runs, reports, and ends with a verdict.

Exit codes: 0 clean, 1 counterexample, 2 could not run or incomplete.
"""

import json
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from hypothesis.configuration import set_hypothesis_home_dir
from rich.console import Console

from invariants.rules import RULES
from kvproof.diff import PairExaminer
from kvproof.errors import CouldNotRun
from kvproof.examine import Examiner
from kvproof.export import ExportError, export_test
from kvproof.findings import save_findings
from kvproof.gate import OWN_CORPUS, PROFILES, Gate
from kvproof.progress import counting
from kvproof.provision import list_provisioned, remove_provisioned
from kvproof.provision.cache import cache_root
from kvproof.provision.environment import Load
from kvproof.replay import Replayed, replay, subjects_of
from kvproof.report.as_json import gate_json, outcome_json, replay_json, table_json
from kvproof.report.github import annotate
from kvproof.report.junit import write_junit
from kvproof.report.terminal import show_gate, show_outcome, show_replayed, show_table
from kvproof.search import Outcome, rules_for, search, soak
from kvproof.settings import read_settings
from kvproof.subjects import Subject, open_subject
from kvproof.subjects.registry import add_subject, registered_subjects, remove_subject
from kvproof.table import measure
from model.dialect import DIALECTS
from specs.traces import TraceError, TraceFile, read_trace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Check the KV-cache block allocator of vLLM against a reference model and its rules.",
)
subjects_app = typer.Typer(no_args_is_help=True, help="List, add and remove subjects.")
app.add_typer(subjects_app, name="subjects")

EXIT = {"clean": 0, "counterexample": 1, "incomplete": 2}
POLICIES = ("eager", "charged", "deferred", "deferred-ordered")
RULE_IDS = (*(rule.id for rule in RULES), "lockstep", "crash", "hang")

SubjectOption = Annotated[str, typer.Option(help="reference:DIALECT, vllm==VERSION or vllm@PATH.")]
SubjectsOption = Annotated[list[str] | None, typer.Option("--subject", help="May be repeated.")]
DialectOption = Annotated[str | None, typer.Option(help="Dialect of the model to compare with.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
LoadOption = Annotated[
    Load,
    typer.Option(help="Load only the allocator's modules, or all of vLLM with torch (2.3 GB)."),
]
TimeOption = Annotated[float | None, typer.Option("--time", min=0.1, help="Seconds to run.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for the traces of findings.")]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Drawn, and printed, if not given.")]


def main() -> None:
    """Entry point: what could not run is one line on standard error, and exit code 2."""
    set_hypothesis_home_dir(cache_root() / "hypothesis")
    try:
        app()
    except (CouldNotRun, TraceError, ExportError) as error:
        line = " ".join(str(error).split())
        print(f"kvproof: {line}", file=sys.stderr)
        if "--json" in sys.argv:
            print(json.dumps({"error": line}))
        raise SystemExit(2) from error


def finish(
    verdict: str, as_json: bool, data: Callable[[], dict[str, Any]], show: Callable[[Console], None]
) -> None:
    """Report in the form that was asked for, and end with the verdict's exit code."""
    if as_json:
        print(json.dumps(data()))
    else:
        show(Console())
    raise typer.Exit(EXIT[verdict])


@app.command()
def table(
    subject: SubjectsOption = None, json_output: JsonOption = False, load: LoadOption = "focused"
) -> None:
    """Pages adopted by a hit, by free blocks: the table of the proposals."""
    names = subject or [f"reference:{policy}" for policy in POLICIES]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_subject(name, load=load)) for name in names]
        cells = measure(opened)
    finish("clean", json_output, lambda: table_json(cells), lambda out: show_table(out, cells))


@contextmanager
def opened_examiner(
    name: str, dialect: str | None, rule: str | None, load: Load
) -> Iterator[Examiner]:
    if rule is not None and rule not in RULE_IDS:
        raise CouldNotRun(f"there is no rule {rule!r}; there are {', '.join(RULE_IDS)}")
    with open_subject(name, load=load, dialect=dialect) as subject:
        if subject.dialect is None:
            raise CouldNotRun(f"{name} has no dialect of its own: name one with --dialect")
        yield Examiner(subject, subject.dialect, rules_for(rule), watch_goals=rule is None)


def conclude(outcome: Outcome, subject: Subject, out: Path | None, as_json: bool) -> None:
    folder = out or Path(read_settings(Path.cwd()).out)
    traces = save_findings(outcome, folder)
    finish(
        outcome.verdict,
        as_json,
        lambda: outcome_json(outcome, traces),
        lambda console: show_outcome(console, outcome, traces, subject),
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
) -> None:
    """Search with Hypothesis for programs that break a rule, and minimise them."""
    with opened_examiner(subject, dialect, rule, load) as examiner:
        number = secrets.randbelow(1_000_000) if seed is None else seed
        with counting(f"search {subject}") as progress:
            outcome = search(examiner, number, rule, max_examples, time, progress)
        conclude(outcome, examiner.subject, out, json_output)


@app.command(name="soak")
def soak_command(
    subject: SubjectOption,
    seed: Annotated[int, typer.Option(min=0)],
    dialect: DialectOption = None,
    rule: Annotated[str | None, typer.Option(help="Look for one rule only.")] = None,
    programs: Annotated[int | None, typer.Option(min=1)] = None,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Run many drawn programs in a bare loop: volume."""
    if (programs is None) == (time is None):
        raise CouldNotRun("soak needs either --programs or --time")
    with opened_examiner(subject, dialect, rule, load) as examiner:
        with counting(f"soak {subject}", programs) as progress:
            outcome = soak(examiner, seed, programs, time, rule, progress=progress)
        conclude(outcome, examiner.subject, out, json_output)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="The first subject; programs are drawn for it.")],
    b: Annotated[str, typer.Argument(help="The second subject.")],
    seed: SeedOption = None,
    programs: Annotated[int, typer.Option(min=1)] = 1_000,
    time: TimeOption = None,
    out: OutOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Run two subjects in lockstep with each other."""
    with open_subject(a, load=load) as first, open_subject(b, load=load) as second:
        dialect = first.dialect or second.dialect
        if dialect is None:
            raise CouldNotRun(f"neither {a} nor {b} has a dialect to draw programs for")
        examiner = PairExaminer(first, second, dialect)
        number = secrets.randbelow(1_000_000) if seed is None else seed
        with counting(f"diff {a} {b}", programs) as progress:
            outcome = soak(examiner, number, programs, time, progress=progress)
        outcome.subject = f"{first.name} {second.name}"
        conclude(outcome, second, out, json_output)


@app.command(name="replay")
def replay_command(
    trace: Annotated[list[Path], typer.Argument(help="Trace files.")],
    subject: SubjectsOption = None,
    dialect: DialectOption = None,
    json_output: JsonOption = False,
    load: LoadOption = "focused",
) -> None:
    """Replay traces: FIXED, FAILED or ERROR for each subject, those that it names by default."""
    if dialect is not None and dialect not in DIALECTS:
        raise CouldNotRun(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
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
        opened: dict[str, Subject] = {}
        for path, trace in files:
            named = names or list(subjects_of(trace))
            if not named:
                raise CouldNotRun(f"{path} names no subject: name one with --subject")
            for name in named:
                if name not in opened:
                    opened[name] = stack.enter_context(open_subject(name, load=load))
                yield replay(path, trace, opened[name], dialect)


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
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CouldNotRun(f"cannot write {out}: {error.strerror}") from error


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
    console = Console(stderr=True)
    with console.status("gate") as status:
        run = Gate(settings, PROFILES[profile], out or Path(settings.out), status.update)
        result = run.run()
    if junit is not None:
        write_junit(result, junit)
    annotate(result)
    finish(
        result.verdict,
        json_output,
        lambda: gate_json(result),
        lambda out_console: show_gate(out_console, result),
    )


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
def add(name: str, subject: str) -> None:
    """Give a subject a name of its own, or provision a release: add 0.33 vllm==0.33.0."""
    add_subject(name, subject)


@subjects_app.command(name="remove")
def remove(name: str) -> None:
    """Forget a subject that was added, or remove a provisioned release (vllm==VERSION)."""
    if name.startswith("vllm=="):
        remove_provisioned(name.removeprefix("vllm=="))
    else:
        remove_subject(name)


__all__ = ["OWN_CORPUS", "app", "main"]
