"""The Hypothesis machine of whole engine steps draws what counts, and hands it on."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from model.scheduler.actions import Arrive, CompleteLoad, CompleteTransfers
from model.scheduler.legal import problem_of_program
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from specs.scheduler.generator import draw_setup
from specs.scheduler.machine import MOST_ACTIONS, machine_for


def drawn(
    draw: Callable[[Random], SchedulerSetup], finished: Callable[[SchedulerProgram], None]
) -> None:
    chosen = settings(
        max_examples=25,
        stateful_step_count=20,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    seed(1)(get_state_machine_test(machine_for(draw, finished), settings=chosen))()


def test_every_program_counts_and_begins_with_a_request() -> None:
    seen: list[SchedulerProgram] = []
    drawn(draw_setup, seen.append)
    assert len(seen) >= 20
    for program in seen:
        assert problem_of_program(program) is None
        assert isinstance(program.actions[0], Arrive)
        assert len(program.actions) <= MOST_ACTIONS


def test_what_is_fixed_holds_and_what_it_excludes_is_not_drawn() -> None:
    seen: list[SchedulerProgram] = []
    fixed = {"cache": "full", "external_store": False}
    drawn(lambda random: draw_setup(random, fixed), seen.append)
    kinds = {type(action) for program in seen for action in program.actions}
    assert {program.configuration.cache for program in seen} == {"full"}
    assert not kinds & {CompleteTransfers, CompleteLoad}


def test_a_program_that_is_called_failed_fails_the_machine() -> None:
    def finished(program: SchedulerProgram) -> None:
        raise LookupError(f"{len(program.actions)} actions")

    with pytest.raises(LookupError):
        drawn(draw_setup, finished)
