"""The door into the engine's interpreter: kvproof's own packages, and nothing beside them.

The engine's own interpreter executes this file by its path. The folder that holds kvproof is not
put on the module search path: installed as a wheel, it is the site-packages folder of another
environment, whose libraries must not be taken for the engine's. Standard library only.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

HOME = Path(__file__).parents[4]
"""The folder that holds kvproof's packages."""
INSIDE = ("model", "invariants", "kvproof")
"""Packages that the engine's interpreter may import."""
OWN = (*INSIDE, "specs")
"""All of kvproof's packages."""


class OwnPackages:
    """Finds packages of kvproof where this file's are, whatever else is on the path."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [str(HOME)]) if fullname in self.names else None


def open_door(names: tuple[str, ...] = INSIDE) -> None:
    """Let these packages be imported, before any of the same name elsewhere."""
    sys.meta_path.insert(0, OwnPackages(names))


def main() -> None:
    open_door()
    from kvproof.engines.vllm.inside.leash import die_with_parent  # noqa: PLC0415
    from kvproof.engines.vllm.inside.worker import main as work  # noqa: PLC0415

    die_with_parent()
    work()


if __name__ == "__main__":
    main()
