"""The gate: what turns it red, what makes it incomplete, and what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invariants.proofs.predicted import Agreement
from invariants.violation import Cause, Violation
from kvproof.errors import CouldNotRun
from kvproof.gate import stages as stages_module
from kvproof.gate.events import GateEvent, GateResult, StageEnded, StageProgress, StageStarted
from kvproof.gate.gate import run_gate, stages_of
from kvproof.gate.plan import Plan, Profile
from kvproof.gate.results import CanaryResult
from kvproof.gate.settings import OWN_CORPUS, Settings
from kvproof.gate.table import expected_column
from kvproof.reports.words.gate import details_of
from kvproof.search.outcome import Finding, Outcome, unseen
from kvproof.subjects.names import open_subject
from kvproof.subjects.subject import Subject
from kvproof.theorems.proving import run_proofs
from specs.casefile import read_case

NEWEST = "reference:vllm-0.33.0"
AGREES = Agreement(shapes=1_200, calls=3_000, mismatches=(), twin_seen=True)
SETTINGS = Settings(subjects=(NEWEST,), canaries=("reference:eager",))
SMALL = Profile(examples=1_000, programs=200, scheduler_programs=1, canary_examples=500)
TINY = Profile(examples=1, programs=1, scheduler_programs=1, canary_examples=20)
"""Too little for the goals."""


@pytest.fixture(autouse=True)
def one_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs and the sweep have tests of their own: here one stands for all."""
    monkeypatch.setattr("kvproof.gate.stages.run_proofs", lambda: run_proofs(["pops-fit"]))
    monkeypatch.setattr("kvproof.gate.stages.sweep", lambda *_: AGREES)


def verdicts_of(result: GateResult) -> dict[tuple[str, str], str]:
    return {(stage.name, stage.subject): stage.verdict for stage in result.stages}


def details(result: GateResult, name: str) -> str:
    return "\n".join(line for s in result.stages if s.name == name for line in details_of(s.result))


@pytest.fixture
def failing_canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Canaries are taken to have failed as they must."""
    seen = CanaryResult("reference:eager", "I4", programs=1, actions=8)
    monkeypatch.setattr(stages_module, "canary", lambda *_: seen)


def test_a_good_subject_is_clean_in_every_stage(tmp_path: Path) -> None:
    told: list[GateEvent] = []
    result = run_gate(Plan(SETTINGS, SMALL, tmp_path), told.append)
    assert verdicts_of(result) == {
        ("table", "reference"): "clean",
        ("proofs", "reference"): "clean",
        ("canary", "reference:eager"): "clean",
        ("table", NEWEST): "clean",
        ("predicted", NEWEST): "clean",
        ("corpus", NEWEST): "clean",
        ("lockstep", NEWEST): "clean",
        ("search", NEWEST): "clean",
    }, result
    assert result.verdict == "clean"
    assert "I4 seen to fail, in 8 actions" in details(result, "canary")
    assert told[0] == StageStarted("table", "reference")
    assert StageProgress("lockstep", NEWEST, 200) in told
    assert tuple(event for event in told if isinstance(event, StageEnded)) == result.stages
    assert list(tmp_path.iterdir()) == []


def test_a_canary_that_does_not_fail_turns_the_gate_red(tmp_path: Path) -> None:
    settings = replace(SETTINGS, canaries=("reference:deferred",))
    result = run_gate(Plan(settings, TINY, tmp_path))
    assert verdicts_of(result)["canary", "reference:deferred"] == "counterexample"
    assert result.verdict == "counterexample"
    missed = "reference:deferred is known to break I4, and nothing was found in 20 programs"
    assert missed in details(result, "canary")


@pytest.mark.usefixtures("failing_canaries")
@pytest.mark.usefixtures("failing_canaries")
@pytest.mark.parametrize(
    ("agreement", "verdict", "detail"),
    [
        (AGREES, "clean", "1,200 pool shapes, 3,000 allocations, 0 mismatches"),
        (replace(AGREES, mismatches=("action 5: refused",)), "counterexample", "action 5: refused"),
        (replace(AGREES, twin_seen=False), "counterexample", "no mismatch of the faulty"),
        (replace(AGREES, shapes=999), "incomplete", "fewer than 1,000 pool shapes"),
        (replace(AGREES, shapes=0, twin_seen=False), "incomplete", "0 pool shapes"),
    ],
    ids=["agrees", "mismatch", "twin", "few", "none"],
)
def test_the_arithmetic_must_predict_the_subject_on_a_thousand_shapes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agreement: Agreement,
    verdict: str,
    detail: str,
) -> None:
    monkeypatch.setattr("kvproof.gate.stages.sweep", lambda *_: agreement)
    result = run_gate(Plan(SETTINGS, TINY, tmp_path))
    assert verdicts_of(result)["predicted", NEWEST] == verdict
    assert detail in details(result, "predicted")


def test_a_corpus_that_does_not_go_as_expected_turns_the_gate_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    known = json.loads((OWN_CORPUS / "manager" / "k1-adoption-before-allocation.json").read_text())
    known["expect"] = {"rule": "I4", "fails": [NEWEST], "passes": []}
    (corpus / "k1.json").write_text(json.dumps(known))
    settings = replace(SETTINGS, corpus=str(corpus))
    result = run_gate(Plan(settings, TINY, tmp_path))
    assert verdicts_of(result)["corpus", NEWEST] == "counterexample"
    assert result.verdict == "counterexample"
    assert "k1.json: FIXED, expected FAILED" in details(result, "corpus")


@pytest.mark.usefixtures("failing_canaries")
@pytest.mark.usefixtures("failing_canaries")
@pytest.mark.parametrize(
    ("content", "detail"),
    [(None, "holds no trace files"), ("{", "cannot read trace")],
    ids=["empty", "broken"],
)
def test_a_corpus_that_cannot_be_read_is_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, detail: str
) -> None:
    if content is not None:
        (tmp_path / "broken.json").write_text(content)
    settings = replace(SETTINGS, corpus=str(tmp_path))
    result = run_gate(Plan(settings, TINY, tmp_path / "out"))
    assert verdicts_of(result)["corpus", NEWEST] == "incomplete"
    assert detail in details(result, "corpus")
    assert verdicts_of(result)["table", NEWEST] == "clean"


@pytest.mark.usefixtures("failing_canaries")
def test_a_subject_that_cannot_be_opened_is_incomplete_and_the_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, subjects=("vllm@/nowhere", NEWEST))
    result = run_gate(Plan(settings, TINY, tmp_path))
    verdicts = verdicts_of(result)
    for stage in ("table", "corpus", "lockstep", "search"):
        assert verdicts[stage, "vllm@/nowhere"] == "incomplete"
    assert verdicts["table", NEWEST] == verdicts["corpus", NEWEST] == "clean"
    assert result.verdict == "incomplete"


@pytest.mark.usefixtures("failing_canaries")
def test_an_unmet_goal_makes_the_gate_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_gate(Plan(SETTINGS, TINY, tmp_path))
    assert verdicts_of(result)["lockstep", NEWEST] == "incomplete"
    assert "goal not met: " in details(result, "lockstep")
    assert result.verdict == "incomplete"


def test_a_wrong_column_of_the_table_turns_the_gate_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(dialect: str) -> tuple[str, ...] | None:
        return ("3/3",) * 10 if dialect == "vllm-0.33.0" else expected_column(dialect)

    monkeypatch.setattr(stages_module, "expected_column", wrong)
    result = run_gate(Plan(SETTINGS, TINY, tmp_path))
    verdicts = verdicts_of(result)
    assert (verdicts["table", NEWEST], verdicts["table", "reference"]) == (
        "counterexample",
        "clean",
    )
    assert "expected 3/3 3/3" in details(result, "table")


@pytest.mark.parametrize(("full", "verdict"), [("deferred", "clean"), ("eager", "counterexample")])
def test_both_ways_of_loading_must_agree_where_the_profile_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, verdict: str
) -> None:
    def opened(_: str, load: str) -> Subject:
        return open_subject("reference:deferred" if load == "focused" else f"reference:{full}")

    profile = replace(TINY, programs_loaded_twice=60)
    plan = Plan(replace(SETTINGS, subjects=("mine", NEWEST)), profile, tmp_path)
    asked = {(stage.name, stage.subject): stage for stage in stages_of(plan)}
    assert ("loading", NEWEST) not in asked
    monkeypatch.setattr(stages_module, "open_subject", opened)
    result = asked["loading", "mine"].run(plan, "mine", unseen)
    assert result.verdict == verdict


@pytest.mark.parametrize("key", ["subjects", "canaries"])
def test_a_gate_with_nothing_to_check_does_not_run(tmp_path: Path, key: str) -> None:
    empty: dict[str, Any] = {key: ()}
    with pytest.raises(CouldNotRun, match=rf"\[tool.kvproof\] {key} is empty"):
        run_gate(Plan(replace(SETTINGS, **empty), TINY, tmp_path))


@pytest.mark.usefixtures("failing_canaries")
@pytest.mark.parametrize("writable", [True, False], ids=["saved", "not saved"])
def test_a_finding_is_told_with_the_command_that_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    k1 = read_case(OWN_CORPUS / "manager" / "k1-adoption-before-allocation.json")

    def broken(examiner: Any, *_: Any, **__: Any) -> Outcome:
        subject: Subject = examiner.subject
        found = Outcome(subject.name, examiner.dialect.name, 0, programs=1)
        found.findings = [
            Finding(Violation("I4", 7, Cause.OUT_OF_BLOCKS, ("too few blocks",)), k1.program)
        ]
        return found

    monkeypatch.setattr(stages_module, "soak", broken)
    out = tmp_path / "out"
    if not writable:
        out.write_text("a file in its place")
    result = run_gate(Plan(SETTINGS, TINY, out))
    assert verdicts_of(result)["lockstep", NEWEST] == "counterexample"
    told = details(result, "lockstep")
    assert "I4 at step 8: too few blocks" in told
    if writable:
        assert f"kvproof replay {out}/lockstep/I4-reference-vllm-0.33.0-seed-0.json" in told
    else:
        assert "cannot write trace" in told
