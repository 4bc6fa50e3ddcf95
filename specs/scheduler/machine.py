"""The Hypothesis machine over whole engine steps.

It draws blind, as the generator does, for no engine is asked before the program is finished: then
it hands the program on, to be run and judged.
"""

from collections.abc import Callable
from random import Random
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from model.program import Program
from model.scheduler.actions import (
    Abort,
    Action,
    CompleteLoad,
    CompleteTransfers,
    Output,
    Reset,
    Step,
)
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from specs.scheduler.generator import EVERYTHING, Taste, arrive, draw_some, draw_taste

DrawSetup = Callable[[Random], SchedulerSetup]
Finished = Callable[[SchedulerProgram], None]
"""Examines a program that a machine has drawn; raises to call it failed."""

PLAYED = 4
"""Draws of the generator at a time: an action each, or a few that belong together."""
MOST_ACTIONS = 60
randoms = st.randoms(use_true_random=True)
"""Seeded by Hypothesis: one draw each. What fails is shrunk as a program, not as draws."""


class SchedulerMachine(RuleBasedStateMachine):
    """Draws a setup and actions for it."""

    draw_setup: ClassVar[DrawSetup]
    finished: ClassVar[Finished]

    @initialize(random=randoms)
    def start(self, random: Random) -> None:
        self.setup = type(self).draw_setup(random)
        self.taste: Taste = draw_taste(random, self.setup)
        self.actions: list[Action] = [*arrive(random, self.setup, self.taste)]

    @rule(random=randoms)
    def play(self, random: Random) -> None:
        """A few actions of the generator, which knows what is fatal side by side."""
        for _ in range(PLAYED):
            self.actions += draw_some(random, self.setup, self.taste)

    @rule(random=randoms)
    def one_comes(self, random: Random) -> None:
        self.actions += arrive(random, self.setup, self.taste)

    @rule(steps=st.sampled_from((1, 2, 3)))
    def step(self, steps: int) -> None:
        self.actions += [Step()] * steps

    @rule()
    def output(self) -> None:
        self.actions.append(Output())

    @precondition(lambda self: self.setup.hisparse)
    @rule(count=st.sampled_from((1, 2, EVERYTHING)))
    def complete_transfers(self, count: int) -> None:
        self.actions.append(CompleteTransfers(count))

    @precondition(lambda self: self.setup.external_store)
    @rule(load=st.sampled_from((0, 1, 2)))
    def complete_load(self, load: int) -> None:
        self.actions.append(CompleteLoad(load))

    @rule(request=st.integers(0, 3))
    def abort(self, request: int) -> None:
        self.actions.append(Abort(request))

    @precondition(lambda self: len(self.actions) > MOST_ACTIONS // 2)
    @rule(preempt_running=st.booleans())
    def reset(self, preempt_running: bool) -> None:
        self.actions.append(Reset(preempt_running))

    def teardown(self) -> None:
        if hasattr(self, "actions"):
            program = Program(self.setup, tuple(self.actions[:MOST_ACTIONS]))
            type(self).finished(program)


def machine_for(draw_setup: DrawSetup, finished: Finished) -> type[SchedulerMachine]:
    """A machine that hands every finished program on; ``draw_setup`` may fix settings."""
    attributes = {"draw_setup": staticmethod(draw_setup), "finished": staticmethod(finished)}
    return type("Machine", (SchedulerMachine,), attributes)
