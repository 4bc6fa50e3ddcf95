"""A program: a configuration and the actions to take on it, as data and as JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from model.manager.actions import ACTIONS, Action
from model.manager.configuration import Configuration

Json = Any
"""What ``json`` reads and writes."""

_BY_NAME = {action.__name__: action for action in ACTIONS}


@dataclass(frozen=True, slots=True)
class Program:
    configuration: Configuration
    actions: tuple[Action, ...]


def program_to_json(program: Program) -> dict[str, Json]:
    return {
        "configuration": asdict(program.configuration),
        "actions": [action_to_json(action) for action in program.actions],
    }


def action_to_json(action: Action) -> dict[str, Json]:
    return {"action": type(action).__name__, **asdict(action)}


def program_from_json(data: dict[str, Json]) -> Program:
    """Read what ``program_to_json`` wrote.

    For data of one's own: files of others go through ``specs.casefile``, which checks them.
    """
    return Program(
        Configuration(**data["configuration"]),
        tuple(action_from_json(action) for action in data["actions"]),
    )


def action_from_json(data: dict[str, Json]) -> Action:
    fields = dict(data)
    return _BY_NAME[fields.pop("action")](**fields)
