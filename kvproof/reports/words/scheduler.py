"""All human wording of a finding of whole engine steps: what was called, and what came of it.

Steps are numbered from 1 here, as people count; verdicts and JSON count actions from 0.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from invariants.scheduler.run import Event, Response
from invariants.violation import Violation
from kvproof.subjects.scheduler import SchedulerTrace
from model.scheduler.actions import Action, Arrive
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup

ALWAYS_TOLD = (
    "cache", "block_size", "num_blocks", "max_model_len", "max_num_batched_tokens", "max_num_seqs",
)  # fmt: skip
ONLY_FOR = {
    "num_host_blocks": "hisparse",
    "num_resident_groups": "hisparse",
    "hot_blocks": "hisparse",
    "sliding_window": "sliding",
}
"""Settings that mean something to one kind of cache only."""
MOST_SHOWN = 24
"""Lines of what was done after the last action."""
IDLE: Response = (("idle",),)


# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the scheduler's words, with their results."""
    if response == IDLE:
        return f"{call_of(action)}: not possible now"
    told = [describe_event(event) for event in response]
    if isinstance(action, Arrive):
        told[0] += _terms(action)
    return "; ".join(told)


def call_of(action: Action) -> str:
    """An action as it was written, without what is default."""
    given = [
        f"{field.name}={getattr(action, field.name)}"
        for field in fields(action)
        if getattr(action, field.name) != field.default
    ]
    return f"{type(action).__name__}({', '.join(given)})"


def describe_event(event: Event) -> str:
    word, *rest = event
    return _WORDING[word](*rest)


def _describe_arrival(request: int, prompt: int, output: int, stored: int) -> str:
    head = f"add request {request}: {_count(prompt, 'prompt token')}, {output} to generate"
    return f"{head}, the first {stored} in the store" if stored else head


def _terms(action: Arrive) -> str:
    """What else belongs to an arrival."""
    terms = []
    if action.shared:
        terms.append(f"{_count(action.shared, 'token')} of family {action.family}")
    if action.salt:
        terms.append(f"salt {action.salt}")
    if action.priority:
        terms.append(f"priority {action.priority}")
    if action.stored:
        terms.append("loaded beside the steps" if action.asynchronous else "loaded within a step")
        if action.delays:
            terms.append(f"known after {_count(action.delays, 'look-up')}")
        if action.lost:
            terms.append(f"the last {_count(action.lost, 'page')} lost at first")
    return f" ({', '.join(terms)})" if terms else ""


def _describe_step(step: int, shares: Any, preempted: Any) -> str:
    told = [f"request {r}: {_count(n, 'token')} from {start}" for r, start, n in shares]
    head = f"schedule step {step} → {', '.join(told) or 'nothing'}"
    return f"{head}; preempts request {_listed(preempted)}" if preempted else head


def _describe_load(request: int, lost: int | None) -> str:
    if lost is None:
        return f"the load of request {request} is done"
    return f"the load of request {request} is done, and failed from token {lost} on"


def _describe_reset(running: bool, done: bool) -> str:
    head = "reset the prefix cache" + (", preempting all that runs" if running else "")
    return f"{head} → {'done' if done else 'refused'}"


_WORDING: dict[str, Callable[..., str]] = {
    "arrived": _describe_arrival,
    "step": _describe_step,
    "output": lambda step: f"update from the output of step {step}",
    "ended": lambda request, why: f"request {request} ended: {why}",
    "loaded": _describe_load,
    "transferred": lambda transfers: f"host transfers complete: {_listed(transfers)}",
    "reset": _describe_reset,
}
"""By the word of an event, from what follows it: see ``invariants.scheduler.run``."""


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


# A finding


def describe_finding(
    violation: Violation,
    sentence: str,
    program: SchedulerProgram,
    *,
    trace: SchedulerTrace | None = None,
    seed: int | None = None,
    versions: Sequence[str] = (),
    trace_path: str | None = None,
) -> list[RenderableType]:
    """One finding, ready to print; the trace needs the responses."""
    known = f" (known defect {violation.known})" if violation.known else ""
    shown: list[RenderableType] = [
        Text.assemble((f"{violation.rule}{known}", "bold red"), f"  {sentence}"),
        Text(_place(violation, program)),
        *(Text(f"  {line}") for line in violation.evidence),
        Text(describe_setup(program.configuration)),
        _steps_table(program, trace, violation.step),
    ]
    origin = ([] if seed is None else [f"seed {seed}"]) + list(versions)
    shown += [Text(", ".join(origin))] if origin else []
    if trace_path is not None:
        command = ["kvproof", "replay", trace_path]
        command += ["--subject", trace.subject] if trace is not None else []
        shown.append(Text(f"replay it: {shlex.join(command)}"))
    return shown


def _place(violation: Violation, program: SchedulerProgram) -> str:
    count = len(program.actions)
    if violation.step >= count:
        return f"first failing step: after the last action, the {_ordinal(count)}"
    return f"first failing step: {violation.step + 1} of {count}"


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    teens = number // 10 % 10 == 1
    return f"{number}{'th' if teens else endings.get(number % 10, 'th')}"


def describe_setup(setup: SchedulerSetup) -> str:
    """The settings that matter to this cache and are not at their defaults, sizes always."""
    told = [
        f"{field.name}={getattr(setup, field.name)}"
        for field in fields(setup)
        if ONLY_FOR.get(field.name, setup.cache) == setup.cache
        and (field.name in ALWAYS_TOLD or getattr(setup, field.name) != field.default)
    ]
    return f"configuration: {', '.join(told)}"


def _steps_table(program: SchedulerProgram, trace: SchedulerTrace | None, failing: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column()
    responses = trace.responses if trace is not None else ()
    count = len(program.actions)
    for index, action in enumerate(program.actions[: failing + 1]):
        mark = ">" if index == failing else ""
        table.add_row(f"{mark}{index + 1}", _styled(_step_text(action, trace, index)))
    if failing >= count:
        table.add_row(">", Text("then everything that is pending is completed, and steps go on:"))
        for line in _drained(responses[count:]):
            table.add_row("", Text(line))
        if trace is not None and trace.failure:
            table.add_row("", Text(f"a step {_end(trace)}", "red"))
    return table


def _step_text(action: Action, trace: SchedulerTrace | None, index: int) -> str:
    if trace is None:
        return call_of(action)
    if index < len(trace.responses):
        return describe_action(action, trace.responses[index])
    return f"{call_of(action)} → {_end(trace)}"


def _end(trace: SchedulerTrace) -> str:
    """How the trace ended at the action to which there is no answer."""
    if trace.ending == "violated" and trace.failure:
        return f"raised {trace.failure.strip().splitlines()[-1]}"
    return trace.ending


def _styled(line: str) -> Text:
    if line.endswith(": not possible now"):
        return Text(line, "dim")
    bad = any(word in line for word in ("→ raised", "→ crashed", "→ hung", "→ error"))
    return Text(line, "red" if bad else "")


def _drained(responses: Sequence[Response]) -> Iterator[str]:
    """What was done after the last action, without what changed nothing."""
    lines = ["; ".join(map(describe_event, r)) for r in responses if r != IDLE]
    yield from lines[:MOST_SHOWN]
    if len(lines) > MOST_SHOWN:
        yield f"… and so on, {len(lines) - MOST_SHOWN} times more"
