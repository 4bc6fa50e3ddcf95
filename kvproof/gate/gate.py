"""The gate: runs the stages one after another, and tells what happens."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from kvproof.errors import CouldNotRun
from kvproof.gate import stages
from kvproof.gate.events import (
    GateEvent,
    GateResult,
    Observer,
    StageEnded,
    StageProgress,
    StageStarted,
)
from kvproof.gate.plan import Plan
from kvproof.gate.results import NotRun, StageResult, was_interrupted
from kvproof.search.outcome import Outcome
from kvproof.subjects.names import has_level, notes_on
from specs.casefile import CaseFileError


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the gate, to be run on one subject."""

    name: str
    subject: str
    run: stages.Run


def stages_of(plan: Plan) -> Iterator[Stage]:
    yield Stage("table", "reference", stages.reference_table)
    yield Stage("proofs", "reference", stages.proofs)
    for name in plan.settings.canaries:
        yield Stage("canary", name, stages.canary)
        if has_level(name, "scheduler"):
            yield Stage("scheduler canary", name, stages.scheduler_canary)
    for name in plan.settings.subjects:
        yield Stage("table", name, stages.table)
        yield Stage("predicted", name, stages.predicted)
        yield Stage("corpus", name, stages.corpus)
        yield Stage("lockstep", name, stages.lockstep)
        yield Stage("search", name, stages.hypothesis_search)
        if has_level(name, "scheduler"):
            yield Stage("scheduler", name, stages.scheduler)
            yield Stage("effort", name, stages.effort)
        if plan.profile.programs_loaded_twice and not name.startswith("reference:"):
            yield Stage("loading", name, stages.loading)


def unseen(event: GateEvent, /) -> None:
    """An observer that looks away."""


def run_gate(plan: Plan, observe: Observer = unseen) -> GateResult:
    """Run all stages; one that could not run is incomplete, and the others still run.

    Raises ``CouldNotRun`` when there is nothing to check, or no canary to check it by.
    """
    for key in ("subjects", "canaries"):
        if not getattr(plan.settings, key):
            raise CouldNotRun(f"[tool.kvproof] {key} is empty: name at least one")
    started, ended, interrupted = time.monotonic(), [], False
    try:
        for stage in stages_of(plan):
            observe(StageStarted(stage.name, stage.subject))
            ended.append(_run(stage, plan, observe))
            observe(ended[-1])
            if was_interrupted(ended[-1].result):
                raise KeyboardInterrupt  # it kept what it had found
    except KeyboardInterrupt:
        interrupted = True
    subjects = (*plan.settings.canaries, *plan.settings.subjects)
    notes = tuple(note for name in subjects for note in notes_on(name))
    return GateResult(tuple(ended), time.monotonic() - started, notes, interrupted)


def _run(stage: Stage, plan: Plan, observe: Observer) -> StageEnded:
    def progress(outcome: Outcome, doing: str = "", /) -> None:
        observe(StageProgress(stage.name, stage.subject, outcome.programs, doing))

    started = time.monotonic()
    result: StageResult
    try:
        result = stage.run(plan, stage.subject, progress)
    except (CouldNotRun, CaseFileError) as error:
        result = NotRun(str(error))
    return StageEnded(stage.name, stage.subject, time.monotonic() - started, result)
