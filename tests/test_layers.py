"""Imports go one way: model, invariants, specs, kvproof; the engine enters through few doors."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("model", "invariants", "specs", "kvproof")
"""Each may import those before it, and itself."""
LIBRARIES = {
    "model": set[str](),
    "invariants": {"z3", "crosshair", "deal", "icontract"},
    "specs": {"hypothesis", "cattrs", "packaging"},
}
"""What a layer may import beside the standard library. kvproof may import anything."""
ENGINE = ("vllm", "torch")
DOORS = (
    "kvproof/engines/vllm/export/harness/connectors.py",
    "kvproof/engines/vllm/export/harness/engine.py",
    "kvproof/engines/vllm/export/harness/manager.py",
    "kvproof/engines/vllm/export/harness/memory.py",
    "kvproof/engines/vllm/export/harness/pools.py",
    "kvproof/engines/vllm/export/harness/rules.py",
    "kvproof/engines/vllm/inside/allocator.py",
    "kvproof/engines/vllm/inside/configuration.py",
    "kvproof/engines/vllm/inside/groups.py",
    "kvproof/engines/vllm/inside/names.py",
    "kvproof/engines/vllm/inside/scheduler.py",
    "kvproof/engines/vllm/inside/store.py",
)
"""The only files that may import the engine."""
RUNNING = (
    "kvproof.engines.",
    "kvproof.gate.stages.",
    "kvproof.levels.",
    "kvproof.search.exhaustive.",
    "kvproof.search.hunt.",
    "kvproof.search.hypothesis_rounds.",
    "kvproof.search.replay.",
    "kvproof.search.shrinking.",
    "kvproof.subjects.",
    "kvproof.theorems.proving.",
)
"""What runs engines, models and provers. Reports are functions of values, and reach none of it."""


def imported_modules(source: str) -> Iterator[str]:
    """Full names of the modules that a source imports, wherever in it: its own package as ``.``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "" if not node.level else "." * node.level


def wrong_imports(file: str, source: str) -> list[str]:
    """What a file must not import. ``file`` is its path from the root, with slashes."""
    layer = file.split("/", maxsplit=1)[0]
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    wrong: list[str] = []
    for module in imported_modules(source):
        top = module.split(".")[0]
        if not top:  # the package itself
            continue
        if top in ENGINE:
            if file not in DOORS:
                wrong.append(f"{file} imports {module}: only {', '.join(DOORS)} may")
        elif top in LAYERS:
            if top not in allowed:
                wrong.append(f"{file} imports {module}, a layer above {layer}")
        elif layer in LIBRARIES and top not in sys.stdlib_module_names | LIBRARIES[layer]:
            wrong.append(f"{file} imports {module}, a library that {layer} does without")
    return wrong


def at_import(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported: in no function, and not for types alone."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)


def import_graph(files: Mapping[str, str]) -> dict[str, set[str]]:
    """What each module imports of the others. ``files`` are sources by their paths."""
    names = {file: file.removesuffix(".py").replace("/", ".") for file in files}
    modules = {file: name.removesuffix(".__init__") for file, name in names.items()}
    known, graph = set(modules.values()), {}
    for file, source in files.items():
        imported: set[str] = set()
        for node in at_import(ast.parse(source)):
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported |= {parent[:-1], *(f"{parent}{name.name}" for name in node.names)}
        graph[modules[file]] = imported & known - {modules[file]}
    return graph


def reached(graph: Mapping[str, set[str]], package: str) -> set[str]:
    """What is imported with a package, directly or not."""
    seen: set[str] = set()
    todo = {module for module in graph if f"{module}.".startswith(f"{package}.")}
    while todo:
        seen |= todo
        todo = {other for module in todo for other in graph[module]} - seen
    return seen


def running(modules: Iterable[str]) -> list[str]:
    """Those that open a subject, run it, or search."""
    return sorted(module for module in modules if f"{module}.".startswith(RUNNING))


def between_packages(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same of ``kvproof.search``, ``kvproof.gate`` and so on, whole."""
    packages: dict[str, set[str]] = {}
    for module, imported in graph.items():
        one = ".".join(module.split(".")[:2])
        others = {".".join(other.split(".")[:2]) for other in imported}
        packages.setdefault(one, set()).update(others - {one})
    return packages


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """A way by imports from a module back to itself, if there is any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def sources(layer: str) -> dict[str, str]:
    files = sorted((ROOT / layer).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_what_is_below_it(layer: str) -> None:
    files = sources(layer)
    assert len(files) > 5
    assert [line for file, source in files.items() for line in wrong_imports(file, source)] == []


def test_the_doors_import_the_engine_and_no_other_file_does() -> None:
    importing = {
        file
        for layer in LAYERS
        for file, source in sources(layer).items()
        if any(module.split(".")[0] in ENGINE for module in imported_modules(source))
    }
    assert importing == set(DOORS)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("model/pool.py", "import invariants.rules"),
        ("model/pool.py", "from specs import generator"),
        ("model/pool.py", "import hypothesis"),
        ("model/pool.py", "import numpy as np"),
        ("model/pool.py", "import json, kvproof"),
        ("model/pool.py", "def late():\n    from z3 import Int"),
        (
            "model/pool.py",
            "if TYPE_CHECKING:\n    from kvproof.levels.level import Examiner",
        ),
        ("invariants/rules.py", "from specs.casefile import FORMAT"),
        ("invariants/rules.py", "import hypothesis"),
        ("specs/casefile.py", "from kvproof.subjects import Subject"),
        ("specs/casefile.py", "import rich"),
        ("model/pool.py", "import vllm"),
        ("kvproof/cli.py", "from vllm.v1.core import block_pool"),
        ("kvproof/cli.py", "def late():\n    import torch"),
    ],
)
def test_a_wrong_import_is_seen_wherever_it_stands(file: str, source: str) -> None:
    assert len(wrong_imports(file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("model/pool.py", "from collections.abc import Callable"),
        ("model/pool.py", "from model.snapshot import Snapshot"),
        ("model/pool.py", "from . import snapshot"),
        ("model/pool.py", "# import vllm\nNAME = 'import torch'"),
        ("invariants/rules.py", "from model.pool import NULL\nimport z3"),
        ("specs/manager/machine.py", "import hypothesis\nfrom invariants.rules import RULES"),
        ("kvproof/cli.py", "import typer\nfrom specs import casefile"),
        ("kvproof/engines/vllm/inside/allocator.py", "import torch\nfrom vllm.v1 import request"),
    ],
)
def test_a_right_import_is_left_alone(file: str, source: str) -> None:
    assert wrong_imports(file, source) == []


def whole_graph() -> dict[str, set[str]]:
    files = {file: source for layer in LAYERS for file, source in sources(layer).items()}
    graph = import_graph(files)
    assert len(graph) == len(files)
    return graph


def test_reports_run_no_engine() -> None:
    graph = whole_graph()
    assert len(reached(graph, "kvproof.reports")) > 20
    assert running(reached(graph, "kvproof.reports")) == []
    named = [any(f"{module}.".startswith(name) for module in graph) for name in RUNNING]
    assert all(named), RUNNING
    assert len(running(reached(graph, "kvproof.commands"))) > 20


def test_a_report_that_reaches_an_engine_is_seen() -> None:
    files = {
        "kvproof/reports/text.py": "from kvproof.search.found import Found",
        "kvproof/search/found.py": "from kvproof.subjects import names",
        "kvproof/subjects/names.py": "import kvproof.levels.table",
        "kvproof/levels/table.py": "",
        "kvproof/engines/other.py": "",
    }
    seen = running(reached(import_graph(files), "kvproof.reports"))
    assert seen == ["kvproof.levels.table", "kvproof.subjects.names"]


def test_no_import_goes_in_a_circle() -> None:
    graph = whole_graph()
    assert circle(graph) == []
    kvproof = {module: others for module, others in graph.items() if module.startswith("kvproof")}
    assert circle(between_packages(kvproof)) == []


CIRCLES = [
    {"a/x.py": "from a import y", "a/y.py": "import a.x"},
    {"a/x.py": "from a.y import z", "a/y.py": "if True:\n    from a import x"},
    {"a/b/x.py": "import a.c.x", "a/c/x.py": "", "a/c/y.py": "from a.b.x import z"},
]


@pytest.mark.parametrize("files", CIRCLES)
def test_a_circle_is_seen(files: dict[str, str]) -> None:
    assert circle(between_packages(import_graph(files))) or circle(import_graph(files))


def test_an_import_in_a_function_closes_no_circle() -> None:
    late = "def late():\n    import a.x\nif TYPE_CHECKING:\n    import a.x"
    assert circle(import_graph({"a/x.py": "import a.y", "a/y.py": late})) == []
