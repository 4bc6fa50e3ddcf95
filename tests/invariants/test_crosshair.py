"""CrossHair: the arithmetic as it runs, over all paths, and beside the engine's own predictor."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from invariants.proofs import contracts
from invariants.proofs.mutants import MUTANTS, Mutant
from kvproof.engines.vllm.engine import provision_release
from model import admission
from model.releases import VERSIONS

ROOT = Path(__file__).parents[2]
CONTRACTS = "invariants.proofs.contracts"
CONFIRMED = "info: Confirmed over all paths."
EXHAUSTED = "All paths exhausted"
SECONDS = 20
"""For one condition: each takes less than four."""
WRONG = "eager_is_sound_is_wrong"

KILLED_BY = {
    "the hit's free blocks are not charged": "full_attention_takes_pages_and_free_hit_blocks",
    "the pages of the hit are charged again": "full_attention_takes_pages_and_free_hit_blocks",
    "resident pages are charged as if computed ones were to be fetched": (
        "resident_takes_what_is_neither_held_nor_computed"
    ),
    "one resident group is charged for all": "deferred_is_sound",
    "a hot region that is held is charged anew": "hot_region_is_taken_whole_or_not_at_all",
    "copies that a hit pins are not charged": "charged_is_sound",
    "the sentinel is the size of the shortage": "a_host_shortage_is_refused",
    "one host block too many is taken for free": "a_host_shortage_is_refused",
    "the watermark is forgotten": "admission_leaves_its_watermark",
    "the last free block is kept back": "deferred_refuses_nothing_that_fits",
    "one block too many is taken for free": "deferred_is_sound",
    "the window widens what the full-sequence gate asks for": "a_window_never_asks_for_more",
    "blocks behind the copies are taken to be popped last": "copies_kept_are_a_count",
}
"""The contract that a fault of ``invariants.proofs.mutants`` breaks."""

PAIRS = ("ceil_div", "full", "free", "resident", "hot", "host", "waiting", "window", "startup")
NEWEST = VERSIONS[-1]


def crosshair(*arguments: str, path: Path = ROOT, **environment: str) -> tuple[int, str]:
    """Exit code and output; ``path`` comes before the project on the path of modules."""
    done = subprocess.run(
        [sys.executable, "-m", "crosshair", *arguments],
        cwd=path,
        env={**os.environ, **environment, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def check(target: str, path: Path = ROOT) -> tuple[int, str]:
    limit = f"--per_condition_timeout={SECONDS}"
    return crosshair("check", "--report_all", "--analysis_kind=asserts", limit, target, path=path)


def contract_functions() -> dict[str, int]:
    """Name and first line of each contract: a function that begins with an assertion."""
    functions = [n for n in ast.parse(inspect.getsource(contracts)).body
                 if isinstance(n, ast.FunctionDef)]  # fmt: skip
    return {f.name: f.lineno for f in functions if any(isinstance(n, ast.Assert) for n in f.body)}


# Contracts


def test_every_contract_is_confirmed_over_all_paths_and_the_wrong_one_is_refuted() -> None:
    """Not confirmed is no error for CrossHair: each line of its report is looked at."""
    code, report = check(CONTRACTS)
    lines = sorted(contract_functions().values())
    reports = re.findall(r"contracts\.py:(\d+): (.*)", report)
    said = {max(line for line in lines if line <= int(at)): word for at, word in reports}
    words = {name: said[line] for name, line in contract_functions().items()}
    assert len(reports) == len(words) >= 15
    refuted = words.pop(WRONG)
    assert set(words.values()) == {CONFIRMED}, words
    assert refuted == f"error: AssertionError:  when calling {WRONG}(1, 0, 1, 1)"
    assert code == 1


def test_the_contracts_call_every_function_of_admission() -> None:
    defined = {
        name for name, f in vars(admission).items()
        if inspect.isfunction(f) and f.__module__ == admission.__name__ and f.__name__ == name
    }  # fmt: skip
    named = {n.id for n in ast.walk(ast.parse(inspect.getsource(contracts)))
             if isinstance(n, ast.Name)}  # fmt: skip
    assert defined - named == set()
    assert len(defined) == 7


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_fault_in_the_arithmetic_breaks_its_contract(mutant: Mutant, tmp_path: Path) -> None:
    package = tmp_path / "model"
    shutil.copytree(ROOT / "model", package, ignore=shutil.ignore_patterns("__pycache__"))
    source = inspect.getsource(admission)
    assert source.count(mutant.original) == 1
    (package / "admission.py").write_text(source.replace(mutant.original, mutant.changed))
    code, report = check(f"{CONTRACTS}.{KILLED_BY[mutant.fault]}", tmp_path)
    assert code == 1
    assert "error: AssertionError" in report


# The engine's own predictor


def compare(side: str, pair: str, version: str) -> tuple[int, str]:
    """Integers on which one side and the engine differ, if there are any."""
    functions = [f"engine_predictor.{name}_{pair}" for name in (side, "engine")]
    limit = f"--per_condition_timeout={SECONDS}"
    source = str(provision_release(version, "focused").source)
    return crosshair(
        "diffbehavior", limit, *functions, path=ROOT / "tests", KVPROOF_ENGINE_SOURCE=source
    )


@pytest.mark.parametrize(
    ("pair", "version"),
    [(pair, NEWEST) for pair in PAIRS] + [("waiting", version) for version in VERSIONS[:-1]],
)
def test_the_model_and_the_engines_predictor_do_not_differ(pair: str, version: str) -> None:
    code, report = compare("model", pair, version)
    assert code == 0, report
    assert EXHAUSTED in report


@pytest.mark.parametrize("pair", PAIRS)
def test_a_mutant_is_told_apart_from_the_engines_predictor(pair: str) -> None:
    code, report = compare("mutant", pair, NEWEST)
    assert code == 1
    assert f"mutant_{pair} : returns" in report
    assert "raises" not in report


def test_a_host_shortage_differs_where_the_host_is_best_effort() -> None:
    """0.30.0 has no sentinel: that is a switch of its dialect."""
    code, report = compare("model", "host", "0.30.0")
    assert code == 1
    assert "engine_host : returns 0" in report
