"""What is shrunk at the level of the scheduler still fails, is legal, and is small."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.subjects.names import open_subject
from model.program import program_to_json
from model.scheduler.actions import Arrive, Step
from model.scheduler.legal import problem_of_program
from model.scheduler.minimum import minimum_pools
from model.scheduler.program import SchedulerProgram
from specs.scheduler.generator import draw_program
from specs.scheduler.plan import shrink

DEFECTS = (("0.30.0", "K1", 0), ("0.33.0", "K3", 140), ("0.33.0", "K4", 1070), ("0.33.0", "K5", 0))
"""(release, defect, a seed from which it is drawn soon)."""
MOST_ACTIONS = 10
MOST_RUNS = 3_000


def without_one(program: SchedulerProgram) -> Iterator[SchedulerProgram]:
    for place in range(len(program.actions)):
        actions = program.actions[:place] + program.actions[place + 1 :]
        yield replace(program, actions=actions)


@pytest.mark.parametrize(("version", "defect", "seed"), DEFECTS)
def test_a_found_defect_is_shrunk_to_a_few_actions(version: str, defect: str, seed: int) -> None:
    with open_subject(f"vllm=={version}", "scheduler") as subject:
        examiner = SchedulerExaminer(subject, watch_goals=False)
        runs = 0

        @cache
        def fails(program: SchedulerProgram) -> bool:
            nonlocal runs
            runs += 1
            assert problem_of_program(program) is None
            return defect in {violation.known for violation in examiner.examine(program).violations}

        drawn = (draw_program(Random(seed + n), 40) for n in range(20))
        program = next(p for p in drawn if fails(p))
        small = shrink(program, fails)
        assert fails(small)
        assert len(small.actions) <= MOST_ACTIONS < len(program.actions)
        assert not any(fails(shorter) for shorter in without_one(small))
        assert shrink(small, fails) == small
        assert runs < MOST_RUNS
        setup = small.configuration
        smaller = replace(small, configuration=replace(setup, num_blocks=setup.num_blocks - 1))
        assert problem_of_program(smaller) is not None or not fails(smaller)


# On failures that are known whole


def minimal(fails: Callable[[SchedulerProgram], bool], seed: int = 1) -> SchedulerProgram:
    program = next(p for n in range(99) if fails(p := draw_program(Random(seed + n), 40)))
    return shrink(program, fails)


def test_what_always_fails_becomes_the_plainest_setup_without_actions() -> None:
    small = minimal(lambda program: program.configuration.cache == "hisparse")
    setup = small.configuration
    assert small.actions == ()
    assert (setup.block_size, setup.max_model_len, setup.max_num_seqs) == (1, 2, 1)
    assert (setup.num_resident_groups, setup.hot_blocks) == (1, 1)
    assert (setup.policy, setup.async_scheduling, setup.external_store) == ("fcfs", False, False)
    least = minimum_pools(setup)
    assert (setup.num_blocks, setup.num_host_blocks) == (least.gpu_blocks, least.host_blocks)


def test_what_a_failure_needs_is_kept_and_no_more() -> None:
    def fails(program: SchedulerProgram) -> bool:
        arrivals = [a for a in program.actions if isinstance(a, Arrive) and a.prompt >= 3]
        steps = [a for a in program.actions if isinstance(a, Step)]
        setup = program.configuration
        return len(arrivals) >= 2 and len(steps) >= 1 and setup.async_scheduling

    small = minimal(fails)
    assert sorted(type(action).__name__ for action in small.actions) == ["Arrive", "Arrive", "Step"]
    assert small.configuration.async_scheduling
    assert small.configuration.policy == "fcfs"
    for action in small.actions:
        assert action in (Arrive(prompt=3, output=1), Step())


def test_a_failure_that_comes_and_goes_is_shrunk_in_finite_time() -> None:
    asked: set[str] = set()

    def fails(program: SchedulerProgram) -> bool:
        text = json.dumps(program_to_json(program))
        asked.add(text)
        return hashlib.sha256(text.encode()).digest()[0] < 128

    small = minimal(fails)
    assert fails(small)
    assert 10 < len(asked) < MOST_RUNS


def test_an_illegal_program_is_never_asked_for() -> None:
    def fails(program: SchedulerProgram) -> bool:
        assert problem_of_program(program) is None
        setup = program.configuration
        stored = any(isinstance(a, Arrive) and a.stored for a in program.actions)
        return setup.hisparse and setup.external_store and stored

    small = minimal(fails)
    (arrival,) = small.actions
    assert isinstance(arrival, Arrive)
    assert (arrival.stored, arrival.asynchronous) == (1, True)  # plainer would be illegal
