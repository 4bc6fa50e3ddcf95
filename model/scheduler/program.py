"""A program of whole engine steps: a setup and the actions to take on it, as data and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from model.scheduler.actions import ACTIONS, Action
from model.scheduler.setup import SchedulerSetup

Json = Any
"""What ``json`` reads and writes."""

_BY_NAME = {action.__name__: action for action in ACTIONS}


@dataclass(frozen=True, slots=True)
class Program:
    configuration: SchedulerSetup
    actions: tuple[Action, ...]


def program_to_json(program: Program) -> dict[str, Json]:
    return {
        "configuration": asdict(program.configuration),
        "actions": [action_to_json(action) for action in program.actions],
    }


def action_to_json(action: Action) -> dict[str, Json]:
    return {"action": type(action).__name__, **asdict(action)}


def program_from_json(data: dict[str, Json]) -> Program:
    """Read what ``program_to_json`` wrote; files of others are checked before."""
    return Program(
        SchedulerSetup(**data["configuration"]),
        tuple(action_from_json(action) for action in data["actions"]),
    )


def action_from_json(data: dict[str, Json]) -> Action:
    fields = dict(data)
    return _BY_NAME[fields.pop("action")](**fields)
