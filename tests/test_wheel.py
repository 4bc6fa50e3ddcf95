"""Installed is as good as cloned: the wheel, in an environment of its own, from an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from model.releases import NEWEST

ROOT = Path(__file__).parents[1]
CORPUS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("specs/corpus/**/*.json"))
SMALL_GATE = """
from kvproof.cli import main
from kvproof.gate.plan import PROFILES, Profile
PROFILES["pr"] = Profile(examples=20, programs=60, scheduler_programs=20)
main(["gate", "--json"])
"""
SETTINGS = f"""[tool.kvproof]
subjects = ["vllm=={NEWEST.version}"]
canaries = ["reference:eager"]
"""
STAGES = {"table", "proofs", "canary", "predicted", "corpus", "lockstep", "search", "scheduler"}
MISS_GOALS = {"lockstep", "search", "scheduler"}
"""Stages that so small a gate leaves incomplete: they see too little, and say so."""


@dataclass(frozen=True, slots=True)
class Installed:
    """kvproof from its wheel: what runs it, where its packages are, and an empty folder."""

    scripts: Path
    packages: Path
    folder: Path

    def run(self, *command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        program, *arguments = command
        return subprocess.run(
            [str(self.scripts / program), *arguments],
            cwd=folder or self.folder,
            env=outside_environment(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's settings, without what would lead back into the clone."""
    return {k: v for k, v in environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}


def uv(*arguments: str, folder: Path) -> None:
    program = os.environ.get("UV") or shutil.which("uv")
    assert program, "uv is not there: pip install uv"
    environ = outside_environment(os.environ)
    subprocess.run([program, *arguments], cwd=folder, env=environ, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", str(folder), str(ROOT), folder=folder)
    (built,) = folder.glob("kvproof-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Installed:
    environment = wheel.with_name("environment")
    python = environment / "bin" / "python"
    empty = wheel.with_name("empty")
    empty.mkdir()
    uv("venv", "--python", sys.executable, str(environment), folder=empty)
    uv("pip", "install", "--python", str(python), str(wheel), folder=empty)
    (packages,) = environment.glob("lib/python*/site-packages")
    return Installed(environment / "bin", packages, empty)


def test_the_wheel_holds_the_corpus_and_the_other_files_that_are_no_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names.issuperset(CORPUS)
    assert len(CORPUS) >= 15
    for folder in ("kvproof", "specs"):
        for suffix in ("txt", "m", "pml"):
            found = ROOT.glob(f"{folder}/**/*.{suffix}")
            data = {path.relative_to(ROOT).as_posix() for path in found}
            assert names.issuperset(data)


def test_the_wheel_holds_nothing_of_the_clone_that_is_not_kvproof(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"model", "invariants", "specs", "kvproof"}
    assert not [name for name in names if "__pycache__" in name]


def test_no_code_is_taken_from_the_clone(installed: Installed) -> None:
    ask = "import kvproof, model, specs; print(kvproof.__file__, model.__file__, specs.__file__)"
    shown = installed.run("python", "-c", ask)
    assert shown.stderr == ""
    assert all(Path(file).is_relative_to(installed.packages) for file in shown.stdout.split())


def test_table_runs_from_an_empty_folder(installed: Installed) -> None:
    shown = installed.run("kvproof", "table", "--subject", f"vllm=={NEWEST.version}", "--json")
    assert shown.returncode == 0, shown.stderr
    assert len(json.loads(shown.stdout)["rows"]) == 10


def test_search_finds_the_defect_of_a_reference_from_an_empty_folder(installed: Installed) -> None:
    command = "search --subject reference:eager --rule I4 --seed 3 --json --out found-eager"
    found = installed.run("kvproof", *command.split())
    assert (found.returncode, json.loads(found.stdout)["verdict"]) == (1, "counterexample")


@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_search_runs_a_release_from_an_empty_folder(installed: Installed, level: str) -> None:
    command = f"search --level {level} --rule I4 --seed 3 --max-examples 20 --json"
    found = installed.run("kvproof", *command.split(), "--subject", f"vllm=={NEWEST.version}")
    assert (found.returncode, json.loads(found.stdout)["verdict"]) == (0, "clean"), found.stderr


def test_replay_runs_the_corpus_of_the_wheel(installed: Installed) -> None:
    files = [str(installed.packages / name) for name in CORPUS]
    replayed = installed.run("kvproof", "replay", *files, "--json")
    assert replayed.stderr == ""
    assert len(json.loads(replayed.stdout)["traces"]) >= len(CORPUS)


def test_the_recorder_is_written_from_the_wheel(installed: Installed) -> None:
    assert installed.run("kvproof", "record", "--out", "recorder").returncode == 0
    assert (installed.folder / "recorder" / "kvproof_recorder.py").is_file()


def test_the_gate_runs_all_its_stages_from_a_folder_with_nothing_but_settings(
    installed: Installed, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(SETTINGS, encoding="utf-8")
    shown = installed.run("python", "-c", SMALL_GATE, folder=tmp_path)
    stages = json.loads(shown.stdout)["stages"]
    assert {stage["name"] for stage in stages} >= STAGES
    odd = [stage for stage in stages if stage["verdict"] != "clean"]
    assert {stage["name"] for stage in odd} <= MISS_GOALS, odd
    assert {stage["verdict"] for stage in odd} <= {"incomplete"}, odd
