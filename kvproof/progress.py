"""Progress of a search on standard error; quiet when that is not a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvproof.search import Outcome


@contextmanager
def counting(title: str, total: int | None = None) -> Iterator[Callable[[Outcome], None]]:
    """Show how many programs have run; yields the function to call after each."""
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda outcome: bar.update(task, completed=outcome.programs)
