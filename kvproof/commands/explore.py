"""``kvproof explore``: all states of a small instance."""

from pathlib import Path
from typing import Annotated

import typer

from invariants.rules import RULES, Rule
from kvproof.commands.options import LONGEST_TIME, JsonOption, OutOption, finish
from kvproof.errors import CouldNotRun
from kvproof.gate.settings import read_settings
from kvproof.reports.exploration import explored_json, show_explored
from kvproof.search.exhaustive import Sizes, explore_abstract, explore_model
from kvproof.search.explored import Mode
from kvproof.search.findings import check_writable
from kvproof.subjects.names import dialect_named
from model.dialect import Dialect
from model.manager.configuration import problem_of
from model.startup import below_minimum
from specs.exhaustive.breadth import Limits
from specs.exhaustive.instance import Instance, instance_of


def explore_command(
    blocks: Annotated[int, typer.Option(min=2, max=10_000, help="The null block included.")],
    requests: Annotated[int, typer.Option(min=1, max=64, help="That arrive in all.")],
    pages: Annotated[int, typer.Option(min=1, max=1_000, help="That a hit reuses.")],
    hot: Annotated[int, typer.Option(min=1, max=1_000, help="Blocks of a hot region.")],
    dialect: Annotated[str, typer.Option(help="Dialect of the model.")],
    mode: Annotated[
        Mode, typer.Option(help="The model itself, or the abstract machine of specs/README.md.")
    ] = "model",
    block_size: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="Model only: tokens of a block; 2.")
    ] = None,
    host_blocks: Annotated[
        int | None,
        typer.Option(min=2, max=10_000, help="Model only; least of all dialects by default."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Model only: tokens of a step; the hit's."),
    ] = None,
    below: Annotated[
        bool, typer.Option("--below-minimum", help="Also where the engine would not start.")
    ] = False,
    rule: Annotated[str | None, typer.Option(help="Model only: judge one rule only.")] = None,
    reduction: Annotated[
        bool, typer.Option("--reduction/--no-reduction", help="Abstract only: up to renaming.")
    ] = True,
    time: Annotated[
        float, typer.Option(min=0.1, max=LONGEST_TIME, help="Seconds after which to give up.")
    ] = 120.0,
    max_states: Annotated[int | None, typer.Option(min=1)] = None,
    out: OutOption = None,
    json_output: JsonOption = False,
) -> None:
    """Search all states of a small instance, breadth-first: complete, or a shortest violation."""
    sizes, limits = Sizes(blocks, requests, pages, hot), Limits(time, max_states)
    chosen = dialect_named(dialect)
    given = {"--block-size": block_size, "--host-blocks": host_blocks, "--batch": batch}
    if mode == "abstract":
        _refuse({**given, "--rule": rule, "--below-minimum": below or None}, "model")
        explored = explore_abstract(sizes, chosen, limits, reduction)
    else:
        _refuse({"--no-reduction": None if reduction else True}, "abstract")
        rules = _rules(rule, chosen)
        instance = instance_of(
            chosen, blocks, requests, pages, hot, block_size or 2, host_blocks, batch
        )
        _check_start(instance, below)
        folder = out or Path(read_settings(Path.cwd()).out)
        check_writable(folder, "--out")
        explored = explore_model(instance, sizes, limits, rules, folder)
    finish(
        explored.verdict,
        json_output,
        lambda: explored_json(explored),
        lambda console: show_explored(console, explored),
    )


def _refuse(options: dict[str, object], mode: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise CouldNotRun(f"{name} is for --mode {mode} only: leave it out")


def _rules(only: str | None, dialect: Dialect) -> tuple[Rule, ...]:
    known = [rule.id for rule in RULES]
    if only is not None and only not in known:
        raise CouldNotRun(f"there is no rule {only!r}; there are {', '.join(known)}")
    waived = dialect.waived("manager")
    if only in waived:
        raise CouldNotRun(f"{only} is not judged under the dialect {dialect.name}: {waived[only]}")
    return tuple(rule for rule in RULES if only in (None, rule.id))


def _check_start(instance: Instance, below: bool) -> None:
    problem = problem_of(instance.configuration)
    if problem is not None:
        raise CouldNotRun(f"no engine would start so: {problem}")
    too_small = below_minimum(instance.configuration, instance.dialect)
    if too_small is not None and not below:
        raise CouldNotRun(
            f"{instance.dialect.name} would not start: {too_small}; "
            "take more, or say --below-minimum to explore it all the same"
        )
