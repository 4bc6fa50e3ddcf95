"""Where results go: to standard output or a file, and everything else to standard error."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from kvproof.errors import CouldNotRun
from kvproof.reports.consoles import SafeConsole, shown

WIDTH_OF_FILES = 160
"""Columns of a report that goes to a file or a pipe."""


def replace_what_cannot_be_encoded() -> None:
    """An arrow that the user's encoding lacks is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def write_report(show: Callable[[Console], None]) -> None:
    """Let a report be written on a console for standard output."""
    console = SafeConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_OF_FILES
    with console.capture() as capture:
        show(console)
    write_out(capture.get())


def write_out(text: str) -> None:
    """Write to standard output; that nobody reads it any more is fine.

    Raises ``CouldNotRun`` when it cannot be written for another reason.
    """
    if sys.stdout is None:  # closed by the caller
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise CouldNotRun(f"cannot write to standard output: {error.strerror}") from error


def write_file(path: Path, text: str) -> None:
    """Write the whole file, or leave what was there; raises ``CouldNotRun``."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CouldNotRun(f"cannot write {path}: {error.strerror}; name another file") from error


def write_line(text: str) -> None:
    """One line for the user on standard error, whatever the text holds."""
    print(f"kvproof: {shown(' '.join(text.split()))}", file=sys.stderr)
