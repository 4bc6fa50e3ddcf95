"""Exhaustive search of a small instance: the model itself, or the abstract machine."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from invariants.rules import Rule
from invariants.violation import Violation
from kvproof.search.explored import Explored, Mode, ShortestWay
from kvproof.search.findings import VERSION, headline
from model.dialect import Dialect
from model.manager.program import ManagerProgram
from model.program import Program, action_to_json
from model.startup import below_minimum
from specs.casefile import FORMAT, CaseFile, Found, write_case
from specs.exhaustive.abstract import Machine, Step
from specs.exhaustive.abstract_space import AbstractSpace
from specs.exhaustive.breadth import Exploration, Limits, breadth_first
from specs.exhaustive.engine_space import EngineSpace
from specs.exhaustive.instance import Instance

ADMITTED = {"model": "admitted", "abstract": "Admit"}
"""What must have happened in a search that saw anything."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """An instance as the command line names it."""

    blocks: int
    requests: int
    pages: int
    hot: int

    def __str__(self) -> str:
        return f"{self.blocks}/{self.requests}/{self.pages}/{self.hot}"


def explore_model(
    instance: Instance, sizes: Sizes, limits: Limits, rules: tuple[Rule, ...], folder: Path
) -> Explored:
    """Search the model's own states; a violation is written to ``folder`` as a trace."""
    space = EngineSpace(instance, rules)
    seen = breadth_first(space, limits)
    violation = None
    if seen.violation is not None and seen.way is not None:
        trace = _trace_of(instance, seen.violation, Program(instance.configuration, seen.way))
        path = folder / f"{seen.violation.rule}-explore-{_file_name(instance.dialect, sizes)}.json"
        write_case(path, trace)
        actions = tuple(action_to_json(action) for action in seen.way)
        violation = ShortestWay(seen.violation.rule, seen.violation.evidence, actions, path)
    return _explored(
        "model",
        instance.dialect,
        sizes,
        seen,
        violation,
        space.taken,
        below_minimum=below_minimum(instance.configuration, instance.dialect),
        known=space.known,
        waived=instance.dialect.waived("manager"),
    )


def explore_abstract(
    sizes: Sizes, dialect: Dialect, limits: Limits, reduce: bool = True
) -> Explored:
    """Search the abstract machine."""
    space = AbstractSpace(Machine(**asdict(sizes), dialect=dialect), reduce)
    seen = breadth_first(space, limits)
    violation = None
    if seen.violation is not None and seen.way is not None:
        actions = tuple(_step_json(step) for step in seen.way)
        violation = ShortestWay("I4", (seen.violation,), actions)
    return _explored("abstract", dialect, sizes, seen, violation, space.taken)


def _explored(
    mode: Mode,
    dialect: Dialect,
    sizes: Sizes,
    seen: Exploration[Any, Any],
    violation: ShortestWay | None,
    taken: Counter[str],
    **more: Any,
) -> Explored:
    stopped = seen.stopped
    if seen.complete and not taken[ADMITTED[mode]]:
        stopped = "no request was ever admitted: the pool is too small to show anything"
    return Explored(
        mode,
        dialect.name,
        str(sizes),
        seen.complete and stopped is None,
        seen.states,
        seen.transitions,
        seen.depth,
        seen.seconds,
        stopped,
        violation,
        taken,
        **more,
    )


def _trace_of(instance: Instance, violation: Violation, program: ManagerProgram) -> CaseFile:
    subject = f"reference:{instance.dialect.name}"
    found = Found(
        violation.rule,
        violation.step,
        violation.evidence,
        subject,
        instance.dialect.name,
        None,
        VERSION,
        violation.cause,
    )
    about = f"{violation.rule} broken by {subject}, in the fewest actions: {headline(violation)}"
    return CaseFile(FORMAT, about, program, found, None)


def _file_name(dialect: Dialect, sizes: Sizes) -> str:
    return f"{dialect.name}-{str(sizes).replace('/', '-')}"


PARAMETERS = {"Pop": ("request", "block"), "Complete": ("block",)}
"""Of the abstract machine's actions; all others are of a request, or of a request's page."""


def _step_json(step: Step) -> dict[str, Any]:
    name, values = step
    names = PARAMETERS.get(name, ("request", "page")[: len(values)])
    return {"action": name, **dict(zip(names, values, strict=True))}
