"""The stages of the gate, a function each: what to run on one subject, and what it came to.

All raise ``CouldNotRun`` or ``CaseFileError`` where they cannot run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from invariants.proofs.predicted import LEAST_SHAPES, TWIN, sweep
from kvproof.errors import CouldNotRun
from kvproof.gate.plan import Plan
from kvproof.gate.results import (
    CanaryResult,
    Column,
    CorpusResult,
    EffortResult,
    PredictedResult,
    SearchResult,
    StageResult,
    TableResult,
)
from kvproof.gate.table import EXPECTED, expected_column, measure
from kvproof.levels.manager import ManagerExaminer, rules_for
from kvproof.levels.pair import PairExaminer
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.levels.table import LEVELS
from kvproof.search.findings import save_findings
from kvproof.search.hunt import soak
from kvproof.search.hypothesis_rounds import search
from kvproof.search.outcome import Outcome, Progress
from kvproof.search.replay import replay, replay_nowhere
from kvproof.search.replayed import Replayed
from kvproof.subjects.effort import efforts_of
from kvproof.subjects.names import has_level, open_subject
from kvproof.subjects.subject import Subject
from kvproof.subjects.worker import EngineSubject
from kvproof.theorems.proofs import Proofs
from kvproof.theorems.proving import run_proofs
from model.program import Level
from specs.casefile import CaseFile, CaseFileError, read_case

CANARY_RULE = "I4"
CANARY_MODES = {"cache": "hisparse", "external_store": False}
"""Schedulers in which nothing but the canary's defect breaks its rule."""
EFFORT_RULE = "I18"

Run = Callable[[Plan, str, Progress], StageResult]
"""A stage, on the subject that is named. A search tells of its progress; other stages do not."""


# The model itself


def reference_table(_: Plan, name: str, __: Progress) -> TableResult:
    """The table of each policy of the design."""
    return _measured([open_subject(f"{name}:{policy}") for policy in EXPECTED])


def proofs(*_: object) -> Proofs:
    return run_proofs()


# What a subject must show


def table(plan: Plan, name: str, _: Progress) -> TableResult:
    with open_subject(name, load=plan.settings.load) as subject:
        return _measured([subject])


def _measured(subjects: Sequence[Subject]) -> TableResult:
    """Each column beside the design's."""
    rows = measure(list(subjects))
    columns = [
        Column(
            subject.name,
            tuple(cells[subject.name] for cells in rows.values()),
            expected_column(subject.dialect.name) or (),
        )
        for subject in subjects
    ]
    return TableResult(tuple(columns), len(rows))


def predicted(plan: Plan, name: str, _: Progress) -> PredictedResult:
    """The arithmetic that is proved predicts this allocator, and a faulty one does not."""
    with open_subject(name, load=plan.settings.load) as subject:
        seen = sweep(lambda programs: subject.run_many(programs, "all"), subject.dialect)
    unseen = None if seen.twin_seen else TWIN.fault
    return PredictedResult(seen.shapes, LEAST_SHAPES, seen.calls, seen.mismatches, unseen)


def corpus(plan: Plan, name: str, _: Progress) -> CorpusResult:
    """Each case file at its own level; one of whole engine steps needs a scheduler."""
    folder = plan.settings.corpus_folder
    paths = sorted(folder.rglob("*.json"))
    if not paths:
        raise CouldNotRun(f"the corpus {folder} holds no trace files")
    cases = [(path, read_case(path)) for path in paths]
    with ExitStack() as opened:
        subjects = {
            level: opened.enter_context(open_subject(name, level, plan.settings.load))
            for level in LEVELS
            if has_level(name, level) and any(case.level == level for _, case in cases)
        }
        return CorpusResult(tuple(_replayed(cases, name, subjects)))


def _replayed(
    cases: Sequence[tuple[Path, CaseFile]], name: str, subjects: Mapping[Level, Subject]
) -> Iterator[Replayed]:
    for level, tools in LEVELS.items():
        for path, case in cases:
            if case.level == level and level in subjects:
                yield replay(path, case, subjects[level], None)
            elif case.level == level:
                yield replay_nowhere(path, name, f"it is a trace of {tools.programs}")


def effort(plan: Plan, name: str, _: Progress) -> EffortResult:
    """A step costs as much after a long context as after a short one."""
    with open_subject(name, "scheduler", plan.settings.load) as subject:
        assert isinstance(subject, EngineSubject)
        efforts = efforts_of(subject)
        waived = subject.dialect.waived("scheduler").get(EFFORT_RULE)
    return EffortResult(EFFORT_RULE, efforts, waived)


# Searches


def lockstep(plan: Plan, name: str, progress: Progress) -> SearchResult:
    with open_subject(name, load=plan.settings.load) as subject:
        outcome = soak(
            _examiner(subject),
            plan.settings.seed,
            programs=plan.profile.programs,
            progress=progress,
        )
    return _saved(plan, "lockstep", outcome)


def hypothesis_search(plan: Plan, name: str, progress: Progress) -> SearchResult:
    with open_subject(name, load=plan.settings.load) as subject:
        outcome = search(
            _examiner(subject),
            plan.settings.seed,
            max_examples=plan.profile.examples,
            progress=progress,
        )
    return _saved(plan, "search", outcome)


def scheduler(plan: Plan, name: str, progress: Progress) -> SearchResult:
    """Whole engine steps, with the ghosts of a worker and of a store."""
    with open_subject(name, "scheduler", plan.settings.load) as subject:
        outcome = soak(
            SchedulerExaminer(subject),
            plan.settings.seed,
            programs=plan.profile.scheduler_programs,
            progress=progress,
        )
    return _saved(plan, "scheduler", outcome)


def loading(plan: Plan, name: str, progress: Progress) -> SearchResult:
    """The stand-ins of focused loading change nothing: all of vLLM answers the same."""
    with (
        open_subject(name, load="focused") as focused,
        open_subject(name, load="full") as full,
    ):
        outcome = soak(
            PairExaminer(full, focused, full.dialect),
            plan.settings.seed,
            programs=plan.profile.programs_loaded_twice,
            progress=progress,
        )
    return _saved(plan, "loading", outcome)


def _saved(plan: Plan, stage: str, outcome: Outcome) -> SearchResult:
    try:
        return SearchResult(outcome, save_findings(outcome, plan.out / stage))
    except CaseFileError as error:
        return SearchResult(outcome, unsaved=str(error))


# Canaries: a gate that cannot see these fail sees nothing


def canary(plan: Plan, name: str, progress: Progress) -> CanaryResult:
    with open_subject(name, load=plan.settings.load) as subject:
        outcome = search(
            _examiner(subject, CANARY_RULE),
            plan.settings.seed,
            only=CANARY_RULE,
            max_examples=plan.profile.canary_examples,
            progress=progress,
        )
    return _canary_result(name, outcome)


def scheduler_canary(plan: Plan, name: str, progress: Progress) -> CanaryResult:
    """The same of whole engine steps."""
    with open_subject(name, "scheduler", plan.settings.load) as subject:
        outcome = soak(
            SchedulerExaminer(subject, CANARY_RULE, CANARY_MODES, watch_goals=False),
            plan.settings.seed,
            only=CANARY_RULE,
            programs=plan.profile.canary_examples,
            progress=progress,
        )
    return _canary_result(name, outcome)


def _canary_result(name: str, outcome: Outcome) -> CanaryResult:
    actions = [len(finding.program.actions) for finding in outcome.findings]
    return CanaryResult(name, CANARY_RULE, outcome.programs, actions[0] if actions else None)


def _examiner(subject: Subject, only: str | None = None) -> ManagerExaminer:
    return ManagerExaminer(subject, subject.dialect, rules_for(only), watch_goals=only is None)
