"""``kvproof bounds``: the numbers of a deployment, and whether its pool suffices."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.commands.options import JsonOption, finish
from kvproof.reports.bounds import bounds_json, show_bounds
from kvproof.reports.plot import write_plot
from kvproof.subjects.names import dialect_named
from kvproof.theorems.deployment import Deployment, bounds_of
from model.releases import NEWEST


def bounds_command(
    blocks: Annotated[int, typer.Option(min=2, help="GPU pool, the null block included.")],
    hot: Annotated[int, typer.Option(min=1, help="Blocks of one request's hot region.")],
    block_size: Annotated[int, typer.Option(min=1, help="Tokens of a block.")],
    max_model_len: Annotated[int, typer.Option(min=2, help="Longest request, in tokens.")],
    max_in_flight: Annotated[
        int, typer.Option(min=1, help="Token budget of a step, times the steps in flight.")
    ],
    prefix_pages: Annotated[int, typer.Option(min=0, help="Pages of a hit; 0 is none.")] = 0,
    resident_groups: Annotated[int, typer.Option(min=1, help="Resident groups.")] = 1,
    dialect: Annotated[str, typer.Option(help="Dialect of the model.")] = NEWEST.dialect.name,
    watermark: Annotated[
        int, typer.Option(min=0, help="Blocks kept free beside running requests.")
    ] = 0,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=1, help="Prompt of the request; the longest if not given.")
    ] = None,
    behind: Annotated[
        int, typer.Option(min=0, help="Other free blocks, reused only after the hit's copies.")
    ] = 0,
    asynchronous: Annotated[
        bool, typer.Option("--async-scheduling", help="Two steps are in flight, not one.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="A finding about the deployment is exit code 1.")
    ] = False,
    json_output: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option(help="FILE.html, .svg or .png to draw; needs matplotlib.")
    ] = None,
) -> None:
    """Exact numbers of a deployment, each with its theorem, and whether its pool suffices."""
    deployment = Deployment(
        blocks=blocks,
        hot=hot,
        block_size=block_size,
        max_model_len=max_model_len,
        max_in_flight=max_in_flight,
        dialect=dialect_named(dialect),
        prefix_pages=prefix_pages,
        resident_groups=resident_groups,
        watermark=watermark,
        prompt=prompt_tokens,
        behind=behind,
        asynchronous=asynchronous,
    )
    bounds = bounds_of(deployment)
    if plot is not None:
        write_plot(plot, bounds)
    finish(
        bounds.verdict if check else "clean",
        json_output,
        lambda: bounds_json(bounds),
        lambda console: show_bounds(console, bounds),
    )
