"""The command that proves: verdicts, twins, exit codes."""

import json
import os
import signal
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from invariants.proofs.catalogue import OBLIGATIONS
from invariants.proofs.transition_system.mutants import mutants
from kvproof.cli import app_for
from kvproof.errors import CouldNotRun
from kvproof.theorems.proofs import Proofs
from kvproof.theorems.proving import run_proofs, sharing

KEYS = {"id", "rule", "verdict", "expected", "ms", "twin", "witness"}


def test_the_json_tells_of_every_obligation_that_was_asked_for() -> None:
    arguments = ["prove", "--only", "eager-unsound", "--only", "pops-fit", "--json"]
    answer = CliRunner().invoke(app_for(arguments), arguments)
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
    assert Proofs((wrong,), 0.0, "").verdict == "counterexample"


def test_unknown_is_never_proved(proofs: Proofs) -> None:
    unknown = replace(proofs.results[0], as_expected=False, undecided=True)
    assert Proofs((unknown,), 0.0, "").verdict == "incomplete"


def test_proving_nothing_proves_nothing() -> None:
    assert Proofs((), 0.0, "").verdict == "incomplete"


# Several processes.


@pytest.fixture(scope="module")
def alone() -> Proofs:
    return run_proofs(processes=1)


def test_all_is_as_expected(alone: Proofs) -> None:
    assert [result.id for result in alone.results if not result.as_expected] == []
    assert alone.verdict == "clean"
    assert alone.count("unknown") == 0
    assert len(alone.results) > 300


def test_no_obligation_and_no_mutant_is_lost(alone: Proofs) -> None:
    known = {obligation.id for obligation in OBLIGATIONS}
    ids = [result.id for result in alone.results]
    assert len(ids) == len(set(ids))
    assert known == {name for name in ids if not name.startswith("system.")}
    killed = [name for name in ids if name.startswith("system.mutant.")]
    assert killed == [f"system.mutant.{mutant.name}" for mutant in mutants()]
    assert len(killed) >= 10


def test_two_processes_find_what_one_finds_in_the_same_order(alone: Proofs) -> None:
    together = run_proofs(processes=2)
    assert [(r.id, r.rule, r.verdict, r.expected, r.twin) for r in together.results] == [
        (r.id, r.rule, r.verdict, r.expected, r.twin) for r in alone.results
    ]


def test_a_process_that_dies_is_an_error_in_one_line() -> None:
    with pytest.raises(CouldNotRun, match="died"), sharing(2) as mapping:
        list(mapping(dies, ["a", "b"]))


def dies(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_process_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError), sharing(2) as mapping:
        list(mapping(fails, [0]))


def fails(number: int) -> float:
    return 1 / number
