"""The command that proves: verdicts, twins, exit codes."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from invariants.proofs.catalogue import OBLIGATIONS
from kvproof import prove
from kvproof.cli import app
from kvproof.errors import CouldNotRun
from kvproof.prove import Proofs, chosen, run_proofs


def test_the_json_tells_of_every_obligation_that_was_asked_for() -> None:
    arguments = ["prove", "--only", "eager-unsound", "--only", "pops-fit", "--json"]
    answer = CliRunner().invoke(app, arguments)
    told = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert [entry["id"] for entry in told["obligations"]] == ["eager-unsound", "pops-fit"]
    assert (told["proved"], told["refuted"], told["unknown"]) == (1, 1, 0)
    assert set(told["obligations"][0]) == {
        "id", "rule", "verdict", "expected", "ms", "twin", "witness",
    }  # fmt: skip


def test_an_unknown_obligation_is_named() -> None:
    with pytest.raises(CouldNotRun, match="no obligation 'nope'"):
        chosen(["nope"])


@pytest.fixture
def proofs() -> Proofs:
    return run_proofs(["pops-fit"])


def test_an_unexpected_verdict_is_a_counterexample(proofs: Proofs) -> None:
    wrong = replace(proofs.results[0], verdict="refuted")
    assert Proofs((wrong,), 0.0).verdict == "counterexample"


def test_a_twin_that_does_not_fail_is_a_counterexample(proofs: Proofs) -> None:
    idle = replace(proofs.results[0], twin="proved")
    assert Proofs((idle,), 0.0).verdict == "counterexample"


def test_unknown_is_never_proved(proofs: Proofs) -> None:
    for name in ("verdict", "twin"):
        unknown = replace(proofs.results[0], **{name: "unknown"})  # type: ignore[arg-type]
        assert Proofs((unknown,), 0.0).verdict == "incomplete"


def test_proving_nothing_proves_nothing() -> None:
    assert Proofs((), 0.0).verdict == "incomplete"


def test_a_changed_model_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An obligation over another formula than the model's comes out otherwise."""
    obligation = next(o for o in OBLIGATIONS if o.id == "pops-fit")
    turned = replace(obligation, expected="refuted")
    monkeypatch.setattr(prove, "OBLIGATIONS", (turned,))
    assert run_proofs().verdict == "counterexample"
