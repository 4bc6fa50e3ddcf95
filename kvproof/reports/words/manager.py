"""All human wording of one finding: the calls, their results, and what changed in the state.

Steps are numbered from 1 here, as people count; verdicts and JSON count actions from 0.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from invariants.violation import Violation
from kvproof.reports.words.state import describe_change, differing_parts, group_names, listed
from model.manager.actions import Action, Admit, Extend
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.manager.session import Event, Response
from model.snapshot import Snapshot
from model.trace import Trace

__all__ = ["call_of", "describe_action", "describe_change", "describe_finding"]


# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the allocator's words, with their results."""
    if response[0][0] == "idle":
        return f"{call_of(action)}: not possible now"
    return "; ".join(_describe_event(action, event) for event in response)


def call_of(action: Action) -> str:
    """An action as it was written, without what is default."""
    given = [
        f"{field.name}={getattr(action, field.name)}"
        for field in fields(action)
        if getattr(action, field.name) != field.default
    ]
    return f"{type(action).__name__}({', '.join(given)})"


def _describe_event(action: Action, event: Event) -> str:
    word, *rest = event
    if word == "refused":
        return _describe_refusal(action, *rest)
    if word == "raised":
        return f"{_asked(action)} → raised {rest[0]}"
    return _WORDING[word](*rest)


def _asked(action: Action) -> str:
    """What was asked when the answer does not tell of which request."""
    if isinstance(action, Admit):
        return f"admit a waiting request: {_count(action.tokens, 'token')}"
    if isinstance(action, Extend):
        return f"extend a running request: {_count(action.tokens, 'token')}"
    return call_of(action)


def _describe_admission(
    request: int, tokens: int, promised: Any, _: int, blocks: Any, hit: int
) -> str:
    head = f"admit request {request}: {_count(tokens, 'token')}, hit {_count(hit, 'token')}"
    return f"{head}, {_promised(promised)} → {describe_blocks(blocks)}"


def _describe_extension(request: int, tokens: int, promised: Any, _: int, blocks: Any) -> str:
    head = f"extend request {request}: {_count(tokens, 'token')}, {_promised(promised)}"
    return f"{head} → {describe_blocks(blocks)}"


def _describe_refusal(action: Action, request: int, tokens: int, promised: Any, last: int) -> str:
    """``last`` is the hit of an admission, or whether an extension has writes to wait for."""
    if isinstance(action, Admit):
        head = f"admit request {request}: {_count(tokens, 'token')}, hit {_count(last, 'token')}"
        return f"{head}, {_promised(promised)} → refused"
    head = f"extend request {request}: {_count(tokens, 'token')}, {_promised(promised)}"
    return f"{head} → refused{', host writes will give blocks back' if last else ''}"


def _describe_step(requests: int, command: Any, updates: Any, _: Any) -> str:
    writes = [f"{t} (request {r}, {listed(b)} to host {h})" for t, r, h, *b in command]
    parts = [f"end of step: {_count(requests, 'request')}"]
    parts += [f"host writes {', '.join(writes)}"] if writes else []
    parts += [_count(len(updates), "residency update")] if updates else []
    return ", ".join(parts)


_WORDING: dict[str, Callable[..., str]] = {
    "arrived": lambda request, n: f"request {request} arrives: {_count(n, 'prompt token')}",
    "admitted": _describe_admission,
    "extended": _describe_extension,
    "step": _describe_step,
    "output": lambda n: f"output arrives: {_count(n, 'new token')}",
    "completed": lambda *transfers: f"host writes complete: {listed(transfers)}",
    "ended": lambda request: f"free request {request}: it ended",
    "preempted": lambda request: f"preempt request {request}: its blocks are freed",
    "deferred": lambda request: f"request {request}'s blocks wait for the steps in flight",
    "reset": lambda done: f"reset the prefix cache → {'done' if done else 'refused'}",
    "evicted": lambda request, page: f"evict the block of page {page} of request {request}",
    "held": lambda free: f"take blocks until {free} are free",
}
"""By the word of an event, from what follows it: see ``model.session``."""


def describe_blocks(rows: Sequence[Sequence[int]]) -> str:
    """New blocks of each group that got some: ``blocks indexer [3 4] resident [5 6]``."""
    named = zip(group_names(len(rows)), rows, strict=True)
    return "blocks " + (" ".join(f"{n} {listed(row)}" for n, row in named if row) or "none")


def _promised(promised: Sequence[int]) -> str:
    """The predictor's last answer: that of the gate which decided."""
    return f"promised {_count(promised[-1] if promised else 0, 'block')}"


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# A finding


def describe_finding(
    violation: Violation,
    sentence: str,
    program: ManagerProgram,
    *,
    model: Trace | None = None,
    engine: Trace | None = None,
    seed: int | None = None,
    versions: Sequence[str] = (),
    trace_path: str | None = None,
) -> list[RenderableType]:
    """One finding, ready to print; the traces need snapshots at the step and the one before."""
    traces = [trace for trace in (model, engine) if trace is not None]
    known = f" (known defect {violation.known})" if violation.known else ""
    shown: list[RenderableType] = [
        Text.assemble((f"{violation.rule}{known}", "bold red"), f"  {sentence}"),
        Text(f"first failing step: {violation.step + 1} of {len(program.actions)}"),
        *(Text(f"  {line}") for line in violation.evidence),
        Text(describe_configuration(program.configuration)),
        _steps_table(program, traces, violation.step),
    ]
    shown += [Text(line, "red") for line in _failures(traces)]
    changes = _changes_table(traces, violation.step)
    if changes.row_count:
        shown += [Text("what changed in the state:"), changes]
    origin = ([] if seed is None else [f"seed {seed}"]) + list(versions)
    shown += [Text(", ".join(origin))] if origin else []
    if trace_path is not None:
        subject = traces[-1].subject if traces else ""
        command = ["kvproof", "replay", trace_path, *(["--subject", subject] if subject else [])]
        shown.append(Text(f"replay it: {shlex.join(command)}"))
    return shown


def describe_configuration(configuration: Configuration) -> str:
    """The fields that matter to this engine and are not at their defaults, pools always."""
    pools = ("block_size", "num_blocks", "num_host_blocks", "max_model_len")
    told = [
        f"{field.name}={getattr(configuration, field.name)}"
        for field in fields(configuration)
        if field.name in pools or getattr(configuration, field.name) != field.default
    ]
    return f"configuration: {', '.join(told)}"


def _failures(traces: Sequence[Trace]) -> Iterator[str]:
    for trace in traces:
        if trace.failure and trace.failure.strip():
            yield f"{trace.subject}: {trace.failure.strip().splitlines()[-1]}"


def _steps_table(program: ManagerProgram, traces: Sequence[Trace], failing: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column()
    for index, action in enumerate(program.actions[: failing + 1]):
        mark = ">" if index == failing else ""
        table.add_row(f"{mark}{index + 1}", _step_text(action, traces, index))
    return table


def _step_text(action: Action, traces: Sequence[Trace], index: int) -> RenderableType:
    """One line where all subjects answered alike, else one line for each."""
    told = [
        describe_action(action, t.steps[index].response)
        if index < len(t.steps)
        else f"{call_of(action)} → {t.ending}"
        for t in traces
    ] or [call_of(action)]
    if len(set(told)) == 1:
        return _styled(told[0])
    return Group(*(_styled(f"{t.subject}: {line}") for t, line in zip(traces, told, strict=True)))


def _styled(line: str) -> Text:
    if line.endswith(": not possible now"):
        return Text(line, "dim")
    bad = any(word in line for word in ("→ raised", "→ crashed", "→ hung", "→ error"))
    return Text(line, "red" if bad else "")


def _changes_table(traces: Sequence[Trace], failing: int) -> Table:
    """Parts in which the subjects differ after the failing step, then others that it changed."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    after = [(t.subject, s) for t in traces if (s := _snapshot_at(t, failing)) is not None]
    for title in ("", "before", *(subject for subject, _ in after)):
        table.add_column(Text(title))
    before = _snapshot_at(traces[0], failing - 1) if after else None
    parts = differing_parts(before, *(s for _, s in after)) if after else []
    apart = [(part, cells) for part, cells in parts if len(set(cells[1:])) > 1]
    for part, cells in apart:
        table.add_row(Text(part), *map(Text, cells), style="bold red")
    for part, cells in parts:
        if (part, cells) not in apart:
            table.add_row(Text(part), *map(Text, cells))
    return table


def _snapshot_at(trace: Trace, index: int) -> Snapshot | None:
    return trace.steps[index].snapshot if 0 <= index < len(trace.steps) else None
