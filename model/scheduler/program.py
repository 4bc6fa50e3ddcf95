"""Programs of the scheduler level: a setup and the actions to take on it."""

from collections.abc import Iterator

from model.program import Language, Program
from model.scheduler.actions import ACTIONS, Action
from model.scheduler.legal import problem_of_program
from model.scheduler.setup import SchedulerSetup

SchedulerProgram = Program[SchedulerSetup, Action]


def _problems(program: SchedulerProgram) -> Iterator[tuple[str, str]]:
    problem = problem_of_program(program)
    if problem is not None:
        yield "program", problem


SCHEDULER = Language("scheduler", SchedulerSetup, ACTIONS, _problems)
