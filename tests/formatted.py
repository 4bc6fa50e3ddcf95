"""Whether generated files are as this project's linter and formatter would have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIGURATION = Path(__file__).parents[1] / "pyproject.toml"


def assert_formatted(folder: Path) -> None:
    for command in (["check", "--output-format", "concise"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", CONFIGURATION, "-q", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
