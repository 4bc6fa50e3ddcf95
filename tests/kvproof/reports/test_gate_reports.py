"""What became of the gate, as JUnit, as annotations, and in words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest
from junitparser import Error, Failure, JUnitXml

from invariants.scheduler.effort import Effort
from invariants.violation import Cause, Violation
from kvproof.errors import CouldNotRun
from kvproof.gate.events import GateEvent, GateResult, StageEnded, StageProgress, StageStarted
from kvproof.gate.results import (
    CanaryResult,
    Column,
    CorpusResult,
    EffortResult,
    NotRun,
    PredictedResult,
    SearchResult,
    StageResult,
    TableResult,
)
from kvproof.reports.github import annotate
from kvproof.reports.junit import write_junit
from kvproof.reports.words.gate import describe_event, details_of
from kvproof.search.outcome import Finding, Outcome, Verdict
from kvproof.search.replayed import Replayed
from kvproof.theorems.proofs import Proofs
from model.program import Program

OUTCOME = Outcome("vllm@/a,b:c", "vllm-0.33.0", seed=0, programs=1, unmet=("é\x1b[1m",))
OUTCOME.findings = [
    Finding(Violation("I4", 0, Cause.OUT_OF_BLOCKS, ("50% of",)), Program(None, (1,)))
]
RESULT = GateResult(
    (
        StageEnded("table", "reference", 0.5, TableResult((), 10)),
        StageEnded("search", "vllm@/a,b:c", 1.5, SearchResult(OUTCOME)),
        StageEnded("corpus", "vllm==0.33.0", 0.0, NotRun("")),
    ),
    1.0,
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
    assert red.result[0].message == "I4 at step 1: 50% of"
    assert red.result[0].text == "I4 at step 1: 50% of\ngoal not met: é�[1m\n1 programs"
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
        "::I4 at step 1: 50%25 of%0Agoal not met: é\x1b[1m%0A1 programs",
        "::error title=kvproof%3A corpus vllm==0.33.0%3A incomplete::",
    ]


# Words

REPLAYED = Replayed("corpus/k1.json", "mine", "FIXED", "FAILED", None, "no rule is broken")
KNOWN = Replayed("corpus/k2.json", "mine", "FAILED", "FAILED", None, "I7", known="K2")
ELSEWHERE = Replayed("corpus/k3.json", "mine", "ERROR", None, None, "too small", starts=False)
MISMATCHES = tuple(f"action {n}: refused" for n in range(7))
FOUND = Outcome("mine", "vllm-0.33.0", 0, programs=1_200, actions_moving=3, steps=4_000)
FOUND.findings = [
    Finding(Violation("I4", 0, Cause.OUT_OF_BLOCKS, ("too few",)), Program(None, (1,))),
    Finding(Violation("I16", 9, Cause.OUT_OF_BLOCKS, ()), Program(None, (1,))),
]
FOUND.stopped = "the worker hung"
FOUND.unrepeated["crash"] = 2
FOUND.known["K4"] = 5
FOUND.waived = {"I8": "by design"}
FOUND.refused["no room"] = 6
DETAILS: list[tuple[StageResult, Verdict, tuple[str, ...]]] = [
    (NotRun("no network"), "incomplete", ("no network",)),
    (TableResult((Column("a", ("3/3",), ("3/3",)),), 10), "clean", ("10 rows",)),
    (
        TableResult((Column("a", ("1", "2"), ("1", "3")), Column("b", ("1",), ("1",))), 10),
        "counterexample",
        ("a: 1 2; expected 1 3",),
    ),
    (
        PredictedResult(1_200, 1_000, 3_000, (), None),
        "clean",
        ("1,200 pool shapes, 3,000 allocations, 0 mismatches",),
    ),
    (
        PredictedResult(900, 1_000, 3_000, MISMATCHES, "copies are free"),
        "incomplete",
        (
            *MISMATCHES[:5],
            "900 pool shapes, 3,000 allocations, 7 mismatches",
            "no mismatch of the faulty arithmetic: copies are free",
            "fewer than 1,000 pool shapes",
        ),
    ),
    (
        CorpusResult((REPLAYED, KNOWN, ELSEWHERE)),
        "counterexample",
        (
            "k1.json: FIXED, expected FAILED; no rule is broken",
            "known defect K2: k2.json",
            "k3.json is not for this subject: too small",
            "2 traces",
        ),
    ),
    (
        CorpusResult((ELSEWHERE,)),
        "incomplete",
        ("k3.json is not for this subject: too small", "0 traces"),
    ),
    (
        SearchResult(FOUND, {"I4": Path("my out/i4.json")}, "cannot write the other"),
        "counterexample",
        (
            "cannot write the other",
            "I4 at step 1: too few; kvproof replay 'my out/i4.json'",
            "I16 after the last step: I16",
            "ended early: the worker hung",
            "crash 2 times, and not again",
            "known defect K4, seen 5 times",
            "I8 is not judged: by design",
            "not run, 6 times: no room",
            "1,200 programs, 3 moving actions, 4,000 scheduler steps",
        ),
    ),
    (CanaryResult("bad", "I4", 9, actions=8), "clean", ("I4 seen to fail, in 8 actions",)),
    (
        CanaryResult("bad", "I4", 9, actions=None),
        "counterexample",
        ("bad is known to break I4, and nothing was found in 9 programs",),
    ),
    (
        EffortResult("I18", (Effort("full", True, 10, 99), Effort("mamba", False, 9, 9)), None),
        "counterexample",
        (
            "I18: full, asynchronous: 10 instructions after 16 pages, 99 after 128",
            "2 caches and schedulers",
        ),
    ),
    (
        EffortResult("I18", (Effort("full", False, 10, 99),), "it walks"),
        "clean",
        (
            "I18: full: 10 instructions after 16 pages, 99 after 128",
            "I18 is not judged: it walks",
            "1 caches and schedulers",
        ),
    ),
]


@pytest.mark.parametrize(("result", "verdict", "details"), DETAILS)
def test_a_stage_is_told_in_these_words(
    result: StageResult, verdict: Verdict, details: tuple[str, ...]
) -> None:
    assert (result.verdict, details_of(result)) == (verdict, details)


def test_every_kind_of_result_has_words() -> None:
    told = {type(result) for result, _, _ in DETAILS}
    assert told | {Proofs} == set(get_args(StageResult))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (StageStarted("search", "mine"), "search mine"),
        (StageProgress("search", "mine", 1_200), "search mine: 1,200 programs"),
        (StageProgress("search", "mine", 9, "minimising I4"), "search mine: minimising I4"),
        (StageEnded("search", "mine", 1.0, NotRun("")), "search mine: incomplete"),
    ],
)
def test_what_happens_now_is_one_line(event: GateEvent, words: str) -> None:
    assert describe_event(event) == words
