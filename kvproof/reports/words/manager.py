"""The words of the manager level: the calls, their results, and what changed in the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kvproof.reports.words.finding import Words, last_line
from kvproof.reports.words.numbers import counted, listed
from kvproof.reports.words.state import differing_parts, group_names
from model.manager.actions import Action, Admit, Extend
from model.manager.configuration import Configuration
from model.manager.events import (
    IDLE,
    AdmissionRefused,
    Admitted,
    Arrived,
    CacheReset,
    Deferred,
    Ended,
    Event,
    Evicted,
    Extended,
    ExtensionRefused,
    Held,
    Idle,
    OutputProcessed,
    Preempted,
    Raised,
    Response,
    StepEnded,
    TransfersCompleted,
)
from model.program import call_of
from model.snapshot import Snapshot
from model.trace import Trace

# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the allocator's words, with their results."""
    if response == IDLE:
        return f"{call_of(action)}: not possible now"
    return "; ".join(_describe_event(action, event) for event in response)


def _describe_event(action: Action, event: Event) -> str:  # noqa: PLR0911, PLR0912
    match event:
        case Idle():
            return "nothing happens"
        case Arrived():
            return f"request {event.request} arrives: {counted(event.prompt, 'prompt token')}"
        case Admitted():
            return f"{_admission(event)} → {describe_blocks(event.blocks)}"
        case AdmissionRefused():
            return f"{_admission(event)} → refused"
        case Extended():
            return f"{_extension(event)} → {describe_blocks(event.blocks)}"
        case ExtensionRefused():
            why = ", host writes will give blocks back" if event.pending else ""
            return f"{_extension(event)} → refused{why}"
        case Raised():
            return f"{_asked(action)} → raised {event.kind}"
        case StepEnded():
            return _describe_step(event)
        case OutputProcessed():
            return f"output arrives: {counted(event.tokens, 'new token')}"
        case TransfersCompleted():
            return f"host writes complete: {listed(event.transfers)}"
        case Ended():
            return f"free request {event.request}: it ended"
        case Preempted():
            return f"preempt request {event.request}: its blocks are freed"
        case Deferred():
            return f"request {event.request}'s blocks wait for the steps in flight"
        case CacheReset():
            return f"reset the prefix cache → {'done' if event.done else 'refused'}"
        case Evicted():
            return f"evict the block of page {event.page} of request {event.request}"
        case Held():
            return f"take blocks until {event.free_blocks} are free"


def _asked(action: Action) -> str:
    """What was asked when the answer does not tell of which request."""
    if isinstance(action, Admit):
        return f"admit a waiting request: {counted(action.tokens, 'token')}"
    if isinstance(action, Extend):
        return f"extend a running request: {counted(action.tokens, 'token')}"
    return call_of(action)


def _admission(event: Admitted | AdmissionRefused) -> str:
    head = f"admit request {event.request}: {counted(event.tokens, 'token')}"
    return f"{head}, hit {counted(event.hit, 'token')}, {_promised(event.promised)}"


def _extension(event: Extended | ExtensionRefused) -> str:
    head = f"extend request {event.request}: {counted(event.tokens, 'token')}"
    return f"{head}, {_promised(event.promised)}"


def _describe_step(event: StepEnded) -> str:
    writes = [f"{t} (request {r}, {listed(b)} to host {h})" for t, r, h, *b in event.command]
    parts = [f"end of step: {counted(event.requests, 'request')}"]
    parts += [f"host writes {', '.join(writes)}"] if writes else []
    parts += [counted(len(event.updates), "residency update")] if event.updates else []
    return ", ".join(parts)


def describe_blocks(rows: Sequence[Sequence[int]]) -> str:
    """New blocks of each group that got some: ``blocks indexer [3 4] resident [5 6]``."""
    named = zip(group_names(len(rows)), rows, strict=True)
    return "blocks " + (" ".join(f"{n} {listed(row)}" for n, row in named if row) or "none")


def _promised(promised: Sequence[int]) -> str:
    """The predictor's last answer: that of the gate which decided."""
    return f"promised {counted(promised[-1] if promised else 0, 'block')}"


def _style(response: Response) -> str:
    if response == IDLE:
        return "dim"
    return "red" if any(isinstance(event, Raised) for event in response) else ""


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
    style=_style,
    describe_configuration=describe_configuration,
    afterwards=lambda _: (),
    extras=_failures_and_changes,
    compared=lambda outcome: f" against {outcome.against}",
    counted=lambda _: "",
)
