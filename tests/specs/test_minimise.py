"""What is shrunk is small, fails in the same way, and nothing more can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import pytest

from invariants.rules import RULE_BY_ID
from kvproof.levels.manager import ManagerExaminer
from kvproof.subjects.reference import reference_subject
from model.manager.actions import Action, Admit, Arrive, EndStep, Finish
from model.manager.configuration import Configuration
from model.manager.events import Refused
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS
from model.startup import below_minimum
from specs.manager.generator import draw_program
from specs.manager.plan import PLAN, shrink
from specs.shrink import remove_chunks, remove_pairs, shrunk

EAGER = DIALECTS["eager"]
FOUND = 5
MOST_ACTIONS = 8

examiner = ManagerExaminer(reference_subject(EAGER), EAGER, [RULE_BY_ID["I4"]], watch_goals=False)


@cache
def breaks_its_promise(program: ManagerProgram) -> bool:
    """Remembered: all small scopes are searched for each program that is shrunk."""
    return "I4" in examiner.examine(program).rules_broken


def failing_programs() -> Iterator[ManagerProgram]:
    """Drawn programs that crash the eager dialect, by seed."""
    for seed in range(5_000):
        program = draw_program(Random(seed), EAGER, 60, {"num_host_blocks": 1})
        if breaks_its_promise(program):
            yield program


@cache
def drawn_and_shrunk() -> tuple[tuple[ManagerProgram, ManagerProgram], ...]:
    found = failing_programs()
    programs = [next(found) for _ in range(FOUND)]
    return tuple((p, shrink(p, breaks_its_promise, EAGER)) for p in programs)


def without_one(program: ManagerProgram) -> Iterator[ManagerProgram]:
    for place in range(len(program.actions)):
        actions = program.actions[:place] + program.actions[place + 1 :]
        yield Program(program.configuration, actions)


@pytest.mark.parametrize("number", range(FOUND))
def test_a_crash_of_the_eager_dialect_is_shrunk_to_a_few_actions(number: int) -> None:
    drawn, small = drawn_and_shrunk()[number]
    assert len(drawn.actions) > MOST_ACTIONS
    assert len(small.actions) <= MOST_ACTIONS


@pytest.mark.parametrize("number", range(FOUND))
def test_what_is_left_still_fails_in_an_engine_that_starts(number: int) -> None:
    _, small = drawn_and_shrunk()[number]
    assert breaks_its_promise(small)
    assert below_minimum(small.configuration, EAGER) is None


@pytest.mark.parametrize("number", range(FOUND))
def test_without_any_single_action_the_failure_is_gone(number: int) -> None:
    _, small = drawn_and_shrunk()[number]
    assert not any(breaks_its_promise(shorter) for shorter in without_one(small))


@pytest.mark.parametrize("number", range(FOUND))
def test_without_any_two_actions_the_failure_is_gone(number: int) -> None:
    _, small = drawn_and_shrunk()[number]
    assert remove_pairs(small, breaks_its_promise) == small


def refuses(program: ManagerProgram) -> bool:
    trace = reference_subject(EAGER).run(program, "none")
    return any(isinstance(event, Refused) for step in trace.steps for event in step.response)


def test_the_same_program_is_shrunk_to_the_same_program() -> None:
    drawn = next(p for p in (draw_program(Random(n), EAGER, 40) for n in range(99)) if refuses(p))
    small = shrink(drawn, refuses, EAGER)
    assert shrink(drawn, refuses, EAGER) == small
    assert shrink(small, refuses, EAGER) == small


# The passes, on failures that are plain to see

LONG: tuple[Action, ...] = (
    Arrive(family=1, prompt=9),
    Admit(tokens=9),
    EndStep(),
    Arrive(prompt=3),
    Finish(request=1),
    EndStep(),
)


def count_of(program: ManagerProgram, kind: type[Action]) -> int:
    return sum(isinstance(action, kind) for action in program.actions)


def test_runs_of_actions_are_removed_down_to_those_that_matter() -> None:
    small = remove_chunks(Program(Configuration(), LONG), lambda p: count_of(p, Finish) == 1)
    assert small.actions == (Finish(request=1),)


def test_two_actions_that_only_go_together_are_removed_together() -> None:
    def balanced(program: ManagerProgram) -> bool:
        return count_of(program, Arrive) == count_of(program, EndStep)

    small = remove_pairs(Program(Configuration(), LONG), balanced)
    assert count_of(small, Arrive) == count_of(small, EndStep) == 0


def test_numbers_and_modes_become_plain_where_the_failure_allows() -> None:
    odd = Configuration(policy="priority", num_workers=2, watermark_blocks=1)
    small = shrunk(Program(odd, LONG), lambda p: count_of(p, Arrive) == 1 and _large(p), PLAN)
    assert small.actions == (Arrive(prompt=5),)
    plain = Configuration()
    assert (small.configuration.policy, small.configuration.num_workers) == ("fcfs", 1)
    assert small.configuration.watermark_blocks == plain.watermark_blocks


def _large(program: ManagerProgram) -> bool:
    return any(isinstance(a, Arrive) and a.prompt >= 5 for a in program.actions)
