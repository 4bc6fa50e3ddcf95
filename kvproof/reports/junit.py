"""The gate's stages as a JUnit file."""

import os
import re
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from kvproof.errors import CouldNotRun
from kvproof.gate.events import GateResult
from kvproof.reports.words.gate import details_of

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold, not even escaped."""


def write_junit(result: GateResult, path: Path) -> None:
    """One test case a stage: red stages are failures, incomplete ones are errors.

    Writes the whole file or leaves what was there; raises ``CouldNotRun``.
    """
    report = JUnitXml("kvproof")
    report.add_testsuite(_suite(result))
    report.update_statistics()  # type: ignore[no-untyped-call]
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            report.write(str(partial), pretty=True)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise CouldNotRun(f"cannot write the JUnit file {path}: {error.strerror}") from error


def _suite(result: GateResult) -> TestSuite:
    suite = TestSuite("kvproof gate")
    for stage in result.stages:
        name = _as_xml(f"{stage.name} {stage.subject}")
        case = TestCase(name, "kvproof.gate", stage.seconds)
        if stage.verdict != "clean":
            kind = Failure if stage.verdict == "counterexample" else Error
            details = _as_xml("\n".join(details_of(stage.result)))
            shown = kind((details or stage.verdict).splitlines()[0])
            shown.text = details
            case.result = [shown]
        suite.add_testcase(case)
    return suite


def _as_xml(text: str) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
