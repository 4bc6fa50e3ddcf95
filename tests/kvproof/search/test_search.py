"""Search and soak: what they find, what they make of it, and when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from invariants.manager.transition import Transition
from invariants.rules import Rule
from invariants.violation import Cause, Seen, Violation
from kvproof.errors import CouldNotRun
from kvproof.levels.manager import ManagerExaminer
from kvproof.levels.pair import PairExaminer
from kvproof.search import shrinking
from kvproof.search.findings import check_writable, headline, save_findings
from kvproof.search.hunt import MAX_DEATHS, soak
from kvproof.search.hypothesis_rounds import search
from kvproof.search.outcome import Outcome
from kvproof.subjects.names import open_subject
from kvproof.subjects.reference import reference_subject
from kvproof.subjects.subject import Detail, Subject
from model.dialect import Dialect
from model.manager.actions import EndStep, Finish
from model.manager.events import Idle
from model.manager.program import ManagerProgram
from model.program import Level
from model.releases import DIALECTS
from model.startup import below_minimum
from model.trace import Trace
from specs.casefile import CaseFileError, read_case

NEWEST = DIALECTS["vllm-0.33.0"]


def broken_by(action: type, cause: Cause = Cause.LOST) -> Callable[[Transition], Iterator[Seen]]:
    """A predicate that no step with this action satisfies, unless it is idle."""

    def predicate(step: Transition) -> Iterator[Seen]:
        if isinstance(step.action, action) and not step.happened(Idle):
            yield Seen(cause, "seen")

    return predicate


K2_RULE, K2_CAUSE = "I7", Cause.NEVER_WRITTEN
ON_END_OF_STEP = Rule("I2", "No step ends.", (broken_by(EndStep),))
ON_FINISH = Rule("I5", "No request ends.", (broken_by(Finish),))
ON_FINISH_AS_K2 = Rule(K2_RULE, "No request ends.", (broken_by(Finish, K2_CAUSE),))
ABSURD = (ON_END_OF_STEP, ON_FINISH)


def examiner(*rules: Rule, dialect: Dialect = NEWEST) -> ManagerExaminer:
    return ManagerExaminer(reference_subject(dialect), dialect, rules, watch_goals=False)


def summary(outcome: Outcome) -> Any:
    """All that must be the same when a search runs again."""
    return (replace(outcome, seconds=0.0), outcome.findings)


@dataclass
class FakeEngine:
    """A subject that runs programs on the model; ``spoil`` says what becomes of each trace."""

    spoil: Callable[[FakeEngine, Trace], Trace]
    dialect: Dialect = NEWEST
    name: str = "fake"
    level: Level = "manager"
    notes: tuple[str, ...] = ()
    programs: list[ManagerProgram] = field(default_factory=list)

    def run(self, program: ManagerProgram, detail: Detail = "digests") -> Trace:
        self.programs.append(program)
        return self.spoil(self, reference_subject(NEWEST, self.name).run(program, detail))

    def run_many(
        self, programs: Iterable[ManagerProgram], detail: Detail = "digests"
    ) -> Iterator[Trace]:
        for program in programs:
            yield self.run(program, detail)

    def close(self) -> None:
        """Nothing runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def examiner(self) -> ManagerExaminer:
        subject: Subject = self
        return ManagerExaminer(subject, NEWEST, (), watch_goals=False)


def finishes(trace: Trace) -> bool:
    return any(isinstance(action, Finish) for action in trace.program.actions)


def dies(trace: Trace, ending: Any = "crashed") -> Trace:
    return Trace(trace.subject, trace.program, (), ending, f"the worker {ending}\nlast words")


# What is found

Run = Callable[[ManagerExaminer], Outcome]
RUNS: dict[str, Run] = {
    "search": lambda e: search(e, 7, max_examples=40),
    "soak": lambda e: soak(e, 7, programs=20),
}
both = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


@both
def test_a_search_goes_on_after_the_first_rule_and_reports_each_once(run: Run) -> None:
    outcome = run(examiner(*ABSURD))
    assert {f.violation.rule for f in outcome.findings} == {"I2", "I5"}
    assert len(outcome.findings) == 2
    assert outcome.verdict == "counterexample"


@both
def test_findings_are_minimal_and_start_on_every_release(run: Run) -> None:
    for finding in run(examiner(*ABSURD)).findings:
        program, rule = finding.program, finding.violation.rule
        alone = examiner(*ABSURD).exact(rule)
        assert rule in alone.examine(program).rules_broken
        for index in range(len(program.actions)):
            actions = program.actions[:index] + program.actions[index + 1 :]
            assert rule not in alone.examine(replace(program, actions=actions)).rules_broken
        for dialect in DIALECTS.values():
            assert below_minimum(program.configuration, dialect) is None


@both
def test_the_same_seed_gives_the_same_result(run: Run) -> None:
    assert summary(run(examiner(*ABSURD))) == summary(run(examiner(*ABSURD)))


@both
def test_without_a_broken_rule_the_budget_is_used_up_exactly(run: Run) -> None:
    outcome = run(examiner())
    assert (outcome.verdict, outcome.findings) == ("clean", [])
    assert outcome.programs == (40 if run is RUNS["search"] else 20)


def test_all_rounds_together_keep_to_the_budget() -> None:
    outcome = search(examiner(*ABSURD), 7, max_examples=25)
    assert len(outcome.findings) == 2
    assert outcome.programs == 25


def test_looking_for_one_rule_ends_with_it() -> None:
    for outcome in (
        search(examiner(ON_FINISH), 7, only="I5", max_examples=500),
        soak(examiner(ON_FINISH), 7, programs=500, only="I5"),
    ):
        assert [f.violation.rule for f in outcome.findings] == ["I5"]
        assert outcome.programs < 500


@pytest.mark.parametrize("run", [search, soak])
def test_a_search_with_a_time_ends_near_it(run: Callable[..., Outcome]) -> None:
    started = time.monotonic()
    outcome = run(examiner(), 7, seconds=1.0)
    assert outcome.programs
    assert 1.0 <= time.monotonic() - started < 4.0


def test_a_search_that_ran_no_program_is_incomplete() -> None:
    assert soak(examiner(), 7, seconds=0.0).verdict == "incomplete"
    assert search(examiner(), 7, seconds=0.0).verdict == "incomplete"


# Known defects


def test_a_known_defect_is_counted_and_turns_nothing_red() -> None:
    dialect = DIALECTS["vllm-0.30.0"]
    assert "K2" in dialect.known_defects
    for run in RUNS.values():
        outcome = run(examiner(ON_FINISH_AS_K2, dialect=dialect))
        assert (outcome.verdict, outcome.findings) == ("clean", [])
        assert outcome.known["K2"] > 0


def test_a_known_defect_that_is_asked_for_is_a_finding_marked_known() -> None:
    dialect = DIALECTS["vllm-0.30.0"]
    outcome = soak(examiner(ON_FINISH_AS_K2, dialect=dialect), 7, programs=20, only=K2_RULE)
    assert [(f.violation.rule, f.violation.known) for f in outcome.findings] == [(K2_RULE, "K2")]
    assert outcome.verdict == "counterexample"


def test_an_unknown_failure_is_not_minimised_into_a_known_one() -> None:
    as_k2 = broken_by(EndStep, K2_CAUSE)
    rule = Rule(K2_RULE, "No step ends, no request ends.", (as_k2, broken_by(Finish)))
    outcome = soak(examiner(rule, dialect=DIALECTS["vllm-0.30.0"]), 7, programs=20)
    (finding,) = outcome.findings
    assert finding.violation.known is None
    assert any(isinstance(action, Finish) for action in finding.program.actions)
    assert not any(isinstance(action, EndStep) for action in finding.program.actions)


# Workers that die


@both
@pytest.mark.parametrize(("ending", "rule"), [("crashed", "crash"), ("hung", "hang")])
def test_a_worker_that_always_dies_of_a_program_is_a_finding(
    run: Run, ending: str, rule: str
) -> None:
    engine = FakeEngine(lambda _, trace: dies(trace, ending) if finishes(trace) else trace)
    (finding,) = run(engine.examiner()).findings
    assert finding.violation.rule == rule
    assert headline(finding.violation) == f"the worker {ending}"
    assert finding.program.actions == (Finish(),)
    assert finding.violation.step == 0


@both
def test_a_worker_that_dies_once_of_a_program_is_no_finding_and_is_told_of(run: Run) -> None:
    engine = FakeEngine(lambda e, trace: dies(trace) if len(e.programs) == 3 else trace)
    outcome = run(engine.examiner())
    assert (outcome.verdict, outcome.findings) == ("clean", [])
    assert outcome.unrepeated == {"crash": 1}
    assert engine.programs[2] in engine.programs[3:]


def test_a_search_ends_when_the_worker_dies_again_and_again() -> None:
    engine = FakeEngine(lambda e, trace: dies(trace) if len(e.programs) % 2 else trace)
    outcome = soak(engine.examiner(), 7, programs=1_000)
    assert outcome.unrepeated == {"crash": MAX_DEATHS}
    assert outcome.stopped == f"the worker crashed or hung {MAX_DEATHS} times"
    assert outcome.verdict == "incomplete"


def test_minimising_a_hang_is_given_up_when_it_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shrinking, "SHRINKING_SECONDS", 0.3)

    def hang(_: FakeEngine, trace: Trace) -> Trace:
        if not finishes(trace):
            return trace
        time.sleep(0.1)
        return dies(trace, "hung")

    engine = FakeEngine(hang)
    started = time.monotonic()
    (finding,) = soak(engine.examiner(), 7, programs=3).findings
    assert finding.violation.rule == "hang"
    assert finding.violation.step == len(finding.program.actions) - 1
    assert time.monotonic() - started < 5


def test_a_difference_that_does_not_come_again_is_a_finding_as_it_was_seen() -> None:
    def differ(engine: FakeEngine, trace: Trace) -> Trace:
        if len(engine.programs) != 3:
            return trace
        return replace(trace, steps=(replace(trace.steps[0], digest="other"), *trace.steps[1:]))

    engine = FakeEngine(differ)
    outcome = soak(engine.examiner(), 7, programs=5)
    (finding,) = outcome.findings
    assert finding.violation.rule == "lockstep"
    assert finding.program == engine.programs[2]
    assert "seen once and not again" in finding.violation.evidence[-1]


def test_what_was_found_before_the_engine_could_not_go_on_is_kept() -> None:
    def fail(engine: FakeEngine, trace: Trace) -> Trace:
        if len(engine.programs) > 30:
            return replace(trace, steps=(), ending="error", failure="a stand-in was called")
        return dies(trace) if finishes(trace) else trace

    outcome = soak(FakeEngine(fail).examiner(), 7, programs=1_000)
    assert [f.violation.rule for f in outcome.findings] == ["crash"]
    assert (
        "could not be minimised: fake could not run" in outcome.findings[0].violation.evidence[-1]
    )


@both
def test_an_engine_that_cannot_run_a_program_ends_the_search_at_once(run: Run) -> None:
    engine = FakeEngine(
        lambda e, trace: (
            replace(trace, ending="error", failure="a stand-in was called")
            if len(e.programs) == 3
            else trace
        )
    )
    with pytest.raises(CouldNotRun, match="fake could not run a program: a stand-in was called"):
        run(engine.examiner())
    assert len(engine.programs) == 3


# Two subjects


def test_two_subjects_in_lockstep_are_clean_and_their_differences_are_found() -> None:
    deferred = open_subject("reference:deferred")
    same = PairExaminer(deferred, deferred, DIALECTS["deferred"])
    assert soak(same, 7, programs=10).verdict == "clean"

    other = PairExaminer(open_subject("reference:eager"), deferred, DIALECTS["eager"])
    (finding,) = soak(other, 1, programs=10).findings
    assert finding.violation.rule == "lockstep"
    assert len(finding.program.actions) <= 6


@pytest.mark.parametrize("ending", ["crashed", "hung"])
def test_two_subjects_that_die_alike_are_not_in_lockstep(ending: str) -> None:
    engine = FakeEngine(lambda _, trace: dies(trace, ending) if finishes(trace) else trace)
    (finding,) = soak(PairExaminer(engine, engine, NEWEST), 7, programs=10).findings
    assert finding.violation.rule == {"crashed": "crash", "hung": "hang"}[ending]
    assert finding.violation.evidence == (f"fake: the worker {ending}", "last words")


# Findings as files


def test_findings_become_trace_files_that_can_be_read(tmp_path: Path) -> None:
    outcome = soak(examiner(*ABSURD), 7, programs=20)
    paths = save_findings(outcome, tmp_path / "new" / "folder")
    assert set(paths) == {"I2", "I5"}
    for finding in outcome.findings:
        trace = read_case(paths[finding.violation.rule])
        assert trace.program == finding.program
        assert trace.found is not None
        assert trace.found.subject == "reference:vllm-0.33.0"
        assert (trace.found.rule, trace.found.seed) == (finding.violation.rule, 7)
    assert len(list(paths["I2"].parent.iterdir())) == 2


def test_a_subject_with_a_long_path_still_gets_a_file(tmp_path: Path) -> None:
    outcome = soak(examiner(ON_FINISH), 7, programs=5)
    outcome.subject = "vllm@/" + "very/long/" * 50
    (path,) = save_findings(outcome, tmp_path).values()
    assert path.is_file()


def test_a_folder_that_cannot_be_written_is_named_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CouldNotRun, match=r"--out: .*/file is not a folder"):
        check_writable(tmp_path / "file" / "sub" / "folder", "--out")
    check_writable(tmp_path / "none" / "yet", "--out")
    assert not (tmp_path / "none").exists()
    outcome = soak(examiner(ON_FINISH), 7, programs=5)
    with pytest.raises(CaseFileError, match="cannot write trace"):
        save_findings(outcome, tmp_path / "file" / "sub")


@pytest.mark.parametrize(
    ("evidence", "line"), [(("a", "b"), "a"), (("a\nb",), "a"), ((), "I1"), (("\n",), "I1")]
)
def test_a_headline_is_one_line(evidence: tuple[str, ...], line: str) -> None:
    assert headline(Violation("I1", 0, Cause.LOST, evidence)) == line
