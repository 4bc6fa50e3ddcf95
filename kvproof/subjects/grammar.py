"""What the name of a subject can look like, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FORMS = "reference:<dialect>, vllm==<version>, vllm@<path of a checkout>"


@dataclass(frozen=True, slots=True)
class ReferenceName:
    dialect: str


@dataclass(frozen=True, slots=True)
class ReleaseName:
    version: str


@dataclass(frozen=True, slots=True)
class CheckoutName:
    path: Path


SubjectName = ReferenceName | ReleaseName | CheckoutName


def parse_name(text: str) -> SubjectName | None:
    """What the text names, or None if it has none of the forms."""
    if dialect := _after("reference:", text):
        return ReferenceName(dialect)
    if version := _after("vllm==", text):
        return ReleaseName(version)
    if path := _after("vllm@", text):
        return CheckoutName(Path(path))
    return None


def _after(prefix: str, text: str) -> str:
    return text.removeprefix(prefix).strip() if text.startswith(prefix) else ""
