"""Check a call log: lockstep with the model at every call, and the rules on every step."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from invariants.conformance.judging import CallJudge, Streams
from invariants.conformance.log import CallLog
from invariants.conformance.mirror import DifferenceError, Mirror
from invariants.conformance.reading import CallLogError
from invariants.conformance.records import Call, Scheduled, Step
from invariants.conformance.scope import BeyondModelError, configuration_of
from invariants.conformance.wording import wording
from invariants.violation import Cause, Violation
from model.dialect import Dialect


@dataclass(frozen=True, slots=True)
class CallFinding:
    """A rule that the log breaks, or ``lockstep``."""

    rule: str
    line: int
    call: str
    cause: Cause
    evidence: tuple[str, ...]
    known: str | None = None


@dataclass(slots=True)
class Checked:
    """What checking a log came to."""

    path: Path
    dialect: str
    calls: int = 0
    """Calls of the allocator that were followed; marks of steps are none."""
    steps: int = 0
    findings: list[CallFinding] = field(default_factory=list)
    """The first of each rule, known defects left out."""
    known: Counter[str] = field(default_factory=Counter)
    """Known defects of the dialect, how often each was seen."""
    waived: dict[str, str] = field(default_factory=dict)
    """Rules that were not judged, each with the reason."""
    ended: str | None = None
    """Why the log could not be followed to its end, with the line."""
    torn: int | None = None
    """A last line that was not written to its end."""
    notes: tuple[str, ...] = ()
    """What a reader has to know of the release that wrote the log."""

    @property
    def verdict(self) -> str:
        if self.findings:
            return "counterexample"
        return "incomplete" if self.ended or not self.calls else "clean"


def check(path: Path, dialect: Dialect, rules: bool = True) -> Checked:
    """Play a log on the model under a dialect. Raises CallLogError if it is no log at all."""
    log = CallLog(path)
    header = log.header()
    result = Checked(path, dialect.name)
    try:
        mirror = Mirror(configuration_of(header), dialect)
    except BeyondModelError as error:
        result.ended = f"line 1: the model ends here: {error}"
        return result
    judge = None
    if rules:
        streams = Streams(mirror.configuration.block_size)
        streams.learn(log.calls())
        judge = CallJudge(mirror, streams)
        no_marks = dict.fromkeys(judge.without_steps, "the log marks no steps")
        result.waived = {**judge.waived, **no_marks}
    for number, call in log.calls():
        if not _check_call(result, mirror, judge, number, call):
            break
    result.torn = log.torn
    return result


def _check_call(
    result: Checked, mirror: Mirror, judge: CallJudge | None, number: int, call: Call
) -> bool:
    """Whether the log can be followed further."""
    violations: list[Violation] = []
    try:
        if mirror.follow(call) and judge is not None:
            violations += judge.progress(call)
        played = mirror.answer(call)
    except DifferenceError as error:
        _add(result, CallFinding("lockstep", number, wording(call), Cause.DIFFERS, (str(error),)))
        return False
    except BeyondModelError as error:
        result.ended = f"line {number}: the model ends here: {error}"
        return False
    except CallLogError as error:
        raise CallLogError(f"{result.path}, line {number}: {error}") from None
    result.calls += not isinstance(call, Step | Scheduled)
    result.steps += isinstance(call, Scheduled)
    if judge is not None:
        violations += judge.judge(call, played)
    for violation in violations:
        _report(result, number, call, violation)
    if played.raised is not None:
        result.ended = f"line {number}: the allocator raised {played.raised}"
        return False
    return True


def _report(result: Checked, number: int, call: Call, violation: Violation) -> None:
    if violation.known is not None:
        result.known[violation.known] += 1
    else:
        _add(
            result,
            CallFinding(violation.rule, number, wording(call), violation.cause, violation.evidence),
        )


def _add(result: Checked, finding: CallFinding) -> None:
    """One finding per rule: the first."""
    if all(finding.rule != earlier.rule for earlier in result.findings):
        result.findings.append(finding)
