"""Replay: run a trace file on a subject, and say whether it still fails."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kvproof.errors import CouldNotRun
from kvproof.examine import Examination, Examiner
from kvproof.findings import headline
from kvproof.search import WORKER_RULES
from kvproof.subjects import Subject
from kvproof.subjects.naming import dialect_named
from kvproof.subjects.reference import ReferenceSubject
from model.dialect import DIALECTS, Dialect
from model.session import Event, Response
from model.startup import below_minimum
from specs.traces import TraceFile

Result = Literal["FIXED", "FAILED", "ERROR"]


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

    @property
    def as_expected(self) -> bool:
        """Without an expectation of its own a trace must not fail, but for a known defect."""
        if self.expected is not None:
            return self.outcome == self.expected
        return self.outcome == "FIXED" or self.known is not None


def subjects_of(trace: TraceFile) -> tuple[str, ...]:
    """The subjects that a trace itself names."""
    named: tuple[str, ...] = (trace.found.subject,) if trace.found is not None else ()
    if trace.expect is not None:
        named = (*trace.expect.fails, *trace.expect.passes)
    return named


def expected_of(trace: TraceFile, subject: str) -> Result | None:
    if trace.expect is None:
        return None
    if subject in trace.expect.fails:
        return "FAILED"
    return "FIXED" if subject in trace.expect.passes else None


def rule_of(trace: TraceFile) -> str | None:
    """The rule that a trace is about; without one, any broken rule counts."""
    if trace.expect is not None:
        return trace.expect.rule
    return trace.found.rule if trace.found is not None else None


def replay(path: Path, trace: TraceFile, subject: Subject, dialect_name: str | None) -> Replayed:
    """Run a trace on a subject; raises ``CouldNotRun`` when there is nothing to compare with."""
    expected = expected_of(trace, subject.name)
    dialect = _dialect(trace, subject, dialect_name)
    too_small = below_minimum(trace.program.configuration, dialect)
    if too_small:
        return Replayed(str(path), subject.name, "ERROR", expected, None, too_small, starts=False)
    try:
        result = _examined(Examiner(subject, dialect, watch_goals=False), trace)
        changed = first_changed_step(trace, subject)
    except CouldNotRun as error:
        return not_replayed(path, trace, subject.name, error)
    outcome: Result = "FAILED" if _fails(result, rule_of(trace)) else "FIXED"
    why = "; ".join(
        f"{b.rule}: {headline(b)}{f' (known defect {b.known})' if b.known else ''}"
        for b in result.breaches
    )
    known = next((b.known for b in result.breaches if b.rule == rule_of(trace)), None)
    return Replayed(str(path), subject.name, outcome, expected, changed, why, known)


def not_replayed(path: Path, trace: TraceFile, subject: str, error: CouldNotRun) -> Replayed:
    expected = expected_of(trace, subject)
    return Replayed(str(path), subject, "ERROR", expected, None, str(error))


def _dialect(trace: TraceFile, subject: Subject, name: str | None) -> Dialect:
    """The dialect that is named; else, where a trace was found, the one it was found with."""
    found = trace.found
    if name is None and found and found.subject == subject.name and found.dialect in DIALECTS:
        name = found.dialect
    if name is not None:
        return dialect_named(name)
    if subject.dialect is None:
        raise CouldNotRun(f"{subject.name} has no dialect of its own: name one with --dialect")
    return subject.dialect


def _examined(examiner: Examiner, trace: TraceFile) -> Examination:
    """A crash or hang counts when it comes again: workers die of other things too."""
    result = examiner.examine(trace.program)
    return examiner.examine(trace.program) if result.rules_broken & WORKER_RULES else result


def _fails(result: Examination, rule: str | None) -> bool:
    """Whether the rule is broken, or the subject did not live to show it."""
    if rule is None:
        return any(breach.known is None for breach in result.breaches)
    return bool(result.rules_broken & {rule, *WORKER_RULES})


def _essence(response: Response) -> list[Event]:
    """A response without what only tells workers of residency, which every release does its way."""
    return [event[:3] if event[0] == "step" else event for event in response]


def first_changed_step(trace: TraceFile, subject: Subject) -> int | None:
    """Compare the answers with those of the dialect in which the trace was found."""
    names = [trace.found.dialect] if trace.found is not None else []
    if trace.expect is not None:
        names += [n.removeprefix("reference:") for n in trace.expect.fails if "reference:" in n]
    if not names or names[0] not in DIALECTS:
        return None
    recorded = ReferenceSubject(DIALECTS[names[0]], None, "recorded").run(trace.program, "none")
    replayed = subject.run(trace.program, "none")
    for index, (ours, theirs) in enumerate(zip(recorded.steps, replayed.steps, strict=False)):
        if _essence(ours.response) != _essence(theirs.response):
            return index
    shorter = min(len(recorded.steps), len(replayed.steps))
    return shorter if len(recorded.steps) != len(replayed.steps) else None
