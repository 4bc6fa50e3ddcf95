"""The gate's stages as a JUnit file."""

from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from kvproof.errors import CouldNotRun
from kvproof.gate import GateResult


def write_junit(result: GateResult, path: Path) -> None:
    """One test case a stage: red stages are failures, incomplete ones are errors."""
    suite = TestSuite("kvproof gate")
    for stage in result.stages:
        case = TestCase(f"{stage.name} {stage.subject}", "kvproof.gate", stage.seconds)
        text = "\n".join(stage.details)
        if stage.verdict == "counterexample":
            case.result = [Failure(text or "counterexample")]
        elif stage.verdict == "incomplete":
            case.result = [Error(text or "incomplete")]
        suite.add_testcase(case)
    report = JUnitXml("kvproof")
    report.add_testsuite(suite)
    report.update_statistics()  # type: ignore[no-untyped-call]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.partial")
        report.write(str(partial), pretty=True)
        partial.replace(path)
    except OSError as error:
        raise CouldNotRun(f"cannot write the JUnit file {path}: {error.strerror}") from error
