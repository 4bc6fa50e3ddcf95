"""The project's settings: ``[tool.kvproof]`` of the nearest ``pyproject.toml``."""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from kvproof.errors import CouldNotRun
from kvproof.provision.environment import Load


@dataclass(frozen=True, slots=True)
class Settings:
    subjects: tuple[str, ...] = ("vllm==0.33.0",)
    """What the gate checks."""
    canaries: tuple[str, ...] = ("reference:eager", "vllm==0.30.0")
    """What must fail rule I4, or the gate is red: it would not see a defect."""
    corpus: str | None = None
    """Folder of trace files to replay; none is kvproof's own."""
    out: str = "kvproof-out"
    """Folder for the traces of findings."""
    seed: int = 0
    """Seed of the gate's searches."""
    load: Load = "focused"


def read_settings(start: Path) -> Settings:
    """Settings that apply in a folder: of it, or of the nearest folder above that has any.

    Raises CouldNotRun when the file is broken, or has a key that kvproof does not know.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("kvproof")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise CouldNotRun(f"cannot read {path}: {error}") from error
        if table is not None:
            return _checked(table, path)
    return Settings()


def _checked(table: dict[str, object], path: Path) -> Settings:
    known = {field.name: getattr(Settings(), field.name) for field in fields(Settings)}
    values: dict[str, object] = {}
    for key, value in table.items():
        if key not in known:
            names = ", ".join(sorted(known))
            raise CouldNotRun(f"{path}: [tool.kvproof] has no key {key!r}; it knows {names}")
        if isinstance(known[key], tuple):
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise CouldNotRun(f"{path}: [tool.kvproof] {key} must be a list of strings")
            values[key] = tuple(value)
        else:
            wanted = int if isinstance(known[key], int) else str
            if type(value) is not wanted:
                word = "a number" if wanted is int else "a string"
                raise CouldNotRun(f"{path}: [tool.kvproof] {key} must be {word}")
            values[key] = value
    if values.get("load", "focused") not in ("focused", "full"):
        raise CouldNotRun(f"{path}: [tool.kvproof] load must be focused or full")
    return Settings(**values)  # type: ignore[arg-type]
