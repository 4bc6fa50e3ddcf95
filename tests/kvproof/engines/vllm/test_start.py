"""What the engine's interpreter gets to see of kvproof, and of what lies beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.engines.vllm.engine import Engine, provision_release
from kvproof.engines.vllm.inside import start

INSIDE = "kvproof.engines.vllm.inside"
OURS = (
    "model",
    "model.manager",
    "model.scheduler",
    "invariants",
    "invariants.conformance",
    "invariants.scheduler",
    INSIDE,
)
"""The packages of kvproof whose modules run inside."""
ABOVE = ("kvproof", "kvproof.engines", "kvproof.engines.vllm")
"""Those that hold them, and of which nothing else does."""
# The whole worker, until its input ends; then what was imported, and where each lies.
SEEN = """
import json, os, runpy, sys
answers = os.dup(1)
start = sys.argv.pop(1)
sys.argv[0] = start
runpy.run_path(start, run_name="__main__")
files = {
    name: str(getattr(module, "__file__", None) or "") for name, module in sys.modules.items()
    if name != "__main__"
}
os.write(answers, json.dumps([files, sys.path]).encode())
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return provision_release("0.33.0", "focused")


def options(engine: Engine, level: str) -> list[str]:
    return ["--source", str(engine.source), "--load", engine.load, "--level", level]


def worker(
    engine: Engine, level: str, home: Path = start.HOME, code: str | None = None, **variables: str
) -> list[dict[str, Any] | list[Any]]:
    """The lines that a worker writes whose kvproof lies in ``home``."""
    file = home / "kvproof" / "engines" / "vllm" / "inside" / "start.py"
    before = [] if code is None else ["-c", code]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(engine.python), "-P", *before, str(file), *options(engine, level)],
        env=plain | {"PYTHONDONTWRITEBYTECODE": "1", "VLLM_LOGGING_LEVEL": "ERROR"} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def strangers(files: dict[str, str], engine: Engine) -> Iterator[str]:
    """Modules that are neither the standard library's, the engine's, nor ours from inside."""
    environment = engine.python.parents[1]
    for name, file in files.items():
        is_ours = Path(file).is_relative_to(start.HOME) and not Path(file).is_relative_to(
            environment
        )
        if is_ours:
            package = name if file.endswith("__init__.py") else name.rpartition(".")[0]
            if package not in OURS and name not in ABOVE:
                yield name
        elif file and not Path(file).is_relative_to(environment):
            is_engine = Path(file).is_relative_to(engine.source / "vllm")
            if not is_engine and name.partition(".")[0] not in sys.stdlib_module_names:
                yield name


@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_a_worker_imports_the_standard_library_the_engine_and_our_inside(
    engine: Engine, level: str
) -> None:
    answer = worker(engine, level, code=SEEN)[-1]
    assert isinstance(answer, list)
    files, path = answer
    assert list(strangers(files, engine)) == []
    assert str(start.HOME) not in path
    assert f"{INSIDE}.worker" in files
    assert "vllm.v1.core.kv_cache_manager" in files


def test_a_stranger_is_seen(engine: Engine) -> None:
    files = {
        "z3": "/somewhere/site-packages/z3/__init__.py",
        "invariants.proofs": str(start.HOME / "invariants" / "proofs" / "__init__.py"),
        "specs.casefile": str(start.HOME / "specs" / "casefile.py"),
        "kvproof.cli": str(start.HOME / "kvproof" / "cli.py"),
        "model.pool": str(start.HOME / "model" / "pool.py"),
        "json": json.__file__,
    }
    assert list(strangers(files, engine)) == list(files)[:4]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as of a wheel: kvproof's packages beside libraries that must not be imported."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name in start.OWN:
        shutil.copytree(start.HOME / name, folder / name)
    for name in ("msgspec", "cbor2", "zmq", "torch", "vllm", "numpy", "typing_extensions"):
        (folder / f"{name}.py").write_text("raise ImportError(f'the wrong {__name__}')\n")
    return folder


@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_what_lies_beside_kvproof_is_not_imported(
    engine: Engine, level: str, installed: Path
) -> None:
    (hello,) = worker(engine, level, installed)
    assert isinstance(hello, dict)
    assert "error" not in hello


def test_with_that_folder_on_the_path_it_would_be(engine: Engine, installed: Path) -> None:
    (hello,) = worker(engine, "manager", installed, PYTHONPATH=str(installed))
    assert isinstance(hello, dict)
    assert "the wrong" in hello["error"]


def test_modules_of_our_names_on_the_path_do_not_hide_ours(engine: Engine, tmp_path: Path) -> None:
    for name in start.OWN:
        (tmp_path / f"{name}.py").write_text("raise ImportError('not ours')\n")
    (hello,) = worker(engine, "manager", PYTHONPATH=str(tmp_path))
    assert isinstance(hello, dict)
    assert "error" not in hello
