"""Compose one stand-alone file of whole definitions from modules of ours.

What goes in are functions, classes and constants of ordinary modules, which are linted, typed and
run by tests where they stand. The composer follows the names that they use, takes over the imports
of the standard library and of the engine, and leaves the text of each definition as it is.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kvproof.engines.vllm.export.source import Definition, Import, Source, global_names, read_source

FOREIGN = frozenset({"torch", "vllm"})
"""Packages that an exported file may import, beside the standard library."""
WIDTH = 100


class ComposeError(Exception):
    """Definitions that do not make one file; one line says which, and why."""


def compose(head: str, body: str, modules: Sequence[str], before: str | None = None) -> str:
    """The text of a file: docstring ``head``, imports, ``body``, and all that these need.

    ``body`` may begin with imports. Its free names are those that ``modules`` define. Whatever
    these definitions use must be defined in ``modules``, or come from the standard library or from
    the engine. ``before`` names a module that is taken over whole, before the engine is imported.
    Raises ``ComposeError``.
    """
    sources = {module: read_source(module) for module in modules}
    test = Source.parse("the test", body)
    gathered = _Gathered(sources, dict(test.imports))
    for name in sorted(global_names(body)):
        gathered.want_by_body(name)
    if clash := sorted(test.definitions.keys() & gathered.taken.keys()):
        raise ComposeError(f"{clash[0]} is a name of the test and of a definition that it needs")
    parts = [f'"""{head}"""\n\nfrom __future__ import annotations', *_imports(gathered, before)]
    definitions = [definition.text for definition in _ordered(gathered.definitions())]
    return "\n\n".join(parts) + "\n\n\n" + "\n\n\n".join([test.statements(), *definitions]) + "\n"


@dataclass(slots=True)
class _Gathered:
    """All that a file needs, as far as it was followed."""

    sources: dict[str, Source]
    taken: dict[str, Definition | Import] = field(default_factory=dict)
    """By the name that it has in the file."""

    def definitions(self) -> list[Definition]:
        """In the order of the modules and of their lines."""
        return [
            definition
            for source in self.sources.values()
            for name, definition in source.definitions.items()
            if self.taken.get(name) is definition
        ]

    def want_by_body(self, name: str) -> None:
        if name in self.taken:
            return
        homes = [source for source in self.sources.values() if name in source.definitions]
        if len(homes) > 1:
            found = " and ".join(source.module for source in homes)
            raise ComposeError(f"{name} is defined in {found}: an exported file can have one")
        if homes:
            self._take(homes[0].definitions[name])
        elif not _is_known(name):
            raise ComposeError(f"the test uses {name}, which no module of an export defines")

    def _take(self, definition: Definition) -> None:
        if not self._keep(definition.name, definition):
            return
        source = self.sources[definition.module]
        if source.loose:
            raise ComposeError(
                f"{source.module} does something when it is imported (line {source.loose[0]}), "
                "which an exported file would leave out"
            )
        for name in sorted(definition.uses):
            if name in source.definitions:
                self._take(source.definitions[name])
            elif name in source.imports:
                self._follow(definition, source.imports[name])
            elif not _is_known(name):
                raise ComposeError(
                    f"{definition.module}.{definition.name} uses {name}, "
                    "which its module does not define"
                )

    def _follow(self, user: Definition, wanted: Import) -> None:
        top = wanted.module.partition(".")[0]
        if top in FOREIGN or top in sys.stdlib_module_names:
            self._keep(wanted.local, wanted)
            return
        home = self.sources.get(wanted.module)
        if home is None or wanted.name not in home.definitions:
            raise ComposeError(
                f"{user.module}.{user.name} needs {wanted.described()}, "
                "which is not among what an exported file may hold"
            )
        if wanted.local != wanted.name:
            raise ComposeError(
                f"{user.module} imports {wanted.described()} as {wanted.local}: "
                "an exported file has one name for each thing"
            )
        self._take(home.definitions[wanted.name])

    def _keep(self, name: str, thing: Definition | Import) -> bool:
        """Take note of a thing; say whether it is new."""
        known = self.taken.get(name)
        if known is not None and known != thing:
            both = " and ".join(sorted([known.described(), thing.described()]))
            raise ComposeError(f"{name} is both {both}: an exported file can have one")
        self.taken[name] = thing
        return known is None


def _is_known(name: str) -> bool:
    return hasattr(builtins, name) or (name.startswith("__") and name.endswith("__"))


# The order of definitions


def _ordered(definitions: Sequence[Definition]) -> list[Definition]:
    """The given order, but that what is needed when something is defined comes before it."""
    by_name = {definition.name: definition for definition in definitions}
    placed: dict[str, Definition] = {}

    def place(definition: Definition, path: tuple[str, ...]) -> None:
        if definition.name in path:
            circle = " → ".join((*path, definition.name))
            raise ComposeError(f"each needs the other when it is defined: {circle}")
        needed = definition.first | _reached(by_name, definition.called)
        for other in definitions:
            if other.name in needed and other.name not in placed:
                place(other, (*path, definition.name))
        placed.setdefault(definition.name, definition)

    for definition in definitions:
        place(definition, ())
    return list(placed.values())


def _reached(by_name: dict[str, Definition], names: Iterable[str]) -> set[str]:
    """The definitions that a use of ``names`` may run, and all that these may."""
    found: set[str] = set()
    waiting = [name for name in names if name in by_name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for other in by_name[name].uses if other in by_name]
    return found


# Imports


def _imports(gathered: _Gathered, before: str | None) -> Iterator[str]:
    """The imports in groups, and what runs between those of Python and those of the engine."""
    wanted = {thing for thing in gathered.taken.values() if isinstance(thing, Import)}
    foreign = {one for one in wanted if one.module.partition(".")[0] in FOREIGN}
    first = read_source(before) if before else None
    standard = wanted - foreign | (set(first.imports.values()) if first else set())
    for group in (standard, foreign):
        if group:
            yield "\n".join(_statements(group))
        if group is standard and first is not None:
            yield first.statements()


def _statements(imports: Iterable[Import]) -> Iterator[str]:
    """Import statements as a formatter would sort and wrap them."""
    plain = sorted(one.described() for one in imports if one.name is None)
    yield from (f"import {module}" for module in plain)
    named: dict[str, list[str]] = {}
    for one in imports:
        if one.name is not None:
            alias = "" if one.local == one.name else f" as {one.local}"
            named.setdefault(one.module, []).append(one.name + alias)
    for module in sorted(named):
        names = sorted(named[module], key=_by_kind)
        line = f"from {module} import {', '.join(names)}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _by_kind(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name.lower()
