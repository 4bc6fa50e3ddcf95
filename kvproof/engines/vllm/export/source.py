"""A module as text: its definitions, what each of them uses, and its imports."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, class or constant at the top of a module, with its comments."""

    module: str
    name: str
    text: str
    uses: frozenset[str]
    """Names that it looks up in its module."""
    first: frozenset[str]
    """Those of them that are looked up when it is defined, annotations apart."""
    called: frozenset[str]
    """Those of them that are called then."""

    def described(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports; ``name`` is None for the module itself."""

    module: str
    name: str | None
    local: str

    def described(self) -> str:
        return self.module if self.name is None else f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Source:
    module: str
    definitions: dict[str, Definition]
    imports: dict[str, Import]
    """By the name that it has in the module."""
    loose: tuple[int, ...]
    """Lines of statements that only do something."""
    text: str

    @classmethod
    def parse(cls, module: str, text: str) -> Source:
        definitions: dict[str, Definition] = {}
        imports: dict[str, Import] = {}
        loose = []
        lines, nodes = text.splitlines(), ast.parse(text).body
        for node, following in zip(nodes, [*nodes[1:], None], strict=True):
            name = _defined_name(node)
            if name is not None:
                own = _text(lines, node, following)
                uses = global_names(own) - {name}
                evaluated = list(_evaluated(node))
                first = frozenset(_names(evaluated)) & uses
                called = frozenset(_names(_calls(evaluated))) & uses
                definitions[name] = Definition(module, name, own, uses, first, called)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                imports.update((one.local, one) for one in _imported(node))
            elif not _is_docstring(node):
                loose.append(node.lineno)
        return cls(module, definitions, imports, tuple(loose), text)

    def statements(self) -> str:
        """All but the docstring and the imports."""
        lines = self.text.splitlines()
        nodes = [
            node
            for node in ast.parse(self.text).body
            if not isinstance(node, ast.Import | ast.ImportFrom) and not _is_docstring(node)
        ]
        return "\n".join(lines[_start(lines, nodes[0]) : nodes[-1].end_lineno])


def read_source(module: str) -> Source:
    """A module's source, without running it: it may import what is not there."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module {module}")
    return _parsed(module, Path(spec.origin).read_text(encoding="utf-8"))


@cache
def _parsed(module: str, text: str) -> Source:
    return Source.parse(module, text)


def global_names(text: str) -> frozenset[str]:
    """Names that a text takes from its module: those that it neither defines nor has as locals."""
    top = symtable.symtable(text, "<text>", "exec")
    names = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    defined = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    return frozenset(names - defined)


def _defined_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _is_docstring(node: ast.stmt | None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _text(lines: list[str], node: ast.stmt, following: ast.stmt | None) -> str:
    """A definition with the comment above it, and the docstring below a constant."""
    end = node.end_lineno
    if isinstance(node, ast.Assign | ast.AnnAssign) and _is_docstring(following):
        assert following is not None
        end = following.end_lineno
    return "\n".join(lines[_start(lines, node) : end])


def _start(lines: list[str], node: ast.stmt) -> int:
    """Index of the first line of a statement, its decorators and the comment above it."""
    start = node.lineno - 1
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        start = node.decorator_list[0].lineno - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield Import(name.name, None, name.asname or name.name.partition(".")[0])
    elif node.module != "__future__":
        for name in node.names:
            yield Import(node.module or "", name.name, name.asname or name.name)


def _evaluated(node: ast.stmt) -> Iterator[ast.AST]:
    """What of a definition is evaluated when it is made, annotations apart."""
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
        yield from (default for default in node.args.defaults)
        yield from (default for default in node.args.kw_defaults if default is not None)
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *node.keywords)
        for inner in node.body:
            yield from _evaluated(inner)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield node.value
    else:
        yield node


def _calls(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        yield from (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
