"""What provisioning says while it works: on standard error, lively only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Report = Callable[[str, int, int | None], None]


def notice(text: str) -> None:
    """One line for the user; standard output belongs to results."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"kvproof: {text}")


@contextmanager
def reported(title: str) -> Iterator[Report]:
    """Show a long piece of work; yields ``report(step, done, total)``.

    On a terminal that moves a bar (``total`` None: a pulse); elsewhere only the start and the
    end are said, one line each.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        notice(f"{title} ...")
        yield lambda step, done, total: None
        notice(f"{title}: done")
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)

        def report(step: str, done: int, total: int | None) -> None:
            progress.update(task, description=f"{title}: {step}", completed=done, total=total)

        yield report
    notice(f"{title}: done")
