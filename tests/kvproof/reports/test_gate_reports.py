"""What became of the gate, as JUnit, as annotations, and in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml

from invariants.violation import Cause, Violation
from kvproof.errors import CouldNotRun
from kvproof.gate.events import GateResult, StageEnded
from kvproof.gate.results import NotRun, SearchResult, TableResult
from kvproof.reports.github import annotate
from kvproof.reports.junit import write_junit
from kvproof.search.hunt import Finding, Outcome
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
