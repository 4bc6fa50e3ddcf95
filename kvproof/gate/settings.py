"""The project's settings: ``[tool.kvproof]`` of the nearest ``pyproject.toml``."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvproof.engines.vllm.environment import Load
from kvproof.errors import CouldNotRun
from model.releases import CANARIES, NEWEST
from specs.casefile import MAX_SEED

OWN_CORPUS = Path(__file__).resolve().parents[2] / "specs" / "corpus"


@dataclass(frozen=True, slots=True)
class Settings:
    subjects: tuple[str, ...] = (f"vllm=={NEWEST.version}",)
    """What the gate checks."""
    canaries: tuple[str, ...] = ("reference:eager", *(f"vllm=={r.version}" for r in CANARIES))
    """What must fail rule I4, at each level that it has, or the gate is red: it would not see a
    defect."""
    corpus: str | None = None
    """Folder of trace files to replay, relative to the file; none is kvproof's own."""
    out: str = "kvproof-out"
    """Folder for the traces of findings, relative to the file."""
    seed: int = 0
    """Seed of the gate's searches, from 0."""
    load: Load = "focused"

    @property
    def corpus_folder(self) -> Path:
        return Path(self.corpus) if self.corpus else OWN_CORPUS


FOLDERS = ("corpus", "out")


def read_settings(start: Path) -> Settings:
    """Settings that apply in a folder: of it, or of the nearest folder above that has any.

    Raises CouldNotRun when the file is broken, or has a key that kvproof does not know.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise CouldNotRun(f"cannot read {path}: {error}; correct it") from error
        if isinstance(tool, dict) and "kvproof" in tool:
            return _checked(tool["kvproof"], path)
    return Settings()


def _checked(table: object, path: Path) -> Settings:
    if not isinstance(table, dict):
        raise CouldNotRun(f"{path}: tool.kvproof must be a table, [tool.kvproof]")
    values = {key: _value(key, value, path) for key, value in table.items()}
    if values.get("load", "focused") not in ("focused", "full"):
        raise CouldNotRun(f"{path}: [tool.kvproof] load must be focused or full")
    return Settings(**values)


def _value(key: str, value: object, path: Path) -> Any:
    """A value that has the type of the key's default; a folder's path as seen from anywhere."""
    defaults = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    if key not in defaults:
        names = ", ".join(sorted(defaults))
        raise CouldNotRun(f"{path}: [tool.kvproof] has no key {key!r}; it knows {names}")
    if isinstance(defaults[key], tuple):
        if not isinstance(value, list) or not all(type(v) is str for v in value):
            raise CouldNotRun(f"{path}: [tool.kvproof] {key} must be a list of strings")
        return tuple(value)
    if isinstance(defaults[key], int):
        if type(value) is not int or not 0 <= value <= MAX_SEED:
            raise CouldNotRun(f"{path}: [tool.kvproof] {key} must be a number, 0 or more")
        return value
    if type(value) is not str:
        raise CouldNotRun(f"{path}: [tool.kvproof] {key} must be a string")
    return str(path.parent / value) if key in FOLDERS else value
