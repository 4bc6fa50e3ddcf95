"""What commands share: their options, and the way they end."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kvproof.engines.vllm.environment import Load
from kvproof.levels.level import Comparison
from kvproof.reports.streams import write_out, write_report
from model.program import Level
from specs.casefile import MAX_SEED

EXIT = {"clean": 0, "counterexample": 1, "incomplete": 2, "interrupted": 130}
"""Exit code of each verdict, and of what the user ended."""

SubjectOption = Annotated[str, typer.Option(help="reference:DIALECT, vllm==VERSION or vllm@PATH.")]
SubjectsOption = Annotated[list[str] | None, typer.Option("--subject", help="May be repeated.")]
DialectOption = Annotated[str | None, typer.Option(help="Dialect of the model to compare with.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
LoadOption = Annotated[
    Load,
    typer.Option(help="Load only the allocator's modules, or all of vLLM with torch (2.3 GB)."),
]
CompareOption = Annotated[
    Comparison,
    typer.Option(help="Exactly, or up to renaming of blocks and the order of the free queue."),
]
LevelOption = Annotated[
    Level, typer.Option(help="The KV-cache manager alone, or the whole scheduler of an engine.")
]
FixOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A setting of all drawn schedulers, for example cache=hisparse; may be repeated."
    ),
]
ShadowOption = Annotated[
    bool,
    typer.Option(
        "--shadow/--no-shadow",
        help="Whether the model follows the allocator's calls, at the level of the scheduler.",
    ),
]
LONGEST_TIME = 10_000_000.0
"""Seconds: a season. More, or no number, is a slip."""
TimeOption = Annotated[
    float | None, typer.Option("--time", min=0.1, max=LONGEST_TIME, help="Seconds to run.")
]
OutOption = Annotated[Path | None, typer.Option(help="Folder for the traces of findings.")]
SeedOption = Annotated[
    int | None,
    typer.Option(min=0, max=MAX_SEED, help="Drawn, and printed, if not given."),
]


def finish(
    verdict: str, as_json: bool, data: Callable[[], dict[str, Any]], show: Callable[[Console], None]
) -> None:
    """Report in the form that was asked for, and end with the verdict's exit code."""
    if as_json:
        write_out(json.dumps(data()) + "\n")
    else:
        write_report(show)
    raise typer.Exit(EXIT[verdict])
