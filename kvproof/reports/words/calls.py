"""Actions as they were written, and numbers with their nouns."""

from dataclasses import fields
from typing import Any


def call_of(action: Any) -> str:
    """An action of any level as it was written, without what is default."""
    given = [
        f"{field.name}={getattr(action, field.name)}"
        for field in fields(action)
        if getattr(action, field.name) != field.default
    ]
    return f"{type(action).__name__}({', '.join(given)})"


def counted(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
