"""Workflows, the action, the issue form and the hooks: they parse, and call what there is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ci_matrix
import newest_release
import pytest
import yaml
from documented import ROOT, check_arguments, commands_of, kvproof_arguments, parts_of
from packaging.version import Version

from kvproof import cli
from model.releases import CANARIES, NEWEST, VERSIONS

SCHEMAS = {
    ".github/workflows/gate.yml": "vendor.github-workflows",
    ".github/workflows/newest.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    ".github/ISSUE_TEMPLATE/counterexample.yml": "vendor.github-issue-forms",
    "action.yml": "vendor.github-actions",
    ".pre-commit-config.yaml": None,
}
RUNNERS = ("ruff", "mypy", "pytest", "deptry", "python", "kvproof")
"""What `uv run` starts here."""


def files_with_commands() -> list[str]:
    return [*SCHEMAS, ".ci/run"]


def scripts_of(value: Any) -> Iterator[str]:
    """What is run, wherever it stands in a YAML document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("run", "entry") and isinstance(inner, str):
                yield inner
            else:
                yield from scripts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from scripts_of(inner)


def commands_in(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    scripts = [text] if name.startswith(".ci/") else list(scripts_of(yaml.safe_load(text)))
    lines = [line for script in scripts for line in script.splitlines()]
    return commands_of("\n".join(f"    {line.strip()}" for line in lines))


def check_command(command: str) -> None:
    """Raises for a command of kvproof's that would not run, or a script that is not there."""
    for arguments in kvproof_arguments(command):
        check_arguments(arguments)
    for part in parts_of(command):
        if part[:2] == ["uv", "run"] and "--project" not in part:
            assert part[2] in RUNNERS, part
        for word in part:
            if word.endswith((".py", ".sh")) or word.startswith(".ci/"):
                assert (ROOT / word).is_file(), f"{word} is not there"


@pytest.mark.parametrize("name", [name for name, schema in SCHEMAS.items() if schema])
def test_a_file_of_githubs_has_githubs_shape(name: str) -> None:
    command = ["check-jsonschema", "--builtin-schema", str(SCHEMAS[name]), str(ROOT / name)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_workflow_of_another_shape_is_seen(tmp_path: Path) -> None:
    twin = tmp_path / "twin.yml"
    twin.write_text("on: push\njobs:\n  a:\n    runs_on: ubuntu\n", encoding="utf-8")
    command = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(twin)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_every_workflow_form_and_action_is_checked() -> None:
    written = [*ROOT.glob(".github/**/*.yml"), *ROOT.glob("*.yml"), *ROOT.glob(".*.yaml")]
    assert {file.relative_to(ROOT).as_posix() for file in written} == set(SCHEMAS)


@pytest.mark.parametrize("name", files_with_commands())
def test_the_commands_in_a_file_exist(name: str) -> None:
    commands = commands_in(name)
    assert commands or name.endswith("counterexample.yml")
    for command in commands:
        check_command(command)


@pytest.mark.parametrize(
    "command",
    [
        "uv run kvproof gate --profil pr",
        'uvx --from "$wheel" kvproof serch',
        "uv run flake8",
        "uv run python scripts/nowhere.py",
        "bash .ci/walk",
    ],
)
def test_a_command_that_would_not_run_is_seen(command: str) -> None:
    with pytest.raises((AssertionError, cli.UsageError)):
        check_command(command)


def test_an_input_never_becomes_part_of_a_script() -> None:
    """Text of a pull request in a script would be run; it comes in by the environment."""
    for name in SCHEMAS:
        document = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
        assert [script for script in scripts_of(document) if "${{" in script] == []


def test_hooks_are_local_and_run_without_a_shell() -> None:
    document = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in document["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in document["repos"]} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    for hook in hooks:
        files = [word for word in shlex.split(hook["entry"]) if word.startswith("tests/")]
        assert all((ROOT / file).exists() for file in files)


def test_the_matrix_of_ci_is_every_release_but_the_canaries() -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "scripts" / "ci_matrix.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ci_matrix.output()
    name, _, listed = done.stdout.strip().partition("=")
    canaries = {release.version for release in CANARIES}
    assert name == "releases"
    assert yaml.safe_load(listed) == [v for v in VERSIONS if v not in canaries]


@pytest.mark.parametrize(
    ("published", "newer"),
    [
        ((), ""),
        (("1.0.0", "1.1.0"), ""),
        (("1.0.0", "1.2.0"), "1.2.0"),
        (("1.2.0", "1.10.0", "1.9.0"), "1.10.0"),
        (("1.1.1",), "1.1.1"),
        (("1.2.0rc1", "1.2.0.dev3"), ""),
        (("1.1.0.post1",), "1.1.0.post1"),
    ],
)
def test_newer_is_the_newest_final_release_after_the_row(
    published: tuple[str, ...], newer: str
) -> None:
    assert newest_release.newer("1.1.0", map(Version, published)) == newer


INDEX = '<a href="vllm-{0}.tar.gz">vllm-{0}.tar.gz</a>\n'


def ask(folder: Path, versions: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run the script with an index in a folder as the only one that is configured."""
    if versions:
        (folder / "vllm").mkdir()
        page = "".join(INDEX.format(version) for version in versions)
        (folder / "vllm" / "index.html").write_text(page, encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "newest_release.py")],
        env=kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": folder.as_uri()},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_configured_index_is_asked_for_a_newer_release(tmp_path: Path) -> None:
    asked = ask(tmp_path, (NEWEST.version, "99.1.0", "99.2.0rc1"))
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == f"newest_row={NEWEST.version}\nnewer=99.1.0\n"


def test_without_a_newer_release_the_answer_is_empty(tmp_path: Path) -> None:
    asked = ask(tmp_path, (NEWEST.version,))
    assert asked.stdout == f"newest_row={NEWEST.version}\nnewer=\n"


def test_an_index_that_cannot_be_asked_is_no_answer(tmp_path: Path) -> None:
    asked = ask(tmp_path, ())
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "cannot look up vllm" in asked.stderr
