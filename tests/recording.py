"""What the tests of the recorder, of check-trace and of the shadow share: runs of real engines."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

from kvproof.engines.vllm.engine import provision_release
from model.program import program_to_json
from model.releases import DIALECTS
from specs.manager.generator import draw_program

ROOT = Path(__file__).parents[1]
PROGRAMS, ACTIONS = 24, 80


def run_engine(version: str, level: str, folder: Path | str, runs: int) -> str:
    """Run ``engine_calls.py`` in the interpreter of a release; return what it wrote."""
    engine = provision_release(version, "focused")
    script = Path(__file__).with_name("engine_calls.py")
    arguments = [str(engine.source), version, level, str(folder), str(runs)]
    done = subprocess.run(
        [str(engine.python), "-P", str(script), *arguments],
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded(version: str, level: str, folder: Path, runs: int) -> list[Path]:
    """The logs of so many runs of a release."""
    dialect = DIALECTS[f"vllm-{version}"]
    programs = [
        program_to_json(draw_program(Random(seed), dialect, ACTIONS)) for seed in range(PROGRAMS)
    ]
    (folder / "programs.json").write_text(json.dumps(programs))
    run_engine(version, level, folder, runs)
    return sorted(folder.glob("calls*.ndjson"))


def records_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="ascii").splitlines()]


def write_log(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
