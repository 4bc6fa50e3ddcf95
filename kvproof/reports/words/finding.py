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
from kvproof.search.outcome import Outcome
from model.program import AnyProgram, call_of
from model.trace import Trace


@dataclass(frozen=True, slots=True)
class Words:
    """What a level brings. ``Any`` is an action, a response, a configuration of it."""

    describe_action: Callable[[Any, Any], str]
    """The calls that an action came to, with their results."""
    style: Callable[[Any], str]
    """The colour of an answer: dim where nothing could happen, red where something was raised."""
    describe_configuration: Callable[[Any], str]
    """The settings that matter and are not at their defaults, sizes always."""
    afterwards: Callable[[Sequence[Trace]], Sequence[Text]]
    """What was done after the last action, a line each."""
    extras: Callable[[Sequence[Trace], int], Sequence[RenderableType]]
    """What else is shown of traces and the failing step, below the steps."""
    compared: Callable[[Outcome], str]
    """With what the subject of a search was compared, behind its name."""
    counted: Callable[[Outcome], str]
    """What a search counts at this level only, behind its actions."""


def describe_finding(
    words: Words,
    violation: Violation,
    sentence: str,
    program: AnyProgram,
    traces: Sequence[Trace] = (),
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


def _replay(case_file: str, traces: Sequence[Trace]) -> str:
    subject = ["--subject", traces[-1].subject] if traces else []
    return shlex.join(["kvproof", "replay", case_file, *subject])


def _steps_table(
    words: Words, program: AnyProgram, traces: Sequence[Trace], failing: int
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


def _step(words: Words, action: Any, traces: Sequence[Trace], index: int) -> RenderableType:
    """One line where all subjects answered alike, else one line for each."""
    told = [_answered(words, action, trace, index) for trace in traces] or [Text(call_of(action))]
    if len({line.plain for line in told}) == 1:
        return told[0]
    named = zip(traces, told, strict=True)
    return Group(*(Text(f"{trace.subject}: {line.plain}", line.style) for trace, line in named))


def _answered(words: Words, action: Any, trace: Trace, index: int) -> Text:
    if index < len(trace.steps):
        response = trace.steps[index].response
        return Text(words.describe_action(action, response), words.style(response))
    red = trace.ending in ("raised", "crashed", "hung", "error") or _raised(trace) is not None
    return Text(f"{call_of(action)} → {how_it_ended(trace)}", "red" if red else "")


def how_it_ended(trace: Trace) -> str:
    """At the action to which there is no answer."""
    raised = _raised(trace)
    return trace.ending if raised is None else f"raised {raised}"


def _raised(trace: Trace) -> str | None:
    """What an engine raised that is judged where it runs."""
    return last_line(trace.failure) if trace.ending == "violated" else None


def last_line(failure: str | None) -> str | None:
    """What was raised, of a text that may be a whole traceback."""
    return failure.strip().splitlines()[-1] if failure and failure.strip() else None
