"""Progress of a search or of the gate on standard error: lively on a terminal, else a line now and
then."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvproof.gate.events import GateEvent, Observer, StageStarted
from kvproof.reports.consoles import errors
from kvproof.reports.streams import write_line
from kvproof.reports.words.gate import describe_event
from kvproof.search.outcome import Outcome
from kvproof.search.outcome import Progress as Watcher

QUIET_SECONDS = 60.0
"""Where no bar can move, something is said so often."""


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Watcher]:
    """Show how many programs have run; yields the function to call after each."""
    console = errors()
    if not console.is_terminal:
        yield _now_and_then(title)
        return
    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def show(outcome: Outcome, doing: str = "", /) -> None:
            description = f"{title}: {doing}" if doing else title
            bar.update(task, completed=outcome.programs, description=description)

        yield show


def _now_and_then(title: str) -> Watcher:
    last = time.monotonic()

    def tell(outcome: Outcome, doing: str = "", /) -> None:
        nonlocal last
        if time.monotonic() - last >= QUIET_SECONDS:
            last = time.monotonic()
            write_line(f"{title}: {outcome.programs:,} programs{f', {doing}' if doing else ''}")

    return tell


@contextmanager
def showing_stages() -> Iterator[Observer]:
    """Show what the gate does; yields its observer."""
    console = errors()
    if not console.is_terminal:
        yield _stage_by_stage
        return
    with console.status("gate") as status:

        def show(event: GateEvent) -> None:
            status.update(escape(describe_event(event)))

        yield show


def _stage_by_stage(event: GateEvent) -> None:
    if isinstance(event, StageStarted):
        write_line(f"gate: {describe_event(event)}")
