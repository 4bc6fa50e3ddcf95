"""Progress of a search or of the gate on standard error; quiet when that is no terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvproof.gate.events import GateEvent, Observer
from kvproof.reports.words.gate import describe_event
from kvproof.search.outcome import Outcome
from kvproof.search.outcome import Progress as Watcher


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Watcher]:
    """Show how many programs have run; yields the function to call after each."""
    console = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(title, total=total)

        def show(outcome: Outcome, doing: str = "", /) -> None:
            description = f"{title}: {doing}" if doing else title
            bar.update(task, completed=outcome.programs, description=description)

        yield show


@contextmanager
def showing_stages() -> Iterator[Observer]:
    """Show what the gate does; yields its observer."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("gate") as status:

        def show(event: GateEvent) -> None:
            status.update(escape(describe_event(event)))

        yield show
