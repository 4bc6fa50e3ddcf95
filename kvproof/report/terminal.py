"""What people read: tables and findings, on a rich console."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from invariants.rules import RULE_BY_ID
from kvproof.describe import describe_finding
from kvproof.findings import VERSION
from kvproof.gate import GateResult
from kvproof.replay import Replayed
from kvproof.search import Finding, Outcome
from kvproof.subjects import Subject
from kvproof.subjects.reference import ReferenceSubject
from model.dialect import DIALECTS

STYLES = {
    "clean": "green",
    "counterexample": "bold red",
    "incomplete": "yellow",
    "FIXED": "green",
    "FAILED": "bold red",
    "ERROR": "yellow",
}

SENTENCES = {
    "lockstep": "The engine answers and moves exactly as the reference model under its dialect.",
    "crash": "The engine's process survives every program.",
    "hang": "The engine answers every program in time.",
}


def sentence_of(rule: str) -> str:
    return RULE_BY_ID[rule].sentence if rule in RULE_BY_ID else SENTENCES[rule]


def show_outcome(
    console: Console, outcome: Outcome, traces: dict[str, Path], subject: Subject
) -> None:
    for finding in outcome.findings:
        show_finding(console, finding, outcome, traces[finding.breach.rule], subject)
    for rule, reason in outcome.waived.items():
        console.print(f"not judged: {rule}: {reason}", style="dim", markup=False)
    for defect, count in outcome.known.items():
        console.print(f"known defect {defect}, seen {count} times", style="yellow")
    for goal in outcome.unmet:
        console.print(f"goal not met: {goal}", style="yellow")
    console.print(
        f"[{STYLES[outcome.verdict]}]{outcome.verdict}[/]  {outcome.subject} against the model "
        f"{outcome.dialect}, seed {outcome.seed}: {outcome.programs:,} programs, "
        f"{outcome.actions_run:,} actions ({outcome.actions_moving:,} moving) "
        f"in {outcome.seconds:.1f} s",
        highlight=False,
    )


def show_finding(
    console: Console, finding: Finding, outcome: Outcome, trace: Path, subject: Subject
) -> None:
    model = ReferenceSubject(DIALECTS[outcome.dialect], None, f"model {outcome.dialect}")
    engine = subject.run(finding.program, "all")
    shown = describe_finding(
        finding.breach,
        sentence_of(finding.breach.rule),
        finding.program,
        model=model.run(finding.program, "all"),
        engine=engine,
        seed=outcome.seed,
        versions=(outcome.subject, f"kvproof {VERSION}"),
        trace_path=str(trace),
    )
    for part in shown:
        console.print(part)
    console.print()


def show_table(console: Console, table: dict[int, dict[str, str]]) -> None:
    shown = Table("free blocks", *next(iter(table.values())))
    for free, cells in table.items():
        shown.add_row(str(free), *cells.values())
    console.print(shown)


def show_replayed(console: Console, replayed: Sequence[Replayed]) -> None:
    for entry in replayed:
        surprising = entry.expected is not None and not entry.as_expected
        expected = f", expected {entry.expected}" if surprising else ""
        changed = ""
        if entry.first_changed_step is not None:
            changed = f"; first changed step: {entry.first_changed_step + 1}"
        why = f"\n    {entry.why}" if entry.why else ""
        console.print(
            f"[{STYLES[entry.outcome]}]{entry.outcome}[/]{expected}  "
            f"{Path(entry.trace).name} on {entry.subject}{changed}{why}",
            highlight=False,
        )


def show_gate(console: Console, result: GateResult) -> None:
    shown = Table("stage", "subject", "verdict", "seconds", "details")
    for stage in result.stages:
        verdict = f"[{STYLES[stage.verdict]}]{stage.verdict}[/]"
        shown.add_row(
            stage.name, stage.subject, verdict, f"{stage.seconds:.1f}", "\n".join(stage.details)
        )
    console.print(shown)
    style = STYLES[result.verdict]
    console.print(f"[{style}]{result.verdict}[/] in {result.seconds:.0f} s", highlight=False)
