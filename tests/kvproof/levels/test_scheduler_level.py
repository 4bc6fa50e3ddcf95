"""Whole engine steps: what a worker answers, what becomes of it, and what people are told."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from invariants.rules import RULES_OF, SENTENCED, sentence_of
from invariants.scheduler.account import account_of
from invariants.violation import Cause, Violation
from kvproof.engines.vllm.engine import Engine
from kvproof.engines.vllm.environment import Load
from kvproof.engines.vllm.inside.scheduler_worker import SchedulerRunner
from kvproof.errors import CouldNotRun
from kvproof.gate.gate import stages_of
from kvproof.gate.plan import Plan, Profile
from kvproof.gate.settings import OWN_CORPUS, Settings
from kvproof.levels.level import first_difference
from kvproof.levels.scheduler import SchedulerExaminer, check_defect, digests_of, modes_of
from kvproof.reports.as_json import outcome_json
from kvproof.reports.terminal import show_outcome
from kvproof.reports.words.finding import describe_finding
from kvproof.reports.words.gate import details_of
from kvproof.reports.words.scheduler import SCHEDULER_WORDS, describe_action
from kvproof.search.findings import save_findings
from kvproof.search.hunt import MAX_DEATHS, soak
from kvproof.search.outcome import Outcome, unseen
from kvproof.search.replay import replay
from kvproof.subjects.decoding import digest_of_answer
from kvproof.subjects.effort import efforts_of
from kvproof.subjects.names import has_level, open_subject
from kvproof.subjects.subject import Subject
from kvproof.subjects.worker import EngineSubject
from model.events import PlainResponse
from model.program import Program, call_of, program_to_json
from model.releases import DIALECTS
from model.scheduler.actions import (
    Abort,
    Action,
    Arrive,
    CompleteLoad,
    CompleteTransfers,
    Reset,
    Step,
)
from model.scheduler.actions import Output as OutputAction
from model.scheduler.engine import Engine as Scheduler
from model.scheduler.events import StepScheduled, plain, read
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import NotStartableError, SchedulerSetup
from model.trace import Ending, Trace
from model.trace import Step as Answered
from specs.casefile import CaseFile, read_case

NEWEST, OLDEST = "vllm==0.33.0", "vllm==0.30.0"
K1 = OWN_CORPUS / "scheduler" / "k1-whole-steps.json"
SETUP = SchedulerSetup("full", 4, 8, 16, 16, 2)
PLAIN: SchedulerProgram = Program(SETUP, (Arrive(prompt=9, output=2), Step(), Step()))


@pytest.fixture(scope="module")
def newest() -> Iterator[Subject]:
    with open_subject(NEWEST, "scheduler") as subject:
        yield subject


@pytest.fixture(scope="module")
def oldest() -> Iterator[Subject]:
    with open_subject(OLDEST, "scheduler") as subject:
        yield subject


@pytest.fixture(scope="module")
def k1() -> CaseFile:
    trace = read_case(K1)
    assert trace.level == "scheduler"
    return trace


# Real engines


def test_a_plain_program_ends_and_every_action_is_answered(newest: Subject) -> None:
    trace = newest.run(PLAIN)
    account = account_of(trace)
    assert (trace.ending, account.violations, trace.failure) == ("ended", (), None)
    responses = [plain(step.response) for step in trace.steps]
    assert responses[:2] == [
        (("arrived", 0, 9, 2, 0),),
        (("step", 1, ((0, 0, 9),), ()),),
    ]
    assert ("ended", 0, "length") in [event for r in responses[3:] for event in r]
    assert account.steps >= 2
    assert newest.run(PLAIN, "none").steps == ()


def test_k1_is_a_raise_inside_an_allocation_on_the_release_that_has_it(
    oldest: Subject, newest: Subject, k1: CaseFile
) -> None:
    trace = oldest.run(k1.program)
    (violation,) = account_of(trace).violations
    assert (trace.ending, violation.rule, violation.step) == (
        "violated",
        "I4",
        len(k1.program.actions),
    )
    assert violation.evidence[0] == "ValueError: Cannot get 1 free blocks from the pool"
    assert violation.evidence[1].startswith("raised in get_new_blocks, vllm/v1/core/block_pool.py:")
    assert trace.failure is not None
    assert trace.failure.startswith("Traceback")
    assert newest.run(k1.program).ending == "ended"


def test_no_action_of_k1_can_be_removed(oldest: Subject, k1: CaseFile) -> None:
    actions = k1.program.actions
    for index in range(len(actions)):
        rest = replace(k1.program, actions=actions[:index] + actions[index + 1 :])
        violations = account_of(oldest.run(rest)).violations
        assert "I4" not in {violation.rule for violation in violations}, index


def test_a_setup_that_the_engine_refuses_is_not_run(newest: Subject) -> None:
    trace = newest.run(replace(PLAIN, configuration=replace(SETUP, num_blocks=3)))
    assert (trace.ending, trace.failure) == ("refused", "3 blocks; at least 5 needed")


def test_a_soak_counts_steps_and_ends_after_so_many(newest: Subject) -> None:
    examiner = SchedulerExaminer(newest, None, {"cache": "full", "external_store": False}, False)
    outcome = soak(examiner, 1, steps=200)
    assert (outcome.verdict, outcome.level, outcome.findings) == ("clean", "scheduler", [])
    assert 200 <= outcome.steps < 1_000
    assert outcome.actions_run == 60 * outcome.programs
    again = soak(examiner, 1, steps=200)
    assert replace(again, seconds=0.0) == replace(outcome, seconds=0.0)


def test_the_crash_is_found_saved_and_replayed(
    oldest: Subject, newest: Subject, tmp_path: Path
) -> None:
    examiner = SchedulerExaminer(oldest, "I4", {"cache": "hisparse", "external_store": False})
    outcome = soak(examiner, 1, programs=300, only="I4")
    (finding,) = outcome.findings
    assert (outcome.verdict, finding.violation.rule) == ("counterexample", "I4")
    path = save_findings(outcome, tmp_path)["I4"]
    assert path.name == "I4-scheduler-vllm-0.30.0-seed-1.json"
    trace = read_case(path)
    assert trace.level == "scheduler"
    failed, fixed = (replay(path, trace, subject, None) for subject in (oldest, newest))
    assert (failed.outcome, failed.first_changed_step) == ("FAILED", None)
    assert (fixed.outcome, fixed.starts) == ("FIXED", True)
    assert fixed.first_changed_step is not None


@pytest.mark.parametrize(
    ("name", "outcome", "expected"),
    [(OLDEST, "FAILED", "FAILED"), (NEWEST, "FIXED", "FIXED")],
)
def test_a_trace_of_the_corpus_goes_as_it_expects(
    name: str, outcome: str, expected: str, k1: CaseFile
) -> None:
    with open_subject(name, "scheduler") as subject:
        entry = replay(K1, k1, subject, None)
    assert (entry.outcome, entry.expected, entry.as_expected) == (outcome, expected, True)


def test_a_trace_with_which_a_release_does_not_start_is_an_error(
    newest: Subject, k1: CaseFile
) -> None:
    small = replace(k1.program.configuration, num_blocks=4)
    trace = replace(k1, program=replace(k1.program, configuration=small))
    entry = replay(K1, trace, newest, None)
    assert (entry.outcome, entry.starts, entry.as_expected) == ("ERROR", False, False)
    assert "blocks; at least" in entry.why


def test_the_reference_has_no_scheduler() -> None:
    with pytest.raises(CouldNotRun, match="reference:eager has no scheduler: the reference is"):
        open_subject("reference:eager", "scheduler")
    assert not has_level("reference:eager", "scheduler")
    assert not has_level("nonsense", "scheduler")
    assert has_level(NEWEST, "scheduler")


@pytest.mark.full
@pytest.mark.parametrize("name", [NEWEST, OLDEST])
def test_both_ways_of_loading_answer_alike(name: str) -> None:
    drawn = [SchedulerExaminer.draw(_drawing(), Random(seed), 30) for seed in range(20)]
    loads: tuple[Load, ...] = ("focused", "full")
    answers = []
    for load in loads:
        with open_subject(name, "scheduler", load) as subject:
            traces = [subject.run(program) for program in drawn]
        answers.append([(digests_of(trace), account_of(trace).violations) for trace in traces])
    assert answers[0] == answers[1]


def _drawing() -> SchedulerExaminer:
    """An examiner that only draws."""
    engine = _engine(Path(sys.executable))
    return SchedulerExaminer(EngineSubject(engine, "scheduler", DIALECTS["eager"]))


def _engine(python: Path) -> Engine:
    return Engine("fake", Path("/nowhere"), python, "focused")


# What is raised, and by whom


class FakeScheduler:
    """A scheduler that has one request for ever; ``ask`` is what each step asks."""

    steps_in_flight_max = 1

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask

    def add(self, request: object) -> None:
        """It is there."""

    def has_requests(self) -> bool:
        return True

    def statuses(self) -> dict[int, Any]:
        return {}

    def pool_states(self) -> tuple[Any, ...]:
        return ()

    def pending(self) -> Any:
        return type("Nothing", (), {"__getattr__": lambda *_: ()})()

    def schedule(self) -> Any:
        return self.ask()


class StandInCalled(RuntimeError):  # noqa: N818
    """The way of loading does not reach."""


@pytest.fixture
def engine_module(tmp_path: Path) -> ModuleType:
    """A module in the place of an engine's own."""
    file = tmp_path / "vllm" / "core.py"
    file.parent.mkdir()
    file.write_text(
        "def allocate():\n    raise ValueError('Cannot get 3 free blocks from the pool')\n"
        "def index():\n    return {}['missing']\n"
        "def call(function):\n    return function()\n"
    )
    spec = importlib.util.spec_from_file_location("core", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answered(ask: Callable[[], object], source: Path) -> dict[str, Any]:
    def new_engine(_: SchedulerSetup) -> Scheduler:
        fake: Any = FakeScheduler(ask)
        return fake  # type: ignore[no-any-return]

    runner = SchedulerRunner(new_engine, source, (StandInCalled,))
    message = {"program": program_to_json(PLAIN), "release": "vllm-0.33.0", "responses": True}
    return json.loads(json.dumps(runner(message)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("function", "rule", "evidence"),
    [
        (
            "allocate",
            "I4",
            ["ValueError: Cannot get 3 free blocks from the pool",
             "raised in allocate, vllm/core.py:2"],
        ),
        ("index", "I19", ["KeyError: 'missing'", "raised in index, vllm/core.py:4"]),
    ],
)  # fmt: skip
def test_what_the_engine_raises_is_a_breach_of_the_action(
    engine_module: ModuleType, tmp_path: Path, function: str, rule: str, evidence: list[str]
) -> None:
    answer = answered(getattr(engine_module, function), tmp_path)
    (violation,) = answer["violations"]
    assert (violation["rule"], violation["step"], violation["evidence"]) == (rule, 1, evidence)
    assert "Traceback" in answer["failure"]
    assert len(answer["responses"]) == 1


def our_own_fault() -> None:
    raise KeyError("ours")


def not_reached() -> None:
    raise StandInCalled("torch.cuda")


def test_what_our_own_code_raises_is_no_breach(engine_module: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="ours"):
        answered(our_own_fault, tmp_path)
    with pytest.raises(KeyError, match="ours"):  # the engine calls what is ours
        answered(lambda: engine_module.call(our_own_fault), tmp_path)
    with pytest.raises(StandInCalled):
        answered(lambda: engine_module.call(not_reached), tmp_path)


@pytest.mark.parametrize("kind", [NotStartableError, ValueError])
def test_our_own_refusal_is_told_and_our_own_error_is_not(
    kind: type[Exception], tmp_path: Path
) -> None:
    def refusing(_: SchedulerSetup) -> Scheduler:
        raise kind("too small")

    runner = SchedulerRunner(refusing, tmp_path)
    message = {"program": program_to_json(PLAIN), "release": "vllm-0.33.0", "responses": False}
    if kind is NotStartableError:
        assert runner(message) == {"refused": "too small"}
    else:
        with pytest.raises(ValueError, match="too small"):
            runner(message)


def test_what_an_engine_refuses_when_it_is_made_is_told_as_such(
    engine_module: ModuleType, tmp_path: Path
) -> None:
    runner = SchedulerRunner(lambda _: engine_module.allocate(), tmp_path)
    message = {"program": program_to_json(PLAIN), "release": "vllm-0.33.0", "responses": False}
    refused = "ValueError: Cannot get 3 free blocks from the pool"
    assert runner(message) == {"refused": refused}


# Workers that misbehave

HELLO = 'import json, os, sys, time\nprint(json.dumps({"protocol": 1}), flush=True)\n'
ANSWER = {
    "violations": [], "steps": 7, "goals": {"a goal": 2}, "responses": [], "failure": None,
    "seconds": 0.1,
}  # fmt: skip

FakeEngine = Callable[..., EngineSubject]


@pytest.fixture
def fake_engine(tmp_path: Path) -> Iterator[FakeEngine]:
    """A worker that does a statement for each message that it gets."""
    opened: list[EngineSubject] = []

    def start(statement: str, timeout: float = 10.0) -> EngineSubject:
        python = tmp_path / "python"
        loop = f"for line in sys.stdin:\n    message = json.loads(line)\n    {statement}\n"
        python.write_text(f"#!{sys.executable}\n{HELLO}{loop}")
        python.chmod(0o755)
        opened.append(EngineSubject(_engine(python), "scheduler", DIALECTS["vllm-0.33.0"], timeout))
        return opened[-1]

    yield start
    for subject in opened:
        subject.close()


def saying(message: object) -> str:
    return f"print({json.dumps(json.dumps(message))}, flush=True)"


def test_an_answer_becomes_a_trace(fake_engine: FakeEngine) -> None:
    violation = {"rule": "I7", "step": 2, "cause": "misread", "evidence": ["a", "b"], "known": "K4"}
    answer = ANSWER | {"violations": [violation], "responses": [[["step", 1, [[0, 0, 4]], []]]]}
    trace = fake_engine(saying(answer)).run(PLAIN)
    assert trace.ending == "violated"
    account = account_of(trace)
    assert account.violations == (Violation("I7", 2, Cause.MISREAD, ("a", "b"), "K4"),)
    assert [step.response for step in trace.steps] == [(StepScheduled(1, ((0, 0, 4),), ()),)]
    assert (account.steps, account.goals) == (7, Counter({"a goal": 2}))


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"error": "StandInCalled: x"}, "StandInCalled: x"),
        ({"steps": 1}, "the worker's answer cannot be read: KeyError: 'violations'"),
        (ANSWER | {"violations": [1]}, "the worker's answer cannot be read: TypeError: "),
    ],
)
def test_an_answer_that_is_none_could_not_run(
    fake_engine: FakeEngine, answer: object, failure: str
) -> None:
    subject = fake_engine(saying(answer))
    trace = subject.run(PLAIN)
    assert (trace.ending, (trace.failure or "")[: len(failure)]) == ("error", failure)
    with pytest.raises(CouldNotRun, match="fake could not run a program"):
        SchedulerExaminer(subject).examine(PLAIN)


@pytest.mark.parametrize(
    ("statement", "ending", "rule"),
    [("os._exit(3)", "crashed", "crash"), ("time.sleep(60)", "hung", "hang")],
)
def test_a_worker_that_dies_is_a_finding_placed_at_the_last_action(
    fake_engine: FakeEngine, statement: str, ending: str, rule: str
) -> None:
    subject = fake_engine(statement, 0.3)
    assert subject.run(PLAIN).ending == ending
    examiner = SchedulerExaminer(subject, watch_goals=False)
    assert examiner.examine(PLAIN).rules_broken == {rule}
    if rule == "crash":
        outcome = soak(examiner, 1, programs=MAX_DEATHS, actions=3)
        (finding,) = outcome.findings
        assert finding.violation.rule == "crash"
        assert finding.violation.step == len(finding.program.actions) - 1


def test_programs_that_the_engine_refuses_are_counted_and_are_not_clean(
    fake_engine: FakeEngine,
) -> None:
    examiner = SchedulerExaminer(fake_engine(saying({"refused": "no HiSparse"})), watch_goals=False)
    outcome = soak(examiner, 1, programs=5)
    assert outcome.refused == Counter({"no HiSparse": 5})
    assert outcome.verdict == "incomplete"
    assert "not run, 5 times: the engine does not start: no HiSparse" in shown(outcome)
    assert outcome_json(outcome, {})["refused"] == {"no HiSparse": 5}


def test_a_known_defect_is_counted_and_is_no_finding(fake_engine: FakeEngine) -> None:
    violation = {"rule": "I7", "step": 2, "cause": "misread", "evidence": ["a"], "known": "K4"}
    examiner = SchedulerExaminer(
        fake_engine(saying(ANSWER | {"violations": [violation]})), watch_goals=False
    )
    outcome = soak(examiner, 1, programs=3)
    assert (outcome.verdict, outcome.known) == ("clean", Counter({"K4": 3}))
    assert outcome.steps == 21


def test_an_unmet_goal_makes_a_run_incomplete(fake_engine: FakeEngine) -> None:
    outcome = soak(SchedulerExaminer(fake_engine(saying(ANSWER))), 1, programs=3)
    assert outcome.unmet
    assert outcome.verdict == "incomplete"


def shown(outcome: Outcome) -> str:
    out = StringIO()
    show_outcome(Console(file=out, width=120), outcome, {})
    return out.getvalue()


# The gate

TINY = Profile(examples=1, programs=1, scheduler_programs=40, canary_examples=60)


def gate_stage(name: str, subject: str, folder: Path, **settings: Any) -> tuple[str, str]:
    plan = Plan(Settings(subjects=(NEWEST,), **settings), TINY, folder)
    stages = {(stage.name, stage.subject): stage for stage in stages_of(plan)}
    result = stages[name, subject].run(plan, subject, unseen)
    return result.verdict, "\n".join(details_of(result))


@pytest.mark.parametrize(
    ("known", "verdict", "detail"),
    [
        ("K4", "clean", "known defect K4, seen 40 times"),
        (None, "counterexample", "I16 after the last step: request 0 waits; kvproof replay "),
    ],
)
def test_the_gate_counts_known_defects_and_is_red_for_others(
    fake_engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: str | None,
    verdict: str,
    detail: str,
) -> None:
    violation = {
        "rule": "I16",
        "step": 99,
        "cause": "no-token",
        "evidence": ["request 0 waits"],
        "known": known,
    }
    subject = fake_engine(saying(ANSWER | {"violations": [violation]}))
    monkeypatch.setattr("kvproof.gate.stages.open_subject", lambda *_, **__: subject)
    monkeypatch.setattr(SchedulerExaminer, "unmet", lambda *_: ())
    result, details = gate_stage("scheduler", NEWEST, tmp_path)
    assert (result, detail in details) == (verdict, True), details
    assert "40 programs, 280 scheduler steps" in details


def test_the_gate_has_a_canary_of_whole_steps(tmp_path: Path) -> None:
    canaries = ("reference:eager", OLDEST, NEWEST)
    verdict, details = gate_stage("scheduler canary", OLDEST, tmp_path, canaries=canaries)
    assert (verdict, details[:20]) == ("clean", "I4 seen to fail, in ")
    verdict, details = gate_stage("scheduler canary", NEWEST, tmp_path, canaries=canaries)
    assert verdict == "counterexample"
    assert f"{NEWEST} is known to break I4, and nothing was found in 60 programs" in details
    with pytest.raises(KeyError):
        gate_stage("scheduler canary", "reference:eager", tmp_path, canaries=canaries)


def test_a_step_costs_as_much_after_a_long_context(oldest: Subject, newest: Subject) -> None:
    assert isinstance(newest, EngineSubject)
    assert isinstance(oldest, EngineSubject)
    efforts = efforts_of(newest)
    assert {effort.cache for effort in efforts} == {"full", "sliding", "mamba", "hisparse"}
    assert not any(effort.grows for effort in efforts)
    assert all(effort.grows for effort in efforts_of(oldest))
    assert "I18" in SchedulerExaminer(oldest).waived
    assert not SchedulerExaminer(newest).waived


@pytest.mark.parametrize(
    ("dialect", "long", "verdict", "detail"),
    [
        ("vllm-0.33.0", 100, "clean", "1 caches and schedulers"),
        (
            "vllm-0.33.0",
            200,
            "counterexample",
            "I18: full, asynchronous: 100 instructions after 16 pages",
        ),
        ("vllm-0.30.0", 200, "clean", "I18 is not judged: 0.30.0 walks all pages"),
    ],
)
def test_the_gate_is_red_where_effort_grows_but_by_design(
    fake_engine: FakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    long: int,
    verdict: str,
    detail: str,
) -> None:
    effort = {"cache": "full", "asynchronous": True, "short": 100, "long": long}
    subject = fake_engine(saying({"efforts": [effort]}))
    subject.dialect = DIALECTS[dialect]
    monkeypatch.setattr("kvproof.gate.stages.open_subject", lambda *_, **__: subject)
    result, details = gate_stage("effort", NEWEST, tmp_path)
    assert (result, detail in details) == (verdict, True), details


def test_an_effort_that_cannot_be_counted_is_one_clear_line(fake_engine: FakeEngine) -> None:
    with pytest.raises(CouldNotRun, match="fake could not count its effort: KeyError: 1"):
        efforts_of(fake_engine(saying({"error": "KeyError: 1"})))


def test_the_corpus_of_the_gate_holds_traces_of_both_levels(tmp_path: Path) -> None:
    verdict, details = gate_stage("corpus", NEWEST, tmp_path)
    assert verdict == "clean", details
    trace = json.loads(K1.read_text())
    trace["expect"] = {"rule": "I4", "fails": [NEWEST], "passes": []}
    (tmp_path / "wrong.json").write_text(json.dumps(trace))
    verdict, details = gate_stage("corpus", NEWEST, tmp_path, corpus=str(tmp_path))
    assert verdict == "counterexample"
    assert "wrong.json: FIXED, expected FAILED" in details


# Words


def test_every_rule_that_can_be_reported_has_a_sentence() -> None:
    for level, rules in RULES_OF.items():
        for rule in rules:
            assert sentence_of(rule, level).endswith(".")
    assert {"I15", "I17", "I18"} <= SENTENCED.keys()
    assert sentence_of("I16") != sentence_of("I16", "scheduler")


ACTIONS: list[tuple[Action, PlainResponse, str]] = [
    (
        Arrive(prompt=4, output=2),
        (("arrived", 3, 1, 2, 0),),
        "add request 3: 1 prompt token, 2 to generate",
    ),
    (
        Arrive(family=1, shared=5, prompt=7, salt=1, priority=2, stored=6, lost=1, delays=1),
        (("arrived", 3, 7, 1, 6),),
        "add request 3: 7 prompt tokens, 1 to generate, the first 6 in the store (5 tokens of "
        "family 1, salt 1, priority 2, loaded within a step, known after 1 look-up, the last 1 "
        "page lost at first)",
    ),
    (Arrive(shared=2, prompt=7), (("idle",),), "Arrive(shared=2, prompt=7): not possible now"),
    (
        Step(),
        (("output", 1), ("ended", 0, "length"), ("step", 3, ((1, 4, 2), (2, 0, 1)), ())),
        "update from the output of step 1; request 0 ended: length; "
        "schedule step 3 → request 1: 2 tokens from 4, request 2: 1 token from 0",
    ),
    (
        Step(),
        (("step", 3, (), (4, 5)),),
        "schedule step 3 → nothing; preempts request 4, 5",
    ),
    (OutputAction(), (("output", 2),), "update from the output of step 2"),
    (CompleteTransfers(9), (("transferred", (4, 5)),), "host transfers complete: 4, 5"),
    (CompleteLoad(), (("loaded", 1, None),), "the load of request 1 is done"),
    (
        CompleteLoad(),
        (("loaded", 1, 8),),
        "the load of request 1 is done, and failed from token 8 on",
    ),
    (Abort(1), (("ended", 2, "abort"),), "request 2 ended: abort"),
    (Reset(), (("reset", False, True),), "reset the prefix cache → done"),
    (
        Reset(True),
        (("reset", True, False),),
        "reset the prefix cache, preempting all that runs → refused",
    ),
]


@pytest.mark.parametrize(("action", "response", "text"), ACTIONS, ids=lambda case: str(case)[:30])
def test_an_action_is_told_in_the_words_of_the_scheduler(
    action: Action, response: PlainResponse, text: str
) -> None:
    assert describe_action(action, read(response)) == text


def test_an_action_without_an_answer_is_told_as_it_was_written() -> None:
    assert call_of(Step()) == "Step()"
    assert call_of(Arrive(prompt=3, asynchronous=True)) == "Arrive(prompt=3, asynchronous=True)"


REPORT = """\
I4 (known defect K1)  An allocation takes at most what the predictor promised, and never raises.
first failing step: after the last action, the 5th
  ValueError: Cannot get 1 free blocks from the pool
  raised in get_new_blocks, vllm/v1/core/block_pool.py:676
configuration: cache=hisparse, block_size=4, num_blocks=13, max_model_len=17, \
max_num_batched_tokens=5, max_num_seqs=1, num_resident_groups=2, num_host_blocks=7
1  add request 0: 16 prompt tokens, 1 to generate
2  schedule step 1 → request 0: 5 tokens from 0
3  update from the output of step 1; schedule step 2 → request 0: 5 tokens from 5
4  host transfers complete: 0, 1
5  update from the output of step 2; schedule step 3 → request 0: 5 tokens from 10
>  then everything that is pending is completed, and steps go on:
   update from the output of step 3; schedule step 4 → nothing; preempts request 0
   host transfers complete: 2
   update from the output of step 4
   a step raised ValueError: Cannot get 1 free blocks from the pool
seed 1, vllm==0.30.0
replay it: kvproof replay k1.json --subject vllm==0.30.0"""


def test_a_finding_is_told_like_this(oldest: Subject, k1: CaseFile) -> None:
    trace = oldest.run(k1.program)
    assert k1.found is not None
    out = StringIO()
    console = Console(file=out, width=200)
    for part in describe_finding(
        SCHEDULER_WORDS,
        account_of(trace).violations[0],
        sentence_of("I4", "scheduler"),
        k1.program,
        [trace],
        seed=1,
        versions=(OLDEST,),
        case_file="k1.json",
    ):
        console.print(part)
    assert "\n".join(line.rstrip() for line in out.getvalue().splitlines()) == REPORT


def test_a_long_drain_is_cut_and_a_raise_is_told_at_its_action() -> None:
    drained: PlainResponse = (("output", 1),)
    trace = trace_with((*PLAIN_RESPONSES, *[drained] * 40), "violated")
    text = told(Violation("I16", 3, Cause.NO_TOKEN, ("request 0 waits",)), trace)
    assert "… and so on, 16 times more" in text
    failure = "Traceback (most recent call last):\nKeyError: 1"
    raised = replace(trace_with(PLAIN_RESPONSES[:2], "violated"), failure=failure)
    assert ">3  Step() → raised KeyError: 1" in told(
        Violation("I19", 2, Cause.RAISED, ("seen",), "K9"), raised
    )
    assert "I19 (known defect K9)" in told(
        Violation("I19", 2, Cause.RAISED, ("seen",), "K9"), raised
    )


PLAIN_RESPONSES: tuple[PlainResponse, ...] = (
    (("arrived", 0, 9, 2, 0),),
    (("step", 1, ((0, 0, 9),), ()),),
    (("output", 1), ("step", 2, ((0, 9, 1),), ())),
)


def trace_with(responses: tuple[PlainResponse, ...], ending: Ending = "ended") -> Trace:
    steps = [Answered(read(told), digest_of_answer(told)) for told in responses]
    return Trace("x", PLAIN, tuple(steps), ending)


def told(violation: Violation, trace: Trace) -> str:
    out = StringIO()
    console = Console(file=out, width=120)
    for part in describe_finding(SCHEDULER_WORDS, violation, "A sentence.", PLAIN, [trace]):
        console.print(part)
    return out.getvalue()


# Small parts


def test_settings_are_read_by_their_type() -> None:
    given = ("cache=hisparse", "num_blocks=20", "external_store=false", "policy=priority")
    assert modes_of(given) == {
        "cache": "hisparse",
        "num_blocks": 20,
        "external_store": False,
        "policy": "priority",
    }


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (("block_size=0",), "give a number from 1 to 1000000"),
        (("num_blocks=1000000000000",), "give a number from 0 to 1000000"),
        (("max_model_len=" + "9" * 5_000,), "give a number from 0 to 1000000"),
        (("num_resident_groups=65",), "give a number from 1 to 64"),
        (("num_blocks=-1",), "give a number from 0 to 1000000"),
        (("hot_blocks=two",), "give a number from 1 to 1000000"),
        (("cache=full", "cache=hisparse"), "cache is fixed to something else already"),
        (("cache=banana",), "give full or sliding or mamba or hisparse"),
    ],
)
def test_a_setting_that_no_trace_could_hold_is_refused(given: tuple[str, ...], answer: str) -> None:
    with pytest.raises(CouldNotRun, match=answer):
        modes_of(given)


def test_a_defect_is_looked_for_only_in_releases_known_to_have_it() -> None:
    for known in ("K2", "I4", None):
        check_defect(known, DIALECTS["vllm-0.33.0"])
    with pytest.raises(CouldNotRun, match=r"K1 is no known defect of vllm-0\.33\.0"):
        check_defect("K1", DIALECTS["vllm-0.33.0"])


@pytest.mark.parametrize(
    ("recorded", "replayed", "index"),
    [((), ("a",), None), (("a",), ("a",), None), (("a",), ("a", "b"), 1), (("a", "b"), ("c",), 0)],
)
def test_the_first_answer_that_changed_is_found(
    recorded: tuple[str, ...], replayed: tuple[str, ...], index: int | None
) -> None:
    assert first_difference(recorded, replayed) == index


def test_the_drain_has_one_digest_of_its_own() -> None:
    answers = PLAIN_RESPONSES
    alone = digests_of(trace_with(answers))
    drained = digests_of(trace_with(answers + answers[1:]))
    assert (len(alone), len(drained)) == (3, 4)
    assert drained[:3] == alone
