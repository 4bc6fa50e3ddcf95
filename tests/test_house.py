"""The house rules: files, functions and texts that fit, and releases named in one place.

What goes beyond a limit is listed with its reason; an entry that is not needed any more fails too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("model", "invariants", "specs", "kvproof")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
TEXT_LINES_MAX = 40
RELEASE = re.compile(r"(?<![\w.])0\.(?:2\d|3\d)\.\d+\b")
RELEASE_FILES_MAX = 2
ROWS = "model/releases"
Find = Callable[[Mapping[str, str]], set[str]]

LONG_FILES = {
    "kvproof/engines/vllm/inside/recorder.py": "handed out whole: one file for a live engine",
}
LONG_FUNCTIONS = {
    "invariants/proofs/transition_system/mutants.py:_allocation": "a table of mutants",
    "kvproof/commands/bounds.py:bounds_command": "its parameters are the options of the command",
    "kvproof/commands/explore.py:explore_command": "its parameters are the options of the command",
}
LONG_TEXTS: dict[str, str] = {}


def sources() -> dict[str, str]:
    """All source files by their paths from the root."""
    files = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def long_files(files: Mapping[str, str]) -> set[str]:
    return {name for name, text in files.items() if len(text.splitlines()) > FILE_LINES_MAX}


def long_functions(files: Mapping[str, str]) -> set[str]:
    """Functions and methods that do not fit a screen, as ``file:name``."""
    return {
        f"{name}:{node.name}"
        for name, text in files.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if lines_of(node) > FUNCTION_LINES_MAX
    }


def long_texts(files: Mapping[str, str]) -> set[str]:
    """Files with a string literal, docstrings apart, that a program might hide in."""
    return {
        name
        for name, text in files.items()
        for node in literals(ast.parse(text))
        if lines_of(node) > TEXT_LINES_MAX
    }


def literals(tree: ast.Module) -> Iterator[ast.expr]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        of_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (of_string or isinstance(node, ast.JoinedStr)) and node not in docstrings:
            assert isinstance(node, ast.expr)
            yield node


def lines_of(node: ast.stmt | ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def naming_a_release(files: Mapping[str, str]) -> set[str]:
    """Files, the rows of the releases apart, in which a version of vLLM is written."""
    return {n for n, text in files.items() if not n.startswith(ROWS) and RELEASE.search(text)}


@pytest.mark.parametrize(
    ("found", "allowed"),
    [
        (long_files(sources()), LONG_FILES),
        (long_functions(sources()), LONG_FUNCTIONS),
        (long_texts(sources()), LONG_TEXTS),
    ],
    ids=["files", "functions", "texts"],
)
def test_what_is_long_has_a_reason_and_a_reason_is_needed(
    found: set[str], allowed: dict[str, str]
) -> None:
    assert found == set(allowed)


def test_at_most_two_files_name_a_release_beside_the_rows() -> None:
    assert len(naming_a_release(sources())) <= RELEASE_FILES_MAX


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (long_files, "x = 1\n" * 401),
        (long_functions, "def f():\n" + "    x = 1\n" * 50),
        (long_functions, "class C:\n    def f(self):\n" + "        x = 1\n" * 50),
        (long_texts, "T = '''" + "\n" * 40 + "'''"),
        (long_texts, "T = f'''{T}" + "\n" * 40 + "'''"),
        (long_texts, "def f():\n    'said'\n    return '''" + "\n" * 40 + "'''"),
        (naming_a_release, "NEWEST = 'vllm-0.33.0'"),
        (naming_a_release, "# 0.30.0 does otherwise"),
        (naming_a_release, "RELEASE = (0.31, '0.31.1')"),
    ],
)
def test_what_breaks_a_house_rule_is_seen(find: Find, text: str) -> None:
    assert len(find({"kvproof/twin.py": text})) == 1


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (long_files, "x = 1\n" * 400),
        (long_functions, "def f():\n" + "    x = 1\n" * 49),
        (long_texts, "'''" + "\n" * 100 + "'''"),
        (long_texts, "def f():\n    '''" + "\n" * 100 + "'''"),
        (naming_a_release, "PATIENCE = 0.30\nADDRESS = '10.0.30.0'\nTYPER = '0.16.0'"),
    ],
)
def test_what_keeps_a_house_rule_is_left_alone(find: Find, text: str) -> None:
    assert find({"kvproof/twin.py": text}) == set()


def test_the_rows_themselves_may_name_releases() -> None:
    assert naming_a_release({"model/releases.py": "'0.33.0'"}) == set()
