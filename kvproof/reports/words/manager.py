"""The words of the manager level: the calls, their results, and what changed in the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kvproof.reports.words.calls import call_of, counted
from kvproof.reports.words.finding import Words, last_line
from kvproof.reports.words.state import differing_parts, group_names, listed
from model.manager.actions import Action, Admit, Extend
from model.manager.configuration import Configuration
from model.manager.session import Event, Response
from model.snapshot import Snapshot
from model.trace import Trace

# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the allocator's words, with their results."""
    if response[0][0] == "idle":
        return f"{call_of(action)}: not possible now"
    return "; ".join(_describe_event(action, event) for event in response)


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
        return f"admit a waiting request: {counted(action.tokens, 'token')}"
    if isinstance(action, Extend):
        return f"extend a running request: {counted(action.tokens, 'token')}"
    return call_of(action)


def _describe_admission(
    request: int, tokens: int, promised: Any, _: int, blocks: Any, hit: int
) -> str:
    head = f"admit request {request}: {counted(tokens, 'token')}, hit {counted(hit, 'token')}"
    return f"{head}, {_promised(promised)} → {describe_blocks(blocks)}"


def _describe_extension(request: int, tokens: int, promised: Any, _: int, blocks: Any) -> str:
    head = f"extend request {request}: {counted(tokens, 'token')}, {_promised(promised)}"
    return f"{head} → {describe_blocks(blocks)}"


def _describe_refusal(action: Action, request: int, tokens: int, promised: Any, last: int) -> str:
    """``last`` is the hit of an admission, or whether an extension has writes to wait for."""
    if isinstance(action, Admit):
        head = f"admit request {request}: {counted(tokens, 'token')}, hit {counted(last, 'token')}"
        return f"{head}, {_promised(promised)} → refused"
    head = f"extend request {request}: {counted(tokens, 'token')}, {_promised(promised)}"
    return f"{head} → refused{', host writes will give blocks back' if last else ''}"


def _describe_step(requests: int, command: Any, updates: Any, _: Any) -> str:
    writes = [f"{t} (request {r}, {listed(b)} to host {h})" for t, r, h, *b in command]
    parts = [f"end of step: {counted(requests, 'request')}"]
    parts += [f"host writes {', '.join(writes)}"] if writes else []
    parts += [counted(len(updates), "residency update")] if updates else []
    return ", ".join(parts)


_WORDING: dict[str, Callable[..., str]] = {
    "arrived": lambda request, n: f"request {request} arrives: {counted(n, 'prompt token')}",
    "admitted": _describe_admission,
    "extended": _describe_extension,
    "step": _describe_step,
    "output": lambda n: f"output arrives: {counted(n, 'new token')}",
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
    return f"promised {counted(promised[-1] if promised else 0, 'block')}"


# A finding


def describe_configuration(configuration: Configuration) -> str:
    """The fields that matter to this engine and are not at their defaults, pools always."""
    pools = ("block_size", "num_blocks", "num_host_blocks", "max_model_len")
    told = [
        f"{field.name}={getattr(configuration, field.name)}"
        for field in fields(configuration)
        if field.name in pools or getattr(configuration, field.name) != field.default
    ]
    return ", ".join(told)


def _failures_and_changes(traces: Sequence[Trace], failing: int) -> list[RenderableType]:
    """The traces need snapshots at the step and the one before."""
    failures = [(trace.subject, last_line(trace.failure)) for trace in traces]
    shown: list[RenderableType] = [Text(f"{s}: {line}", "red") for s, line in failures if line]
    changes = _changes_table(traces, failing)
    return [*shown, Text("what changed in the state:"), changes] if changes.row_count else shown


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


MANAGER_WORDS = Words(
    describe_action=describe_action,
    describe_configuration=describe_configuration,
    responses=lambda trace: [step.response for step in trace.steps],
    ending=lambda trace: str(trace.ending),
    afterwards=lambda _: (),
    extras=_failures_and_changes,
)
