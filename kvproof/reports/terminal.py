"""What people read: tables and findings, on a rich console."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from invariants.rules import sentence_of
from kvproof.gate.events import GateResult
from kvproof.reports.styles import STYLES
from kvproof.reports.words.finding import describe_finding
from kvproof.reports.words.gate import details_of
from kvproof.reports.words.levels import WORDS
from kvproof.search.findings import VERSION
from kvproof.search.outcome import Finding, Outcome
from kvproof.search.replayed import Replayed
from kvproof.theorems.proofs import Proofs


def show_outcome(console: Console, outcome: Outcome, traces: dict[str, Path]) -> None:
    for finding in outcome.findings:
        show_finding(console, finding, outcome, traces.get(finding.violation.rule))
    show_notes(console, outcome.notes)
    notes = [
        *((f"not judged: {rule}: {why}", "dim") for rule, why in outcome.waived.items()),
        *((f"known defect {d}, seen {n} times", "yellow") for d, n in outcome.known.items()),
        *(
            (f"{rule}, {n} times, and not again: the worker died of something else", "yellow")
            for rule, n in outcome.unrepeated.items()
        ),
        *(
            (f"not run, {n} times: the engine does not start: {why}", "yellow")
            for why, n in outcome.refused.items()
        ),
        *((f"goal not met: {goal}", "yellow") for goal in outcome.unmet),
        *(
            (f"the model did not follow to the end, {n} times: {why}", "dim")
            for why, n in outcome.shadow_ends.most_common()
        ),
    ]
    if outcome.stopped:
        notes.append((f"ended early: {outcome.stopped}", "yellow"))
    for note, style in notes:
        console.print(Text(note, style), soft_wrap=True)
    console.print(_summary(outcome), soft_wrap=True)


def show_notes(console: Console, notes: Iterable[str]) -> None:
    """What a reader has to know of the subjects, each thing once."""
    for note in dict.fromkeys(notes):
        console.print(Text(note, "yellow"), soft_wrap=True)


def _summary(outcome: Outcome) -> Text:
    moving = f" ({outcome.actions_moving:,} moving)" if outcome.actions_moving else ""
    words = WORDS[outcome.level]
    return Text.assemble(
        (outcome.verdict, STYLES[outcome.verdict]),
        f"  {outcome.subject}{words.compared(outcome)}, seed {outcome.seed}: "
        f"{outcome.programs:,} programs, {outcome.actions_run:,} actions{moving}"
        f"{words.counted(outcome)} in {outcome.seconds:.1f} s",
    )


def show_finding(
    console: Console, finding: Finding, outcome: Outcome, case_file: Path | None
) -> None:
    shown = describe_finding(
        WORDS[outcome.level],
        finding.violation,
        sentence_of(finding.violation.rule, outcome.level),
        finding.program,
        finding.traces,
        seed=outcome.seed,
        versions=(outcome.subject, f"kvproof {VERSION}"),
        case_file=None if case_file is None else str(case_file),
    )
    for part in shown:
        console.print(part, soft_wrap=isinstance(part, Text))
    console.print()


def show_table(
    console: Console, table: dict[int, dict[str, str]], notes: Sequence[str] = ()
) -> None:
    show_notes(console, notes)
    shown = Table("free blocks")
    for name in next(iter(table.values())):
        shown.add_column(Text(name))
    for free, cells in table.items():
        shown.add_row(str(free), *cells.values())
    console.print(shown)


def show_replayed(console: Console, replayed: Sequence[Replayed]) -> None:
    show_notes(console, (note for entry in replayed for note in entry.notes))
    for entry in replayed:
        surprising = entry.expected is not None and not entry.as_expected
        expected = f", expected {entry.expected}" if surprising else ""
        changed = ""
        if entry.first_changed_step is not None:
            changed = f"; first changed step: {entry.first_changed_step + 1}"
        why = f"\n    {entry.why}" if entry.why else ""
        line = Text.assemble(
            (entry.outcome, STYLES[entry.outcome]),
            f"{expected}  {Path(entry.trace).name} on {entry.subject}{changed}{why}",
        )
        console.print(line, soft_wrap=True)


def show_proofs(console: Console, proofs: Proofs) -> None:
    shown = Table("obligation", "rule", "verdict", "ms", "twin", "witness")
    for result in proofs.results:
        style = "green" if result.as_expected else "bold red"
        witness = result.witness
        if not isinstance(witness, str):
            witness = " ".join(f"{name}={value}" for name, value in witness.items())
        shown.add_row(
            f"{result.id}: {result.sentence}" if result.sentence else result.id,
            result.rule,
            f"[{style}]{result.verdict}[/]",
            f"{result.ms:.0f}",
            result.twin or "",
            escape(witness),
        )
    console.print(shown)
    style = STYLES[proofs.verdict]
    counts = ", ".join(f"{proofs.count(v)} {v}" for v in ("proved", "refuted", "unknown"))
    console.print(
        f"[{style}]{proofs.verdict}[/] in {proofs.seconds:.1f} s: {counts}. Green verdicts are as "
        f"expected; every twin must be refuted. Assumed: {proofs.assumption}",
        highlight=False,
    )


def show_gate(console: Console, result: GateResult) -> None:
    show_notes(console, result.notes)
    shown = Table("stage", "subject", "verdict", "seconds", "details")
    for stage in result.stages:
        verdict = Text(stage.verdict, STYLES[stage.verdict])
        seconds, details = f"{stage.seconds:.1f}", Text("\n".join(details_of(stage.result)))
        shown.add_row(stage.name, Text(stage.subject), verdict, seconds, details)
    console.print(shown)
    style = STYLES[result.verdict]
    console.print(f"[{style}]{result.verdict}[/] in {result.seconds:.0f} s", highlight=False)
