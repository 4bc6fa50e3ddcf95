"""Programs of the manager level."""

from collections.abc import Iterator

from model.manager.actions import ACTIONS, Action
from model.manager.configuration import Configuration, problem_of
from model.program import Language, Program

ManagerProgram = Program[Configuration, Action]


def _problems(program: ManagerProgram) -> Iterator[tuple[str, str]]:
    problem = problem_of(program.configuration)
    if problem is not None:
        yield "program.configuration", problem


MANAGER = Language("manager", Configuration, ACTIONS, _problems)
