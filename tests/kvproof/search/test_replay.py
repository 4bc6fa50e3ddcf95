"""Replay: FIXED, FAILED or ERROR, and whether that is what the trace expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import pytest

from kvproof.errors import CouldNotRun
from kvproof.gate.settings import OWN_CORPUS
from kvproof.levels.manager import first_changed_step
from kvproof.search.replay import expected_of, not_replayed, replay, subjects_of
from kvproof.search.replayed import Replayed
from kvproof.subjects.names import open_subject
from kvproof.subjects.reference import reference_subject
from kvproof.subjects.subject import Detail, Subject
from model.dialect import Dialect
from model.manager.actions import Admit, Arrive, EndStep
from model.manager.program import ManagerProgram
from model.program import Level
from model.releases import DIALECTS
from model.trace import Trace
from specs.casefile import CaseFile, Found, read_case
from specs.expectations import Expectation

K1 = OWN_CORPUS / "manager" / "k1-adoption-before-allocation.json"


@pytest.fixture
def k1() -> CaseFile:
    return read_case(K1)


def outcome(trace: CaseFile, subject: str, dialect: str | None = None) -> Replayed:
    with open_subject(subject) as opened:
        return replay(K1, trace, opened, dialect)


def found(rule: str, subject: str, dialect: str) -> Found:
    return Found(rule, 7, ("seen",), subject, dialect, 1, "0.1.0")


@pytest.mark.parametrize(
    ("subject", "result", "expected", "as_expected"),
    [
        ("reference:eager", "FAILED", "FAILED", True),
        ("reference:deferred", "FIXED", "FIXED", True),
        ("vllm==0.30.0", "FAILED", "FAILED", True),
        ("vllm==0.33.0", "FIXED", "FIXED", True),
        ("reference:deferred-ordered", "FIXED", None, True),
    ],
)
def test_a_trace_of_the_corpus_goes_as_it_expects(
    k1: CaseFile, subject: str, result: str, expected: str | None, as_expected: bool
) -> None:
    entry = outcome(k1, subject)
    assert (entry.outcome, entry.expected, entry.as_expected) == (result, expected, as_expected)
    assert (entry.trace, entry.subject) == (str(K1), subject)


@pytest.mark.parametrize(
    ("fails", "passes", "as_expected"),
    [
        (("reference:eager",), (), True),
        ((), ("reference:eager",), False),
        ((), (), False),
    ],
)
def test_a_failure_must_be_expected(
    k1: CaseFile, fails: tuple[str, ...], passes: tuple[str, ...], as_expected: bool
) -> None:
    trace = replace(k1, expect=Expectation("I4", fails, passes))
    entry = outcome(trace, "reference:eager")
    assert (entry.outcome, entry.as_expected) == ("FAILED", as_expected)
    assert entry.why.startswith("I4: ")


def test_a_fix_that_is_not_expected_is_not_as_expected(k1: CaseFile) -> None:
    trace = replace(k1, expect=Expectation("I4", ("reference:deferred",), ()))
    entry = outcome(trace, "reference:deferred")
    assert (entry.outcome, entry.expected, entry.as_expected) == ("FIXED", "FAILED", False)


def test_only_the_rule_of_the_trace_makes_it_fail(k1: CaseFile) -> None:
    trace = replace(k1, expect=Expectation("I2", (), ("reference:eager",)))
    entry = outcome(trace, "reference:eager")
    assert entry.outcome == "FIXED"
    assert "I4: " in entry.why


def test_without_a_rule_any_broken_rule_makes_it_fail(k1: CaseFile) -> None:
    trace = replace(k1, expect=None, found=None)
    assert outcome(trace, "reference:eager").outcome == "FAILED"
    assert outcome(trace, "reference:deferred").outcome == "FIXED"


def test_the_first_step_that_is_answered_differently_is_marked(k1: CaseFile) -> None:
    assert outcome(k1, "reference:eager").first_changed_step is None
    assert outcome(k1, "reference:deferred").first_changed_step == 7
    assert first_changed_step(replace(k1, expect=None), open_subject("reference:eager")) is None


def test_a_pool_below_the_start_up_minimum_is_an_error(k1: CaseFile) -> None:
    small = replace(k1.program.configuration, num_blocks=2)
    trace = replace(k1, program=replace(k1.program, configuration=small))
    entry = outcome(trace, "reference:eager")
    assert entry.outcome == "ERROR"
    assert "start-up minimum" in entry.why
    assert not entry.as_expected


def test_where_it_was_found_a_trace_is_compared_with_the_dialect_it_was_found_with(
    k1: CaseFile,
) -> None:
    trace = replace(k1, expect=None, found=found("lockstep", "reference:eager", "deferred"))
    assert outcome(trace, "reference:eager").outcome == "FAILED"
    assert outcome(trace, "reference:eager", "eager").outcome == "FIXED"
    assert outcome(trace, "reference:deferred").outcome == "FIXED"
    unknown = replace(trace, found=found("I4", "reference:eager", "of-the-future"))
    assert outcome(unknown, "reference:eager").outcome == "FAILED"


def test_a_trace_names_its_own_subjects(k1: CaseFile) -> None:
    expect = Expectation("I4", ("a", "b"), ("c",))
    assert subjects_of(replace(k1, expect=expect)) == ("a", "b", "c")
    assert subjects_of(replace(k1, expect=None, found=found("I4", "d", "eager"))) == ("d",)
    assert subjects_of(replace(k1, expect=None, found=None)) == ()
    assert expected_of(replace(k1, expect=expect), "b") == "FAILED"
    assert expected_of(replace(k1, expect=expect), "d") is None


def test_what_could_not_be_opened_is_an_error_with_its_reason(k1: CaseFile) -> None:
    entry = not_replayed(K1, k1, "vllm==0.30.0", CouldNotRun("no network"))
    assert entry == Replayed(str(K1), "vllm==0.30.0", "ERROR", "FAILED", None, "no network")


# Workers that die


@dataclass
class Dying:
    """A subject whose worker dies in the runs that are listed."""

    dies_in: Callable[[int], bool]
    name: str = "dying"
    level: Level = "manager"
    notes: tuple[str, ...] = ()
    dialect: Dialect = DIALECTS["deferred"]
    runs: list[ManagerProgram] = field(default_factory=list)

    def run(self, program: ManagerProgram, detail: Detail = "digests") -> Trace:
        self.runs.append(program)
        if self.dies_in(len(self.runs)):
            return Trace(self.name, program, (), "crashed", "killed by signal 9\nlast words")
        return reference_subject(DIALECTS["deferred"], self.name).run(program, detail)

    def run_many(
        self, programs: Iterable[ManagerProgram], detail: Detail = "digests"
    ) -> Iterator[Trace]:
        return (self.run(program, detail) for program in programs)

    def close(self) -> None:
        """Nothing runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("rule", ["I4", "lockstep", "crash"])
def test_a_worker_that_dies_of_a_trace_fails_it_whatever_its_rule(k1: CaseFile, rule: str) -> None:
    subject: Subject = Dying(lambda run: True)
    trace = replace(k1, expect=Expectation(rule))
    entry = replay(K1, trace, subject, None)
    assert (entry.outcome, entry.why) == ("FAILED", "crash: killed by signal 9")


def test_a_worker_that_died_once_is_given_a_second_run(k1: CaseFile) -> None:
    subject = Dying(lambda run: run == 1)
    assert replay(K1, k1, subject, None).outcome == "FIXED"


def test_an_engine_that_raises_is_not_replayed_beyond(k1: CaseFile) -> None:
    """The corpus trace ends where 0.30.0 raises: what follows it is not taken."""
    actions = (*k1.program.actions, Arrive(prompt=5), Admit(), EndStep())
    longer = replace(k1, program=replace(k1.program, actions=actions))
    assert outcome(longer, "reference:eager").outcome == "FAILED"
    assert outcome(longer, "reference:deferred").first_changed_step == 7


def test_the_whole_corpus_can_be_read_and_names_its_subjects() -> None:
    paths = sorted(Path(OWN_CORPUS).rglob("*.json"))
    assert paths
    for path in paths:
        assert subjects_of(read_case(path))
