"""What an exhaustive search came to, for people and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from invariants.rules import sentence_of
from kvproof.reports.styles import STYLES
from kvproof.search.explored import Explored, ShortestWay


def explored_json(explored: Explored) -> dict[str, Any]:
    violation = explored.violation
    return {
        "complete": explored.complete,
        "states": explored.states,
        "transitions": explored.transitions,
        "depth": explored.depth,
        "seconds": round(explored.seconds, 3),
        "violation": None if violation is None else _violation_json(violation),
        "verdict": explored.verdict,
        "mode": explored.mode,
        "dialect": explored.dialect,
        "instance": explored.instance,
        "states_per_second": round(rate(explored)),
        "stopped": explored.stopped,
        "taken": dict(sorted(explored.taken.items())),
        "below_minimum": explored.below_minimum,
        "known_defects": dict(explored.known),
        "waived_rules": explored.waived,
    }


def _violation_json(violation: ShortestWay) -> dict[str, Any]:
    return {
        "rule": violation.rule,
        "actions": list(violation.actions),
        "trace": None if violation.trace is None else str(violation.trace),
        "evidence": list(violation.evidence),
    }


def rate(explored: Explored) -> float:
    """Distinct states per second."""
    return explored.states / max(explored.seconds, 1e-9)


def show_explored(console: Console, explored: Explored) -> None:
    if explored.violation is not None:
        _show_violation(console, explored.violation)
    notes = [
        *((f"not judged: {rule}: {why}", "dim") for rule, why in explored.waived.items()),
        *((f"known defect {d}, seen {n} times", "yellow") for d, n in explored.known.items()),
    ]
    if explored.below_minimum:
        notes.append((f"no engine would start so: {explored.below_minimum}", "yellow"))
    if explored.stopped:
        notes.append((f"ended early, or worthless: {explored.stopped}", "yellow"))
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(explored.taken.items()))
    notes.append((f"taken: {counts}", "dim"))
    for note, style in notes:
        console.print(Text(note, style), soft_wrap=True)
    console.print(_summary(explored), soft_wrap=True)


def _show_violation(console: Console, violation: ShortestWay) -> None:
    console.print(Text(f"{violation.rule}: {sentence_of(violation.rule)}", "bold red"))
    for number, action in enumerate(violation.actions, start=1):
        fields = " ".join(f"{key}={value}" for key, value in action.items() if key != "action")
        console.print(Text(f"{number:>4}  {action['action']} {fields}".rstrip()), soft_wrap=True)
    for line in violation.evidence:
        console.print(Text(f"      {line}", "red"), soft_wrap=True)
    if violation.trace is not None:
        console.print(Text(f"trace: {violation.trace}"), soft_wrap=True)


def _summary(explored: Explored) -> Text:
    extent = "all of it" if explored.complete else "not all of it"
    if explored.violation is not None:
        extent = f"a shortest way, {len(explored.violation.actions)} actions"
    return Text.assemble(
        (explored.verdict, STYLES[explored.verdict]),
        f"  {explored.mode} {explored.instance} under {explored.dialect}, {extent}: "
        f"{explored.states:,} states, {explored.transitions:,} transitions, "
        f"depth {explored.depth}, in {explored.seconds:.1f} s ({rate(explored):,.0f} states/s)",
    )
