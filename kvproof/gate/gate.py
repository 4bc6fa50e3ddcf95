"""The gate: everything that must be green before a change to the allocator goes in."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from invariants.proofs.predicted import LEAST_SHAPES, TWIN, sweep
from invariants.rule_book import SCHEDULER_BY_DESIGN
from invariants.scheduler.effort import LONG, SHORT
from kvproof.errors import CouldNotRun
from kvproof.gate.settings import Settings
from kvproof.gate.table import EXPECTED, expected_column, measure
from kvproof.levels.manager import Examiner
from kvproof.levels.pair import PairExaminer
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.proving import run_proofs
from kvproof.search.findings import headline, save_findings
from kvproof.search.hunt import Outcome, Progress, Verdict, rules_for, search, soak
from kvproof.search.replay import Replayed, replay, replay_nowhere, replay_scheduler
from kvproof.subjects.names import has_scheduler, open_scheduler, open_subject
from kvproof.subjects.subject import Subject
from specs.casefile import CaseFileError, read_case

CANARY_RULE = "I4"
CANARY_MODES = {"cache": "hisparse", "external_store": False}
"""Schedulers in which nothing but the canary's defect breaks its rule."""
EFFORT_RULE = "I18"
SHOWN_MISMATCHES = 5
OWN_CORPUS = Path(__file__).resolve().parents[2] / "specs" / "corpus"


@dataclass(frozen=True, slots=True)
class Profile:
    """How much the gate runs."""

    examples: int
    """Programs of the Hypothesis search."""
    programs: int
    """Programs of the bare loop."""
    scheduler_programs: int
    """Programs of whole engine steps."""
    canary_examples: int = 3_000
    """Programs in which a canary must be seen to fail."""
    programs_loaded_twice: int = 0
    """Programs on which focused and full loading must agree: full loading installs 2.3 GB."""


PROFILES = {
    "pr": Profile(examples=1_500, programs=2_000, scheduler_programs=1_000),
    "nightly": Profile(
        examples=10_000, programs=50_000, scheduler_programs=20_000, programs_loaded_twice=1_000
    ),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the gate, on one subject."""

    name: str
    subject: str
    verdict: Verdict
    seconds: float
    details: tuple[str, ...] = ()


@dataclass(slots=True)
class GateResult:
    stages: list[Stage] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        verdicts = {stage.verdict for stage in self.stages}
        if "counterexample" in verdicts:
            return "counterexample"
        return "clean" if verdicts == {"clean"} else "incomplete"


StageOutcome = tuple[Verdict, tuple[str, ...]]
StageRun = Callable[[], StageOutcome]


@dataclass(frozen=True, slots=True)
class Gate:
    """Runs the stages; one that could not run is incomplete, and the others still run.

    ``announce`` is told what runs now.
    """

    settings: Settings
    profile: Profile
    out: Path
    announce: Callable[[str], None] = lambda text: None

    def run(self) -> GateResult:
        """Raises ``CouldNotRun`` when there is nothing to check, or no canary to check it by."""
        for key in ("subjects", "canaries"):
            if not getattr(self.settings, key):
                raise CouldNotRun(f"[tool.kvproof] {key} is empty: name at least one")
        started = time.monotonic()
        result = GateResult()
        for name, subject, stage in self.stages():
            self.announce(f"{name} {subject}")
            result.stages.append(self._timed(name, subject, stage))
        result.seconds = time.monotonic() - started
        return result

    def stages(self) -> Iterator[tuple[str, str, StageRun]]:
        yield "table", "reference", self._reference_table
        yield "proofs", "reference", self._proofs
        for canary in self.settings.canaries:
            yield "canary", canary, partial(self._canary, canary)
            if has_scheduler(canary):
                yield "scheduler canary", canary, partial(self._scheduler_canary, canary)
        for name in self.settings.subjects:
            yield "table", name, partial(self._with, name, self._table)
            yield "predicted", name, partial(self._with, name, self._predicted)
            yield "corpus", name, partial(self._with, name, self._corpus)
            yield "lockstep", name, partial(self._with, name, self._lockstep)
            yield "search", name, partial(self._with, name, self._search)
            if has_scheduler(name):
                yield "scheduler", name, partial(self._scheduler, name)
                yield "effort", name, partial(self._effort, name)
            if self.profile.programs_loaded_twice and not name.startswith("reference:"):
                yield "loading", name, partial(self._loading, name)

    def _proofs(self) -> StageOutcome:
        proofs = run_proofs()
        odd = [f"{r.id}: {r.verdict}, twin {r.twin}" for r in proofs.results if not r.as_expected]
        return proofs.verdict, tuple(odd) or (f"{len(proofs.results)} obligations as expected",)

    def _timed(self, name: str, subject: str, stage: StageRun) -> Stage:
        started = time.monotonic()
        try:
            verdict, details = stage()
        except (CouldNotRun, CaseFileError) as error:
            verdict, details = "incomplete", (str(error),)
        return Stage(name, subject, verdict, time.monotonic() - started, details)

    def _with(self, name: str, stage: Callable[[Subject], StageOutcome]) -> StageOutcome:
        with open_subject(name, load=self.settings.load) as subject:
            return stage(subject)

    def _reference_table(self) -> StageOutcome:
        subjects = [open_subject(f"reference:{policy}") for policy in EXPECTED]
        return _table_verdict(subjects)

    def _table(self, subject: Subject) -> StageOutcome:
        return _table_verdict([subject])

    def _predicted(self, subject: Subject) -> StageOutcome:
        """The arithmetic that is proved predicts this allocator, and a faulty one does not."""
        if subject.dialect is None:
            raise CouldNotRun(f"{subject.name} has no dialect to predict it by")
        agreement = sweep(lambda programs: subject.run_many(programs, "all"), subject.dialect)
        details = [*agreement.mismatches[:SHOWN_MISMATCHES]]
        details.append(
            f"{agreement.shapes:,} pool shapes, {agreement.calls:,} allocations, "
            f"{len(agreement.mismatches):,} mismatches"
        )
        if not agreement.twin_seen:
            details.append(f"no mismatch of the faulty arithmetic: {TWIN.fault}")
        if agreement.shapes < LEAST_SHAPES:
            details.append(f"fewer than {LEAST_SHAPES:,} pool shapes")
            return "incomplete", tuple(details)
        agrees = agreement.twin_seen and not agreement.mismatches
        return ("clean" if agrees else "counterexample"), tuple(details)

    def _canary(self, name: str) -> StageOutcome:
        """A known-bad subject must fail: a gate that cannot see this sees nothing."""
        with open_subject(name, load=self.settings.load) as subject:
            examiner = _examiner(subject, CANARY_RULE)
            outcome = search(
                examiner,
                self.settings.seed,
                only=CANARY_RULE,
                max_examples=self.profile.canary_examples,
                progress=self._watch(f"canary {name}"),
            )
        return _canary_verdict(name, outcome)

    def _scheduler_canary(self, name: str) -> StageOutcome:
        """The same of whole engine steps."""
        with open_scheduler(name, load=self.settings.load) as subject:
            outcome = soak(
                SchedulerExaminer(subject, CANARY_RULE, CANARY_MODES, watch_goals=False),
                self.settings.seed,
                only=CANARY_RULE,
                programs=self.profile.canary_examples,
                progress=self._watch(f"scheduler canary {name}"),
            )
        return _canary_verdict(name, outcome)

    def _corpus(self, subject: Subject) -> StageOutcome:
        folder = Path(self.settings.corpus) if self.settings.corpus else OWN_CORPUS
        paths = sorted(folder.rglob("*.json"))
        if not paths:
            raise CouldNotRun(f"the corpus {folder} holds no trace files")
        entries = self._replayed(paths, subject)
        run = [entry for entry in entries if entry.starts]
        wrong = [entry for entry in run if not entry.as_expected]
        details = [
            f"{Path(e.trace).name}: {e.outcome}, expected {e.expected or 'FIXED'}; {e.why}"
            for e in wrong
        ]
        details += [
            f"known defect {e.known}: {Path(e.trace).name}" for e in run if e.known is not None
        ]
        details += [
            f"{Path(e.trace).name} is not for this subject: {e.why}"
            for e in entries
            if not e.starts
        ]
        details.append(f"{len(run)} traces")
        if any(entry.outcome != "ERROR" for entry in wrong):
            return "counterexample", tuple(details)
        return ("incomplete" if wrong or not run else "clean"), tuple(details)

    def _replayed(self, paths: Sequence[Path], subject: Subject) -> list[Replayed]:
        """Each trace at its own level; one of whole engine steps needs a scheduler."""
        traces = [(path, read_case(path)) for path in paths]
        steps = [(path, trace) for path, trace in traces if trace.level == "scheduler"]
        entries = [
            replay(path, trace, subject, None) for path, trace in traces if trace.level == "manager"
        ]
        if not has_scheduler(subject.name):
            why = "it is a trace of whole engine steps"
            return entries + [replay_nowhere(path, subject.name, why) for path, _ in steps]
        with open_scheduler(subject.name, load=self.settings.load) as scheduler:
            return entries + [replay_scheduler(path, trace, scheduler) for path, trace in steps]

    def _lockstep(self, subject: Subject) -> StageOutcome:
        outcome = soak(
            _examiner(subject, None),
            self.settings.seed,
            programs=self.profile.programs,
            progress=self._watch(f"lockstep {subject.name}"),
        )
        return self._reported(outcome, "lockstep")

    def _search(self, subject: Subject) -> StageOutcome:
        outcome = search(
            _examiner(subject, None),
            self.settings.seed,
            max_examples=self.profile.examples,
            progress=self._watch(f"search {subject.name}"),
        )
        return self._reported(outcome, "search")

    def _scheduler(self, name: str) -> StageOutcome:
        """Whole engine steps, with the ghosts of a worker and of a store."""
        with open_scheduler(name, load=self.settings.load) as subject:
            outcome = soak(
                SchedulerExaminer(subject),
                self.settings.seed,
                programs=self.profile.scheduler_programs,
                progress=self._watch(f"scheduler {name}"),
            )
        return self._reported(outcome, "scheduler")

    def _effort(self, name: str) -> StageOutcome:
        """A step costs as much after a long context as after a short one."""
        with open_scheduler(name, load=self.settings.load) as subject:
            efforts = subject.efforts()
            waived = SCHEDULER_BY_DESIGN.get(subject.dialect.name, {}).get(EFFORT_RULE)
        details = [
            f"{EFFORT_RULE}: {e.cache}{', asynchronous' if e.asynchronous else ''}: "
            f"{e.short} calls after {SHORT} pages, {e.long} after {LONG}"
            for e in efforts
            if e.grows
        ]
        details += [f"{EFFORT_RULE} is not judged: {waived}"] if waived else []
        details.append(f"{len(efforts)} caches and schedulers")
        grows = any(effort.grows for effort in efforts)
        return ("counterexample" if grows and not waived else "clean"), tuple(details)

    def _loading(self, name: str) -> StageOutcome:
        """The stand-ins of focused loading change nothing: all of vLLM answers the same."""
        with (
            open_subject(name, load="focused") as focused,
            open_subject(name, load="full") as full,
        ):
            if full.dialect is None:
                raise CouldNotRun(f"{name} has no dialect to draw programs for")
            outcome = soak(
                PairExaminer(full, focused, full.dialect),
                self.settings.seed,
                programs=self.profile.programs_loaded_twice,
                progress=self._watch(f"loading {name}"),
            )
        return self._reported(outcome, "loading")

    def _watch(self, stage: str) -> Progress:
        def show(outcome: Outcome, doing: str = "", /) -> None:
            self.announce(f"{stage}: {doing or f'{outcome.programs:,} programs'}")

        return show

    def _reported(self, outcome: Outcome, stage: str) -> StageOutcome:
        details, paths = [], {}
        try:
            paths = save_findings(outcome, self.out / stage)
        except CaseFileError as error:  # what was found counts all the same
            details.append(str(error))
        for finding in outcome.findings:
            violation, path = finding.violation, paths.get(finding.violation.rule)
            replayed = f"; kvproof replay {shlex.quote(str(path))}" if path else ""
            place = f"at step {violation.step + 1}"
            if violation.step >= len(finding.program.actions):
                place = "after the last step"
            details.append(f"{violation.rule} {place}: {headline(violation)}{replayed}")
        if outcome.stopped:
            details.append(f"ended early: {outcome.stopped}")
        details += [f"{rule} {n} times, and not again" for rule, n in outcome.unrepeated.items()]
        details += [f"goal not met: {goal}" for goal in outcome.unmet]
        details += [f"known defect {name}, seen {n} times" for name, n in outcome.known.items()]
        details += [f"{rule} is not judged: {why}" for rule, why in outcome.waived.items()]
        details += [f"not run, {n} times: {why}" for why, n in outcome.refused.items()]
        moving = f", {outcome.actions_moving:,} moving actions" if outcome.actions_moving else ""
        steps = f", {outcome.steps:,} scheduler steps" if outcome.steps else ""
        details.append(f"{outcome.programs:,} programs{moving}{steps}")
        return outcome.verdict, tuple(details)


def _canary_verdict(name: str, outcome: Outcome) -> StageOutcome:
    if outcome.findings:
        steps = len(outcome.findings[0].program.actions)
        return "clean", (f"{CANARY_RULE} seen to fail, in {steps} actions",)
    missed = f"{name} is known to break {CANARY_RULE}, and nothing was found"
    return "counterexample", (f"{missed} in {outcome.programs} programs",)


def _examiner(subject: Subject, only: str | None) -> Examiner:
    if subject.dialect is None:
        raise CouldNotRun(f"{subject.name} has no dialect to be compared with")
    return Examiner(subject, subject.dialect, rules_for(only), watch_goals=only is None)


def _table_verdict(subjects: Sequence[Subject]) -> StageOutcome:
    """Compare each column with the design's."""
    table = measure(list(subjects))
    wrong: list[str] = []
    for subject in subjects:
        if subject.dialect is None:
            raise CouldNotRun(f"{subject.name} has no dialect to be compared with")
        column = tuple(cells[subject.name] for cells in table.values())
        expected = expected_column(subject.dialect.name)
        if column != expected:
            wrong.append(f"{subject.name}: {' '.join(column)}; expected {' '.join(expected or ())}")
    return ("counterexample" if wrong else "clean"), tuple(wrong) or (f"{len(table)} rows",)
