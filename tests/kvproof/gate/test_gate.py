"""The gate: what turns it red, what makes it incomplete, and what it writes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml

from invariants.proofs.predicted import Agreement
from invariants.violation import Violation
from kvproof.errors import CouldNotRun
from kvproof.gate import gate as gate_module
from kvproof.gate.gate import OWN_CORPUS, Gate, GateResult, Profile, Stage
from kvproof.gate.settings import Settings, read_settings
from kvproof.gate.table import expected_column
from kvproof.proving import run_proofs
from kvproof.reports.github import annotate
from kvproof.reports.junit import write_junit
from kvproof.search.hunt import Finding, Outcome
from kvproof.subjects.names import open_subject
from kvproof.subjects.subject import Subject
from model.dialect import DIALECTS
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
    monkeypatch.setattr("kvproof.gate.gate.run_proofs", lambda: run_proofs(["pops-fit"]))
    monkeypatch.setattr("kvproof.gate.gate.sweep", lambda *_: AGREES)


def stages(result: GateResult) -> dict[tuple[str, str], str]:
    return {(stage.name, stage.subject): stage.verdict for stage in result.stages}


def details(result: GateResult, name: str) -> str:
    return "\n".join(line for s in result.stages if s.name == name for line in s.details)


def without_canaries(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The same gate, where canaries are taken to have failed as they must."""
    monkeypatch.setattr(Gate, "_canary", lambda *_: ("clean", ()))
    return gate


def test_a_good_subject_is_clean_in_every_stage(tmp_path: Path) -> None:
    announced: list[str] = []
    result = Gate(SETTINGS, SMALL, tmp_path, announced.append).run()
    assert stages(result) == {
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
    assert f"lockstep {NEWEST}: 200 programs" in announced
    assert list(tmp_path.iterdir()) == []


def test_a_canary_that_does_not_fail_turns_the_gate_red(tmp_path: Path) -> None:
    settings = replace(SETTINGS, canaries=("reference:deferred",))
    result = Gate(settings, TINY, tmp_path).run()
    assert stages(result)["canary", "reference:deferred"] == "counterexample"
    assert result.verdict == "counterexample"
    missed = "reference:deferred is known to break I4, and nothing was found in 20 programs"
    assert missed in details(result, "canary")


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
    monkeypatch.setattr("kvproof.gate.gate.sweep", lambda *_: agreement)
    result = without_canaries(Gate(SETTINGS, TINY, tmp_path), monkeypatch).run()
    assert stages(result)["predicted", NEWEST] == verdict
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
    result = without_canaries(Gate(settings, TINY, tmp_path), monkeypatch).run()
    assert stages(result)["corpus", NEWEST] == "counterexample"
    assert result.verdict == "counterexample"
    assert "k1.json: FIXED, expected FAILED" in details(result, "corpus")


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
    result = without_canaries(Gate(settings, TINY, tmp_path / "out"), monkeypatch).run()
    assert stages(result)["corpus", NEWEST] == "incomplete"
    assert detail in details(result, "corpus")
    assert stages(result)["table", NEWEST] == "clean"


def test_a_subject_that_cannot_be_opened_is_incomplete_and_the_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, subjects=("vllm@/nowhere", NEWEST))
    result = without_canaries(Gate(settings, TINY, tmp_path), monkeypatch).run()
    verdicts = stages(result)
    for stage in ("table", "corpus", "lockstep", "search"):
        assert verdicts[stage, "vllm@/nowhere"] == "incomplete"
    assert verdicts["table", NEWEST] == verdicts["corpus", NEWEST] == "clean"
    assert result.verdict == "incomplete"


def test_an_unmet_goal_makes_the_gate_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = without_canaries(Gate(SETTINGS, TINY, tmp_path), monkeypatch).run()
    assert stages(result)["lockstep", NEWEST] == "incomplete"
    assert "goal not met: " in details(result, "lockstep")
    assert result.verdict == "incomplete"


def test_a_wrong_column_of_the_table_turns_the_gate_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(dialect: str) -> tuple[str, ...] | None:
        return ("3/3",) * 10 if dialect == "vllm-0.33.0" else expected_column(dialect)

    monkeypatch.setattr(gate_module, "expected_column", wrong)
    result = without_canaries(Gate(SETTINGS, TINY, tmp_path), monkeypatch).run()
    verdicts = stages(result)
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
    gate = Gate(replace(SETTINGS, subjects=("mine", NEWEST)), profile, tmp_path)
    asked = {(name, subject): stage for name, subject, stage in gate.stages()}
    assert ("loading", NEWEST) not in asked
    monkeypatch.setattr(gate_module, "open_subject", opened)
    assert asked["loading", "mine"]()[0] == verdict


@pytest.mark.parametrize("key", ["subjects", "canaries"])
def test_a_gate_with_nothing_to_check_does_not_run(tmp_path: Path, key: str) -> None:
    empty: dict[str, Any] = {key: ()}
    with pytest.raises(CouldNotRun, match=rf"\[tool.kvproof\] {key} is empty"):
        Gate(replace(SETTINGS, **empty), TINY, tmp_path).run()


@pytest.mark.parametrize("writable", [True, False], ids=["saved", "not saved"])
def test_a_finding_is_told_with_the_command_that_replays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    k1 = read_case(OWN_CORPUS / "manager" / "k1-adoption-before-allocation.json")

    def broken(examiner: Any, *_: Any, **__: Any) -> Outcome:
        subject: Subject = examiner.subject
        found = Outcome(subject.name, examiner.dialect.name, 0, programs=1)
        found.findings = [Finding(Violation("I4", 7, ("too few blocks",)), k1.program)]
        return found

    monkeypatch.setattr(gate_module, "soak", broken)
    out = tmp_path / "out"
    if not writable:
        out.write_text("a file in its place")
    result = without_canaries(Gate(SETTINGS, TINY, out), monkeypatch).run()
    assert stages(result)["lockstep", NEWEST] == "counterexample"
    told = details(result, "lockstep")
    assert "I4 at step 8: too few blocks" in told
    if writable:
        assert f"kvproof replay {out}/lockstep/I4-reference-vllm-0.33.0-seed-0.json" in told
    else:
        assert "cannot write trace" in told


# Reports

RESULT = GateResult(
    [
        Stage("table", "reference", "clean", 0.5, ("10 rows",)),
        Stage("search", "vllm@/a,b:c", "counterexample", 1.5, ("I4: 50% of\nblocks", "é\x1b[1m")),
        Stage("corpus", "vllm==0.33.0", "incomplete", 0.0, ()),
    ]
)


def test_the_junit_file_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gate.xml"
    write_junit(RESULT, path)
    (suite,) = JUnitXml.fromfile(str(path))
    clean, red, incomplete = suite
    assert (suite.tests, suite.failures, suite.errors) == (3, 1, 1)
    assert (clean.name, clean.result, clean.time) == ("table reference", [], 0.5)
    assert red.name == "search vllm@/a,b:c"
    assert isinstance(red.result[0], Failure)
    assert red.result[0].message == "I4: 50% of"
    assert red.result[0].text == "I4: 50% of\nblocks\né�[1m"
    assert isinstance(incomplete.result[0], Error)
    assert incomplete.result[0].message == "incomplete"
    assert os.listdir(path.parent) == ["gate.xml"]


def test_a_junit_file_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(CouldNotRun, match="cannot write the JUnit file"):
        write_junit(RESULT, tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("value", [None, "", "false", "1"])
def test_there_are_no_annotations_elsewhere_than_on_github(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str | None
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    if value is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", value)
    annotate(RESULT)
    assert capsys.readouterr() == ("", "")


def test_on_github_what_is_not_clean_is_annotated_in_one_escaped_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotate(RESULT)
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.splitlines() == [
        "::error title=kvproof%3A search vllm@/a%2Cb%3Ac%3A counterexample"
        "::I4: 50%25 of%0Ablocks%0Aé\x1b[1m",
        "::error title=kvproof%3A corpus vllm==0.33.0%3A incomplete::",
    ]


# Settings


def project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_without_settings_the_defaults_apply(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings()
    assert read_settings(project(tmp_path / "other", "[tool.ruff]\n")) == Settings()


def test_settings_are_read_with_folders_relative_to_their_file(tmp_path: Path) -> None:
    text = """
    [tool.kvproof]
    subjects = ["reference:eager"]
    canaries = []
    corpus = "traces"
    out = "/found"
    seed = 7
    load = "full"
    """
    settings = read_settings(project(tmp_path, text))
    assert settings == Settings(
        ("reference:eager",), (), str(tmp_path / "traces"), "/found", 7, "full"
    )


def test_the_nearest_project_that_has_settings_wins(tmp_path: Path) -> None:
    project(tmp_path, "[tool.kvproof]\nseed = 1\n")
    inner = project(tmp_path / "a" / "inner", "[tool.kvproof]\nseed = 2\n")
    bare = project(tmp_path / "a" / "bare", "[project]\nname = 'bare'\n")
    assert read_settings(inner / "deep" / "er").seed == 2
    assert read_settings(bare).seed == 1
    assert read_settings(tmp_path).seed == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.kvproof]\nsubject = []", "has no key 'subject'; it knows canaries, corpus"),
        ("[tool.kvproof]\nsubjects = 'a'", "subjects must be a list of strings"),
        ("[tool.kvproof]\nsubjects = [1]", "subjects must be a list of strings"),
        ("[tool.kvproof]\nseed = 'a'", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nseed = true", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nseed = -1", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nout = 1", "out must be a string"),
        ("[tool.kvproof]\nload = 'half'", "load must be focused or full"),
        ("[tool]\nkvproof = 5", "tool.kvproof must be a table"),
        ("[tool.kvproof", "cannot read .*pyproject.toml: .*; correct it"),
    ],
)
def test_broken_settings_are_refused_with_the_file_and_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(CouldNotRun, match=message) as refused:
        read_settings(project(tmp_path, text))
    assert str(tmp_path / "pyproject.toml") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_dialect_has_a_column_to_compare_with() -> None:
    assert all(len(expected_column(name) or ()) == 10 for name in DIALECTS)
