"""Goals: what a green search must have seen, and that it is not green without."""

from __future__ import annotations

from typing import Any

import pytest

from invariants.manager.goals import GOALS, unreachable_goals
from kvproof.levels import manager as examine_module
from kvproof.levels.manager import ManagerExaminer
from kvproof.search.hunt import soak
from kvproof.search.outcome import Outcome
from kvproof.subjects.reference import reference_subject
from model.releases import DIALECTS

PROGRAMS = 200


def watched(dialect: str, programs: int = PROGRAMS) -> Outcome:
    """A soak that judges no rule."""
    subject = reference_subject(DIALECTS[dialect])
    return soak(ManagerExaminer(subject, subject.runs_as, rules=()), 0, programs)


@pytest.fixture(scope="module")
def newest() -> Outcome:
    return watched("vllm-0.33.0")


@pytest.mark.parametrize("goal", GOALS)
def test_each_goal_is_met_on_the_newest_release(newest: Outcome, goal: str) -> None:
    assert not unreachable_goals(DIALECTS["vllm-0.33.0"])
    assert newest.goals[goal] > 0


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "vllm-0.33.0"])
def test_other_dialects_meet_all_goals_but_those_that_they_name(dialect: str) -> None:
    outcome = watched(dialect)
    unreachable = unreachable_goals(DIALECTS[dialect])
    met = {goal for goal in GOALS if outcome.goals[goal]}
    assert met >= set(GOALS) - set(unreachable)
    assert (outcome.verdict, outcome.unmet) == ("clean", ())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_goal_is_called_unreachable_with_a_reason_only(dialect: str) -> None:
    for goal, reason in unreachable_goals(DIALECTS[dialect]).items():
        assert goal in GOALS
        assert reason


def test_an_unmet_goal_makes_the_verdict_incomplete() -> None:
    outcome = watched("vllm-0.33.0", programs=1)
    assert outcome.verdict == "incomplete"
    assert set(outcome.unmet) == {goal for goal in GOALS if not outcome.goals[goal]}


def test_a_goal_that_nothing_can_meet_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_unreachable(_: Any) -> dict[str, str]:
        return dict.fromkeys(GOALS, "for once")

    monkeypatch.setattr(examine_module, "unreachable_goals", all_unreachable)
    assert watched("vllm-0.33.0", programs=1).verdict == "clean"
