"""The words of the gate: what it does now, and the details of a stage that has ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from invariants.scheduler.effort import LONG, SHORT
from kvproof.gate.events import GateEvent, StageEnded, StageProgress
from kvproof.gate.results import (
    CanaryResult,
    CorpusResult,
    EffortResult,
    NotRun,
    PredictedResult,
    SearchResult,
    StageResult,
    TableResult,
)
from kvproof.search.findings import headline
from kvproof.search.outcome import Finding, Outcome
from kvproof.theorems.proofs import Proofs

SHOWN_MISMATCHES = 5


def describe_event(event: GateEvent) -> str:
    """What happens now, in one line."""
    title = f"{event.name} {event.subject}"
    if isinstance(event, StageProgress):
        return f"{title}: {event.doing or f'{event.programs:,} programs'}"
    return f"{title}: {event.verdict}" if isinstance(event, StageEnded) else title


def details_of(result: StageResult) -> tuple[str, ...]:
    """What a stage came to: what is wrong, then what was seen."""
    return tuple(_details(result))


def _details(result: StageResult) -> Iterator[str]:
    match result:
        case NotRun():
            yield result.why
        case TableResult():
            yield from _table(result)
        case Proofs():
            yield from _proofs(result)
        case PredictedResult():
            yield from _predicted(result)
        case CorpusResult():
            yield from _corpus(result)
        case SearchResult():
            yield from _search(result)
        case CanaryResult():
            yield _canary(result)
        case EffortResult():
            yield from _effort(result)


def _table(result: TableResult) -> Iterator[str]:
    for column in result.columns:
        if not column.as_expected:
            cells, expected = " ".join(column.cells), " ".join(column.expected)
            yield f"{column.subject}: {cells}; expected {expected}"
    if result.verdict == "clean":
        yield f"{result.rows} rows"


def _proofs(proofs: Proofs) -> Iterator[str]:
    odd = [result for result in proofs.results if not result.as_expected]
    for result in odd:
        yield f"{result.id}: {result.verdict}, twin {result.twin}"
    if not odd:
        yield f"{len(proofs.results)} obligations as expected"


def _predicted(result: PredictedResult) -> Iterator[str]:
    yield from result.mismatches[:SHOWN_MISMATCHES]
    yield (
        f"{result.shapes:,} pool shapes, {result.calls:,} allocations, "
        f"{len(result.mismatches):,} mismatches"
    )
    if result.unseen_fault is not None:
        yield f"no mismatch of the faulty arithmetic: {result.unseen_fault}"
    if result.shapes < result.least_shapes:
        yield f"fewer than {result.least_shapes:,} pool shapes"


def _corpus(result: CorpusResult) -> Iterator[str]:
    for e in result.wrong:
        yield f"{Path(e.trace).name}: {e.outcome}, expected {e.expected or 'FIXED'}; {e.why}"
    for entry in result.run:
        if entry.known is not None:
            yield f"known defect {entry.known}: {Path(entry.trace).name}"
    for entry in result.entries:
        if not entry.starts:
            yield f"{Path(entry.trace).name} is not for this subject: {entry.why}"
    yield f"{len(result.run)} traces"


def _search(result: SearchResult) -> Iterator[str]:
    outcome = result.outcome
    if result.unsaved is not None:
        yield result.unsaved
    for finding in outcome.findings:
        yield _finding(finding, result.saved.get(finding.violation.rule))
    if outcome.stopped:
        yield f"ended early: {outcome.stopped}"
    yield from _notes(outcome)
    moving = f", {outcome.actions_moving:,} moving actions" if outcome.actions_moving else ""
    steps = f", {outcome.steps:,} scheduler steps" if outcome.steps else ""
    yield f"{outcome.programs:,} programs{moving}{steps}"


def _finding(finding: Finding, case_file: Path | None) -> str:
    violation = finding.violation
    place = f"at step {violation.step + 1}"
    if violation.step >= len(finding.program.actions):
        place = "after the last step"
    replayed = f"; kvproof replay {shlex.quote(str(case_file))}" if case_file else ""
    return f"{violation.rule} {place}: {headline(violation)}{replayed}"


def _notes(outcome: Outcome) -> Iterator[str]:
    for rule, times in outcome.unrepeated.items():
        yield f"{rule} {times} times, and not again"
    for goal in outcome.unmet:
        yield f"goal not met: {goal}"
    for name, times in outcome.known.items():
        yield f"known defect {name}, seen {times} times"
    for rule, why in outcome.waived.items():
        yield f"{rule} is not judged: {why}"
    for why, times in outcome.refused.items():
        yield f"not run, {times} times: {why}"


def _canary(result: CanaryResult) -> str:
    if result.actions is not None:
        return f"{result.rule} seen to fail, in {result.actions} actions"
    return (
        f"{result.subject} is known to break {result.rule}, and nothing was found "
        f"in {result.programs} programs"
    )


def _effort(result: EffortResult) -> Iterator[str]:
    for e in result.growing:
        scheduler = f"{e.cache}{', asynchronous' if e.asynchronous else ''}"
        yield (
            f"{result.rule}: {scheduler}: {e.short} instructions after {SHORT} pages, "
            f"{e.long} after {LONG}"
        )
    if result.waived is not None:
        yield f"{result.rule} is not judged: {result.waived}"
    yield f"{len(result.efforts)} caches and schedulers"
