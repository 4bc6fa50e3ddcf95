"""The project's settings: where they are read from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproof.errors import CouldNotRun
from kvproof.gate.settings import Settings, read_settings


def project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_without_settings_the_defaults_apply(tmp_path: Path) -> None:
    assert read_settings(tmp_path) == Settings()
    assert read_settings(project(tmp_path / "other", "[tool.ruff]\n")) == Settings()


def test_settings_are_read_with_folders_relative_to_their_file(tmp_path: Path) -> None:
    text = """
    [tool.kvproof]
    subjects = ["reference:eager"]
    canaries = []
    corpus = "traces"
    out = "/found"
    seed = 7
    load = "full"
    """
    settings = read_settings(project(tmp_path, text))
    assert settings == Settings(
        ("reference:eager",), (), str(tmp_path / "traces"), "/found", 7, "full"
    )


def test_the_nearest_project_that_has_settings_wins(tmp_path: Path) -> None:
    project(tmp_path, "[tool.kvproof]\nseed = 1\n")
    inner = project(tmp_path / "a" / "inner", "[tool.kvproof]\nseed = 2\n")
    bare = project(tmp_path / "a" / "bare", "[project]\nname = 'bare'\n")
    assert read_settings(inner / "deep" / "er").seed == 2
    assert read_settings(bare).seed == 1
    assert read_settings(tmp_path).seed == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.kvproof]\nsubject = []", "has no key 'subject'; it knows canaries, corpus"),
        ("[tool.kvproof]\nsubjects = 'a'", "subjects must be a list of strings"),
        ("[tool.kvproof]\nsubjects = [1]", "subjects must be a list of strings"),
        ("[tool.kvproof]\nseed = 'a'", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nseed = true", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nseed = -1", "seed must be a number, 0 or more"),
        ("[tool.kvproof]\nout = 1", "out must be a string"),
        ("[tool.kvproof]\nload = 'half'", "load must be focused or full"),
        ("[tool]\nkvproof = 5", "tool.kvproof must be a table"),
        ("[tool.kvproof", "cannot read .*pyproject.toml: .*; correct it"),
    ],
)
def test_broken_settings_are_refused_with_the_file_and_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(CouldNotRun, match=message) as refused:
        read_settings(project(tmp_path, text))
    assert str(tmp_path / "pyproject.toml") in str(refused.value)
    assert "\n" not in str(refused.value)
