"""Checkouts for tests: copies of a release of what focused loading executes, and of no more."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from kvproof.engines.vllm.inside.loading import REAL_MODULES, SCHEDULER_MODULES
from kvproof.engines.vllm.release import release_source


def copy_checkout(target: Path, version: str = "0.33.0") -> Path:
    source = release_source(version)
    for module in (*REAL_MODULES, *SCHEDULER_MODULES):
        path = Path(*module.rstrip(".").split("."))
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        for file in (source / path.with_suffix(".py"), source / path / "__init__.py"):
            if file.is_file():
                copy = target / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy)
        if module.endswith("."):
            shutil.copytree(source / path, target / path, dirs_exist_ok=True)
    return target


def rename(checkout: Path, name: str) -> int:
    """Another name for ``name``, wherever the engine uses it; returns in how many files."""
    word = re.compile(rf"\b{name}\b")
    changed = 0
    for file in checkout.rglob("*.py"):
        old = file.read_text()
        new = word.sub(f"{name}_by_another_name", old)
        if new != old:
            file.write_text(new)
            changed += 1
    return changed
