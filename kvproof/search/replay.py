"""Replay: run a trace file on a subject, and say whether it still fails."""

from dataclasses import replace
from pathlib import Path

from kvproof.errors import CouldNotRun, EngineUnlike
from kvproof.levels.level import WORKER_RULES, Examination, Examiner, Replaying
from kvproof.levels.table import LEVELS
from kvproof.search.findings import headline
from kvproof.search.replayed import Replayed, Result
from kvproof.subjects.subject import Subject
from specs.casefile import CaseFile
from specs.expectations import Expected, expected, named

OUTCOMES: dict[Expected, Result] = {"fails": "FAILED", "passes": "FIXED"}


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


def replay(path: Path, case: CaseFile, subject: Subject, dialect: str | None) -> Replayed:
    """Run a case file on a subject of its level."""
    examiner = LEVELS[case.level].replaying(subject, case, dialect)
    notes = subject.notes if examiner.dialect == subject.dialect else ()
    return replace(_replay(path, case, examiner), notes=notes)


def _replay(path: Path, case: CaseFile, examiner: Replaying) -> Replayed:
    name = examiner.subject.name
    refusal = examiner.refusal(case.program)
    if refusal is not None:
        return _not_started(path, case, name, refusal)
    try:
        result = _examined(examiner, case)
        if result.refused is not None:
            return _not_started(path, case, name, result.refused)
        changed = examiner.first_change(case, result)
    except EngineUnlike:
        raise
    except CouldNotRun as error:
        return not_replayed(path, case, name, error)
    return _replayed(path, case, name, result, changed)


def replay_nowhere(path: Path, subject: str, why: str) -> Replayed:
    """A trace that is not for a subject at all."""
    return Replayed(str(path), subject, "ERROR", None, None, why, starts=False)


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


def _examined(examiner: Examiner, trace: CaseFile) -> Examination:
    """A crash or hang counts when it comes again: workers die of other things too."""
    result = examiner.examine(trace.program)
    return examiner.examine(trace.program) if result.rules_broken & WORKER_RULES else result


def _fails(result: Examination, rule: str | None) -> bool:
    """Whether the rule is broken, or the subject did not live to show it."""
    if rule is None:
        return any(violation.known is None for violation in result.violations)
    return bool(result.rules_broken & {rule, *WORKER_RULES})
