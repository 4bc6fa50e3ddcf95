"""The engine's modules come from their sources, as these are now.

Byte code is never kept: what a file compiled to before, or in another run, says nothing about what
lies there now. Standard library only.
"""

import importlib.abc
import importlib.machinery
import importlib.util
from pathlib import Path
from types import CodeType


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles the file that lies there, each time."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class SourceFinder(importlib.abc.MetaPathFinder):
    """Finds all modules below ``vllm`` in the folder that holds it."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        return self.spec(fullname) if fullname.partition(".")[0] == "vllm" else None

    def spec(
        self, name: str, loader: type[SourceLoader] = SourceLoader
    ) -> importlib.machinery.ModuleSpec | None:
        """Of the module of that name, if there is a file for it."""
        path = self._source.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return importlib.util.spec_from_file_location(
                    name, file, loader=loader(name, str(file))
                )
        return None
