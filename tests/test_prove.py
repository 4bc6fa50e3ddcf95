"""The command that proves: verdicts, twins, exit codes."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kvproof.cli import app
from kvproof.errors import CouldNotRun
from kvproof.prove import Proofs, run_proofs

KEYS = {"id", "rule", "verdict", "expected", "ms", "twin", "witness"}


def test_the_json_tells_of_every_obligation_that_was_asked_for() -> None:
    arguments = ["prove", "--only", "eager-unsound", "--only", "pops-fit", "--json"]
    answer = CliRunner().invoke(app, arguments)
    told = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert {entry["id"] for entry in told["obligations"]} == {"eager-unsound", "pops-fit"}
    assert (told["proved"], told["refuted"], told["unknown"]) == (1, 1, 0)
    assert all(set(entry) == KEYS for entry in told["obligations"])


def test_an_unknown_obligation_is_named() -> None:
    with pytest.raises(CouldNotRun, match="no obligation 'nope'"):
        run_proofs(["nope"])


@pytest.fixture
def proofs() -> Proofs:
    return run_proofs(["pops-fit"])


def test_an_unexpected_verdict_is_a_counterexample(proofs: Proofs) -> None:
    wrong = replace(proofs.results[0], as_expected=False)
    assert Proofs((wrong,), 0.0).verdict == "counterexample"


def test_unknown_is_never_proved(proofs: Proofs) -> None:
    unknown = replace(proofs.results[0], as_expected=False, undecided=True)
    assert Proofs((unknown,), 0.0).verdict == "incomplete"


def test_proving_nothing_proves_nothing() -> None:
    assert Proofs((), 0.0).verdict == "incomplete"
