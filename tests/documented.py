"""Commands that documents and workflows show: found in a text, and read as the shell would."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from kvproof.cli import app_for

ROOT = Path(__file__).parents[1]
STARTED_BY = r"(?:pip|uv|uvx|bash|python|kvproof|\.ci/|scripts/)"
LINE = re.compile(rf"^(?:\s+|\$ |- )(?:- )?(?:run: |entry: )?(?:\$ )?({STARTED_BY}\b.*)$")
SPAN = re.compile(r"`((?:uv run|uvx|kvproof) [^`]+)`")
SEPARATORS = {"&&", "||", "|", ">", ">>", ";", "\\"}


def commands_of(text: str) -> list[str]:
    """Command lines in blocks and in spans of code; a line that ends in ``\\`` goes on."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = (re.sub(r"\s{2,}#.*$", "", line) for line in joined.splitlines())
    shown = [match[1].strip() for line in lines if (match := LINE.match(line))]
    return shown + [" ".join(span.split()) for span in SPAN.findall(text)]


def parts_of(command: str) -> Iterator[list[str]]:
    """The simple commands in a command line."""
    part: list[str] = []
    for word in shlex.split(command):
        if word in SEPARATORS:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def kvproof_arguments(command: str) -> list[list[str]]:
    """What follows ``kvproof`` in each of its calls, however it is started."""
    calls = []
    for part in parts_of(command):
        # `uv run --project kvproof kvproof …` names a folder first
        names = [i for i, w in enumerate(part) if w == "kvproof" and part[i - 1] != "--project"]
        if names and part[0] in ("kvproof", "uv", "uvx", "pip"):
            calls.append(part[names[0] + 1 :])
    return calls


def check_arguments(arguments: list[str]) -> None:
    """Raises a usage error for a command, an option or a value that there is not."""
    command, name, rest = get_command(app_for(arguments)), "kvproof", list(arguments)
    context = command.make_context(name, list(rest))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, rest)
        assert name is not None
        assert command is not None
        context = command.make_context(name, list(rest), parent=context)
