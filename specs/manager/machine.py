"""The Hypothesis machine over the actions.

It generates against the reference, which tells what is possible now, and hands the finished
program on: to be judged on the reference alone, or in lockstep with an engine.
"""

from collections.abc import Callable
from random import Random
from typing import ClassVar

from hypothesis import event, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from model.dialect import Dialect
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    EvictBlocks,
    Extend,
    Finish,
    Output,
    Preempt,
    Reset,
)
from model.manager.events import AdmissionRefused, Admitted
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Program
from model.reference import ReferenceAllocator
from specs.manager.generator import MAX_REQUESTS, ReferenceSession, draw_action, draw_configuration

Finished = Callable[[ManagerProgram], None]
"""Examines a program that a machine has played; raises to call it failed."""


small = st.integers(0, MAX_REQUESTS - 1)
MAX_WAITING = 2
PLAYED_ACTIONS = 8
randoms = st.randoms(use_true_random=True)
"""Seeded by Hypothesis: one draw each. What fails is shrunk as a program, not as draws."""
token_counts = st.sampled_from((24, 1, 2, 4, 5, 8, 7))


class AllocatorMachine(RuleBasedStateMachine):
    """Plays actions on the reference."""

    dialect: ClassVar[Dialect]
    finished: ClassVar[Finished]

    @initialize(random=randoms)
    def start(self, random: Random) -> None:
        self.configuration = draw_configuration(random, self.dialect)
        self.allocator = ReferenceAllocator(self.configuration, self.dialect)
        self.session: ReferenceSession = Session(self.configuration, self.allocator)
        self.actions: list[Action] = []
        self.slack = self.configuration.num_blocks

    def take(self, action: Action) -> None:
        if self.session.dead:
            return
        free = len(self.allocator.state.gpu.free)
        response = self.session.do(action)
        self.actions.append(action)
        for happened in response:
            event(f"{type(action).__name__}: {happened.word}")
            if isinstance(happened, Admitted | AdmissionRefused):
                self.slack = min(self.slack, abs(free - happened.promised[-1]))

    @precondition(lambda self: len(self.session.waiting) < MAX_WAITING)
    @rule(
        family=st.sampled_from((0, 0, 0, 1)),
        shared=st.sampled_from((24, 24, 0, 12, 8, 5)),
        prompt=st.sampled_from((24, 24, 12, 9, 8, 5, 1)),
        salt=st.sampled_from((0, 0, 0, 0, 1)),
    )
    def arrive(self, family: int, shared: int, prompt: int, salt: int) -> None:
        self.take(Arrive(family, shared, prompt, salt))

    @rule(random=randoms)
    def play(self, random: Random) -> None:
        """A few actions of the generator, which aims at counts of free blocks that matter."""
        for _ in range(PLAYED_ACTIONS):
            self.take(draw_action(random, self.session))

    @precondition(lambda self: Admit in self.session.enabled())
    @rule(request=small, tokens=token_counts)
    def admit(self, request: int, tokens: int) -> None:
        self.take(Admit(request, tokens))

    @precondition(lambda self: Extend in self.session.enabled())
    @rule(request=small, tokens=token_counts)
    def extend(self, request: int, tokens: int) -> None:
        self.take(Extend(request, tokens))

    @precondition(lambda self: Preempt in self.session.enabled())
    @rule(request=small)
    def preempt(self, request: int) -> None:
        self.take(Preempt(request))

    @precondition(lambda self: not self.session.between_steps)
    @rule()
    def end_step(self) -> None:
        self.take(EndStep())

    @precondition(lambda self: Output in self.session.enabled())
    @rule()
    def output(self) -> None:
        self.take(Output())

    @precondition(lambda self: CompleteTransfers in self.session.enabled())
    @rule(worker=st.integers(0, 1), count=st.sampled_from((99, 1, 2)))
    def complete_transfers(self, worker: int, count: int) -> None:
        self.take(CompleteTransfers(worker, count))

    @precondition(lambda self: Finish in self.session.enabled())
    @rule(request=small, aborted=st.booleans())
    def finish(self, request: int, aborted: bool) -> None:
        self.take(Finish(request, aborted))

    @precondition(lambda self: self.session.enabled().get(Finish, 0) > 3)
    @rule(preempt_running=st.booleans(), evict=st.booleans(), request=small, page=small)
    def disturb(self, preempt_running: bool, evict: bool, request: int, page: int) -> None:
        self.take(EvictBlocks(request, page) if evict else Reset(preempt_running))

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        target(-float(self.slack), label="blocks between admission and refusal")
        type(self).finished(Program(self.configuration, tuple(self.actions)))


def machine_for(dialect: Dialect, finished: Finished) -> type[AllocatorMachine]:
    """A machine for one dialect that hands every finished program on."""
    attributes = {"dialect": dialect, "finished": staticmethod(finished)}
    return type("Machine", (AllocatorMachine,), attributes)
