"""The frame of a finding, the same at every level: the rule, where it broke, the steps, a replay.

A level brings its words. Steps are numbered from 1 here, as people count; verdicts and JSON count
actions from 0.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from invariants.violation import Violation
from kvproof.reports.words.calls import call_of
from model.program import AnyProgram


@dataclass(frozen=True, slots=True)
class Words:
    """What a level brings. ``Any`` is an action, a response, a configuration, a trace of it."""

    describe_action: Callable[[Any, Any], str]
    """The calls that an action came to, with their results."""
    describe_configuration: Callable[[Any], str]
    """The settings that matter and are not at their defaults, sizes always."""
    responses: Callable[[Any], Sequence[Any]]
    """What a trace holds of answers."""
    ending: Callable[[Any], str]
    """How a trace ended at the action to which there is no answer."""
    afterwards: Callable[[Sequence[Any]], Sequence[Text]]
    """What was done after the last action, a line each."""
    extras: Callable[[Sequence[Any], int], Sequence[RenderableType]]
    """What else is shown of traces and the failing step, below the steps."""


def describe_finding(
    words: Words,
    violation: Violation,
    sentence: str,
    program: AnyProgram,
    traces: Sequence[Any] = (),
    *,
    seed: int | None = None,
    versions: Sequence[str] = (),
    case_file: str | None = None,
) -> list[RenderableType]:
    """One finding, ready to print.

    ``traces`` are of the program: of what it was compared with, if anything, then of the subject.
    """
    known = f" (known defect {violation.known})" if violation.known else ""
    origin = ([] if seed is None else [f"seed {seed}"]) + list(versions)
    return [
        Text.assemble((f"{violation.rule}{known}", "bold red"), f"  {sentence}"),
        Text(_place(violation, program)),
        *(Text(f"  {line}") for line in violation.evidence),
        Text(f"configuration: {words.describe_configuration(program.configuration)}"),
        _steps_table(words, program, traces, violation.step),
        *words.extras(traces, violation.step),
        *([Text(", ".join(origin))] if origin else []),
        *([] if case_file is None else [Text(f"replay it: {_replay(case_file, traces)}")]),
    ]


def _place(violation: Violation, program: AnyProgram) -> str:
    count = len(program.actions)
    if violation.step >= count:
        return f"first failing step: after the last action, the {_ordinal(count)}"
    return f"first failing step: {violation.step + 1} of {count}"


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    teens = number // 10 % 10 == 1
    return f"{number}{'th' if teens else endings.get(number % 10, 'th')}"


def _replay(case_file: str, traces: Sequence[Any]) -> str:
    subject = ["--subject", traces[-1].subject] if traces else []
    return shlex.join(["kvproof", "replay", case_file, *subject])


def _steps_table(
    words: Words, program: AnyProgram, traces: Sequence[Any], failing: int
) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column()
    for index, action in enumerate(program.actions[: failing + 1]):
        mark = ">" if index == failing else ""
        table.add_row(f"{mark}{index + 1}", _step(words, action, traces, index))
    if failing >= len(program.actions):
        for number, line in enumerate(words.afterwards(traces)):
            table.add_row("" if number else ">", line)
    return table


def _step(words: Words, action: Any, traces: Sequence[Any], index: int) -> RenderableType:
    """One line where all subjects answered alike, else one line for each."""
    told = [_answered(words, action, trace, index) for trace in traces] or [call_of(action)]
    if len(set(told)) == 1:
        return styled(told[0])
    return Group(*(styled(f"{t.subject}: {line}") for t, line in zip(traces, told, strict=True)))


def _answered(words: Words, action: Any, trace: Any, index: int) -> str:
    responses = words.responses(trace)
    if index < len(responses):
        return words.describe_action(action, responses[index])
    return f"{call_of(action)} → {words.ending(trace)}"


def styled(line: str) -> Text:
    if line.endswith(": not possible now"):
        return Text(line, "dim")
    bad = any(word in line for word in ("→ raised", "→ crashed", "→ hung", "→ error"))
    return Text(line, "red" if bad else "")


def last_line(failure: str | None) -> str | None:
    """What was raised, of a text that may be a whole traceback."""
    return failure.strip().splitlines()[-1] if failure and failure.strip() else None
