"""Spin and rumur, given the machine in texts of their own, count what kvproof's explorer counts."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.agreement import Row
from model.releases import DIALECTS
from specs.exhaustive.checkers import murphi, python, spin
from specs.exhaustive.checkers.errors import CheckerError
from specs.exhaustive.checkers.instance import Instance, parse_instance
from specs.exhaustive.checkers.run import INSTALL, Count, missing

ROOT = Path(__file__).parents[2]
SMALL = parse_instance("5/2/2/1")
SIZES = ("5/2/2/1", "4/3/1/1")
POLICIES = ("eager", "charged", "deferred", "vllm-0.33.0")

installed = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def numbers(count: Count) -> tuple[int, int]:
    return count.states, count.transitions


@installed
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("policy", POLICIES)
def test_three_checkers_count_the_same_states_and_transitions(size: str, policy: str) -> None:
    instance, dialect = parse_instance(size), DIALECTS[policy]
    constants = instance.constants(dialect)
    expected = numbers(python.count(instance, dialect, reduce=False))
    assert expected > (100, 100)
    assert numbers(spin.count(constants, level="-O0")) == expected
    assert numbers(murphi.count(constants, level="-O0")) == expected


@installed
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("policy", POLICIES)
def test_states_up_to_renaming_are_those_of_exhaustive_symmetry(size: str, policy: str) -> None:
    instance, dialect = parse_instance(size), DIALECTS[policy]
    reduced = python.count(instance, dialect, reduce=True)
    assert reduced.states < python.count(instance, dialect, reduce=False).states
    found = murphi.count(instance.constants(dialect), "exhaustive", level="-O0")
    assert numbers(found) == numbers(reduced)


@installed
@pytest.mark.parametrize(
    ("policy", "steps"), [("eager", 15), ("charged", None), ("deferred", None)]
)
def test_the_nearest_violation_is_as_far_for_all(policy: str, steps: int | None) -> None:
    constants = SMALL.constants(DIALECTS[policy])
    assert python.shortest_violation(SMALL, DIALECTS[policy]) == steps
    assert spin.shortest_violation(constants, level="-O0") == steps
    assert murphi.shortest_violation(constants, level="-O0") == steps


PROMELA_FAULTS = [
    ("deferred", "!popping && writing[B]", "writing[B]"),
    ("charged", "CHARGE * free_copies", "0"),
    ("deferred", "copy[i] == b -> copy[i] = 0", "copy[i] == b -> skip"),
    ("deferred", "request[i].mode[j] != UNPINNED", "true"),
    ("charged", "NEED <= room", "NEED < room"),
    ("charged", "  request[r].hit = 0;\n", ""),
]
"""A dialect, a part of the text, and what stands there by mistake."""
MURPHI_FAULTS = [
    ("deferred", '"complete" !somebody_pops() & writing[b]', '"complete" writing[b]'),
    ("charged", "CHARGE = 1", "CHARGE = 2"),
    ("deferred", "copy[p] = b then undefine copy[p];", "copy[p] = b then"),
    ("deferred", "& mode[r][p] != unpinned", ""),
    ("charged", "need() <= free_blocks()", "need() < free_blocks()"),
    ("charged", "  hit[r] := false;\n", ""),
]


def faulty(source: str, right: str, wrong: str) -> str:
    assert source.count(right) == 1
    return source.replace(right, wrong)


@installed
@pytest.mark.parametrize(("policy", "right", "wrong"), PROMELA_FAULTS)
def test_a_fault_in_the_promela_text_is_seen(policy: str, right: str, wrong: str) -> None:
    dialect = DIALECTS[policy]
    source = faulty(spin.MACHINE, right, wrong)
    found = spin.count(SMALL.constants(dialect), source, level="-O0")
    assert numbers(found) != numbers(python.count(SMALL, dialect, reduce=False))


@installed
@pytest.mark.parametrize(("policy", "right", "wrong"), MURPHI_FAULTS)
def test_a_fault_in_the_murphi_text_is_seen(policy: str, right: str, wrong: str) -> None:
    dialect = DIALECTS[policy]
    source = faulty(murphi.MACHINE, right, wrong)
    found = murphi.count(SMALL.constants(dialect), source=source, level="-O0")
    assert numbers(found) != numbers(python.count(SMALL, dialect, reduce=False))


def row(**changed: Any) -> Row:
    everything, reduced = Count(10, 20, 1.0), Count(3, 5, 1.0)
    agreeing = Row(
        SMALL, DIALECTS["eager"], everything, everything, everything, reduced, reduced, (4, 4, 4)
    )
    return replace(agreeing, **changed)


@pytest.mark.parametrize("changed", [{}, {"rumur_reduced": None}, {"spin": Count(10, 20, 9.0)}])
def test_equal_counts_agree_whatever_time_they_took(changed: dict[str, Any]) -> None:
    assert row(**changed).agrees


@pytest.mark.parametrize(
    "changed",
    [
        {"spin": Count(11, 20, 1.0)},
        {"rumur": Count(10, 21, 1.0)},
        {"python": Count(9, 20, 1.0)},
        {"rumur_reduced": Count(4, 5, 1.0)},
        {"nearest": (4, 5, 4)},
        {"nearest": (4, 4, None)},
    ],
)
def test_any_difference_in_the_counts_is_a_disagreement(changed: dict[str, Any]) -> None:
    assert not row(**changed).agrees


@installed
def test_a_text_that_does_not_translate_is_an_error_and_no_count() -> None:
    constants = SMALL.constants(DIALECTS["eager"])
    with pytest.raises(CheckerError, match="spin failed"):
        spin.count(constants, "no Promela")
    with pytest.raises(CheckerError, match="rumur failed"):
        murphi.count(constants, source="no Murphi")


@pytest.mark.parametrize("text", ["", "4/2/1", "4/2/1/x", "1/1/1/1", "4/2/1/0", "4/2/-1/1"])
def test_what_is_no_instance_is_refused(text: str) -> None:
    with pytest.raises(CheckerError):
        parse_instance(text)


def test_an_instance_is_read_in_the_order_in_which_it_is_printed() -> None:
    assert parse_instance("6/3/2/1") == Instance(blocks=6, requests=3, pages=2, hot=1)
    assert str(Instance(6, 3, 2, 1)) == "6/3/2/1"


def test_missing_tools_are_named_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert missing() == f"not installed: spin, rumur, gcc (Debian: {INSTALL})"
    assert (ROOT / INSTALL).is_file()


def test_where_nothing_can_be_installed_the_script_says_so(tmp_path: Path) -> None:
    bash = Path("/bin/bash")
    done = subprocess.run(
        [bash, ROOT / INSTALL],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no apt-get here" in done.stderr
