"""The subjects that have names here, for people and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console


@dataclass(frozen=True, slots=True)
class Subjects:
    references: tuple[str, ...]
    """The model, under each dialect."""
    provisioned: tuple[str, ...]
    """Releases that are installed."""
    added: Mapping[str, str]
    """What the user's own names stand for."""


def subjects_json(subjects: Subjects) -> dict[str, Any]:
    return asdict(subjects)


def show_subjects(console: Console, subjects: Subjects) -> None:
    for name in (*subjects.references, *subjects.provisioned):
        console.print(name, highlight=False)
    for name, subject in subjects.added.items():
        console.print(f"{name} = {subject}", highlight=False, markup=False)
