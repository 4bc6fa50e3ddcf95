"""Replay: run a trace file on a subject, and say whether it still fails."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvproof.errors import CouldNotRun, EngineUnlike
from kvproof.levels.level import Examination, Examining
from kvproof.levels.manager import Examiner
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.search.findings import headline
from kvproof.search.hunt import WORKER_RULES
from kvproof.subjects.names import dialect_named
from kvproof.subjects.reference import reference_subject
from kvproof.subjects.subject import Subject
from model.dialect import Dialect
from model.events import PlainEvent
from model.manager.events import Response, StepEnded, plain
from model.releases import DIALECTS
from model.startup import below_minimum
from specs.casefile import CaseFile
from specs.expectations import Expected, expected, named

Result = Literal["FIXED", "FAILED", "ERROR"]
OUTCOMES: dict[Expected, Result] = {"fails": "FAILED", "passes": "FIXED"}


@dataclass(frozen=True, slots=True)
class Replayed:
    """How one trace went on one subject."""

    trace: str
    subject: str
    outcome: Result
    expected: Result | None
    first_changed_step: int | None
    """First action, from 0, that was answered differently than where the trace was found."""
    why: str = ""
    known: str | None = None
    """The known defect of the subject's release that the trace shows, if it is one."""
    starts: bool = True
    """Whether the subject would start with the trace's configuration at all."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of the subject."""

    @property
    def as_expected(self) -> bool:
        """Without an expectation of its own a trace must not fail, but for a known defect."""
        if self.expected is not None:
            return self.outcome == self.expected
        return self.outcome == "FIXED" or self.known is not None


def subjects_of(trace: CaseFile) -> tuple[str, ...]:
    """The subjects that a trace itself names."""
    if trace.expect is not None:
        return named((*trace.expect.fails, *trace.expect.passes))
    return (trace.found.subject,) if trace.found is not None else ()


def expected_of(trace: CaseFile, subject: str) -> Result | None:
    if trace.expect is None:
        return None
    said = expected(trace.expect, subject)
    return None if said is None else OUTCOMES[said]


def rule_of(trace: CaseFile) -> str | None:
    """The rule that a trace is about; without one, any broken rule counts."""
    if trace.expect is not None:
        return trace.expect.rule
    return trace.found.rule if trace.found is not None else None


def replay(path: Path, trace: CaseFile, subject: Subject, dialect_name: str | None) -> Replayed:
    """Run a trace on a subject."""
    dialect = _dialect(trace, subject, dialect_name)
    notes = subject.notes if dialect == subject.dialect else ()
    return dataclasses.replace(_replay(path, trace, subject, dialect), notes=notes)


def _replay(path: Path, trace: CaseFile, subject: Subject, dialect: Dialect) -> Replayed:
    too_small = below_minimum(trace.program.configuration, dialect)
    if too_small:
        return _not_started(path, trace, subject.name, too_small)
    try:
        result = _examined(Examiner(subject, dialect, watch_goals=False), trace)
        changed = first_changed_step(trace, subject)
    except EngineUnlike:
        raise
    except CouldNotRun as error:
        return not_replayed(path, trace, subject.name, error)
    return _replayed(path, trace, subject.name, result, changed)


def replay_scheduler(path: Path, trace: CaseFile, subject: Subject) -> Replayed:
    """Run a trace of whole engine steps on an engine."""
    return dataclasses.replace(_replay_scheduler(path, trace, subject), notes=subject.notes)


def _replay_scheduler(path: Path, trace: CaseFile, subject: Subject) -> Replayed:
    examiner = SchedulerExaminer(subject, watch_goals=False, digests=True)
    try:
        result = _examined(examiner, trace)
    except EngineUnlike:
        raise
    except CouldNotRun as error:
        return not_replayed(path, trace, subject.name, error)
    if result.refused is not None:
        return _not_started(path, trace, subject.name, result.refused)
    changed = first_difference(trace.digests, result.digests)
    return _replayed(path, trace, subject.name, result, changed)


def replay_nowhere(path: Path, subject: str, why: str) -> Replayed:
    """A trace that is not for a subject at all."""
    return Replayed(str(path), subject, "ERROR", None, None, why, starts=False)


def first_difference(recorded: Sequence[object], replayed: Sequence[object]) -> int | None:
    """The first answer that is another one; none if none was recorded."""
    if not recorded:
        return None
    for index, (ours, theirs) in enumerate(zip(recorded, replayed, strict=False)):
        if ours != theirs:
            return index
    shorter = min(len(recorded), len(replayed))
    return shorter if len(recorded) != len(replayed) else None


def _replayed(
    path: Path, trace: CaseFile, subject: str, result: Examination, changed: int | None
) -> Replayed:
    rule, expected = rule_of(trace), expected_of(trace, subject)
    outcome: Result = "FAILED" if _fails(result, rule) else "FIXED"
    why = "; ".join(
        f"{b.rule}: {headline(b)}{f' (known defect {b.known})' if b.known else ''}"
        for b in result.violations
    )
    known = next((b.known for b in result.violations if b.rule == rule), None)
    return Replayed(str(path), subject, outcome, expected, changed, why, known)


def _not_started(path: Path, trace: CaseFile, subject: str, why: str) -> Replayed:
    expected = expected_of(trace, subject)
    return Replayed(str(path), subject, "ERROR", expected, None, why, starts=False)


def not_replayed(path: Path, trace: CaseFile, subject: str, error: CouldNotRun) -> Replayed:
    expected = expected_of(trace, subject)
    return Replayed(str(path), subject, "ERROR", expected, None, str(error))


def _dialect(trace: CaseFile, subject: Subject, name: str | None) -> Dialect:
    """The dialect that is named; else, where a trace was found, the one it was found with."""
    found = trace.found
    if name is None and found and found.subject == subject.name and found.dialect in DIALECTS:
        name = found.dialect
    return subject.dialect if name is None else dialect_named(name)


def _examined(examiner: Examining, trace: CaseFile) -> Examination:
    """A crash or hang counts when it comes again: workers die of other things too."""
    result = examiner.examine(trace.program)
    return examiner.examine(trace.program) if result.rules_broken & WORKER_RULES else result


def _fails(result: Examination, rule: str | None) -> bool:
    """Whether the rule is broken, or the subject did not live to show it."""
    if rule is None:
        return any(violation.known is None for violation in result.violations)
    return bool(result.rules_broken & {rule, *WORKER_RULES})


def _essence(response: Response) -> list[PlainEvent]:
    """A response without what only tells workers of residency, which every release does its way."""
    return [
        told[:3] if isinstance(event, StepEnded) else told
        for event, told in zip(response, plain(response), strict=True)
    ]


def first_changed_step(trace: CaseFile, subject: Subject) -> int | None:
    """Compare the answers with those of the dialect in which the trace was found."""
    names = [trace.found.dialect] if trace.found is not None else []
    if trace.expect is not None:
        names += [n.removeprefix("reference:") for n in trace.expect.fails if "reference:" in n]
    if not names or names[0] not in DIALECTS:
        return None
    recorded = reference_subject(DIALECTS[names[0]], "recorded").run(trace.program, "none")
    replayed = subject.run(trace.program, "none")
    ours, theirs = (
        [_essence(step.response) for step in steps] for steps in (recorded.steps, replayed.steps)
    )
    return first_difference(ours, theirs)
