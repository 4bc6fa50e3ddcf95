"""A program: a configuration and the actions to take on it, as data and as JSON, at any level."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, Literal, Protocol, TypeVar

Level = Literal["manager", "scheduler"]
"""What is driven: the KV-cache manager, in a legal order of calls, or the whole scheduler."""

Json = Any
"""What ``json`` reads and writes."""


class OfLevel(Protocol):
    """A configuration: a frozen record that knows its level."""

    @property
    def level(self) -> Level: ...


ConfigurationT = TypeVar("ConfigurationT", bound=Any)
"""``OfLevel``, a dataclass."""
ActionT = TypeVar("ActionT", bound=Any)
"""A dataclass."""


@dataclass(frozen=True, slots=True)
class Program(Generic[ConfigurationT, ActionT]):
    configuration: ConfigurationT
    actions: tuple[ActionT, ...]

    @property
    def level(self) -> Level:
        configuration: OfLevel = self.configuration
        return configuration.level


AnyProgram = Program[Any, Any]
"""A program of whichever level."""


@dataclass(frozen=True, slots=True)
class Language(Generic[ConfigurationT, ActionT]):
    """What the programs of one level are written in."""

    level: Level
    configuration: type[ConfigurationT]
    actions: tuple[type[ActionT], ...]
    problems: Callable[[Program[ConfigurationT, ActionT]], Iterable[tuple[str, str]]]
    """(place in the program, what no engine would accept there), in a line each."""

    def read(self, data: dict[str, Json]) -> Program[ConfigurationT, ActionT]:
        """Read what ``program_to_json`` wrote.

        For data of one's own: files of others go through ``specs.casefile``, which checks them.
        """
        by_name = {action.__name__: action for action in self.actions}
        actions = []
        for each in data["actions"]:
            fields = dict(each)
            actions.append(by_name[fields.pop("action")](**fields))
        return Program(self.configuration(**data["configuration"]), tuple(actions))


def program_to_json(program: AnyProgram) -> dict[str, Json]:
    return {
        "configuration": asdict(program.configuration),
        "actions": [action_to_json(action) for action in program.actions],
    }


def action_to_json(action: Any) -> dict[str, Json]:
    """An action of any level by its name and fields."""
    return {"action": type(action).__name__, **asdict(action)}


def call_of(action: Any) -> str:
    """An action of any level as it is written in Python, without what is default."""
    given = [
        f"{field.name}={getattr(action, field.name)}"
        for field in fields(action)
        if getattr(action, field.name) != field.default
    ]
    return f"{type(action).__name__}({', '.join(given)})"
