"""A release is one row: a copy of the newest one under the next number needs nothing more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from model.releases import (
    DIALECTS,
    NEWEST,
    OLDEST,
    PROPOSALS,
    RELEASES,
    SOUND,
    VERSIONS,
    first_with,
    release_named,
)

ROOT = Path(__file__).parents[2]
LAST = "RELEASES = ("
ASK = """
import json, sys
from model.releases import DIALECTS, NEWEST
import ci_matrix
from invariants.scheduler.goals import unreachable_goals
from kvproof.gate.settings import OWN_CORPUS, Settings
from kvproof.gate.table import expected_column
from kvproof.search.replay import expected_of, subjects_of
from kvproof.subjects.rows import compared_as
from specs.casefile import read_case
name = sys.argv[1]
under = compared_as(f"vllm=={name}", name)
dialect, cases = under.dialect, [read_case(p) for p in sorted(OWN_CORPUS.rglob("*.json"))]
print(json.dumps({
    "dialect": dialect.name, "notes": under.notes, "by_name": dialect.name in DIALECTS,
    "waived": [dialect.waived("manager"), dialect.waived("scheduler")],
    "known": dialect.known_defects, "newest": NEWEST.version,
    "gate": Settings().subjects, "canaries": Settings().canaries,
    "matrix": json.loads(ci_matrix.output().partition("=")[2]),
    "column": expected_column(dialect.name), "unreachable": unreachable_goals(dialect),
    "expected": [expected_of(case, f"vllm=={name}") for case in cases],
    "replayed": [f"vllm=={name}" in subjects_of(case) for case in cases],
}))
"""


def next_version() -> str:
    newest = Version(NEWEST.version)
    return f"{newest.major}.{newest.minor + 1}.0"


def asked(model: Path | None, version: str) -> dict[str, Any]:
    """What the whole program says of a release, with these rows or its own."""
    places = [*([str(model)] if model else []), str(ROOT), str(ROOT / "scripts")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK, version],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def with_one_more_row(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer of the model with a copy of the newest row: its file differs in one line."""
    folder = tmp_path_factory.mktemp("rows")
    shutil.copytree(ROOT / "model", folder / "model")
    rows = folder / "model" / "releases.py"
    text = rows.read_text(encoding="utf-8")
    line = next(x for x in text.splitlines() if x.startswith(LAST))
    row = f'row("{next_version()}", _{NEWEST.version.replace(".", "_")}.dialect)'
    rows.write_text(text.replace(line, line.replace(")", f", {row})")), encoding="utf-8")
    return folder


def test_a_copy_of_the_newest_release_is_supported_by_one_row(with_one_more_row: Path) -> None:
    version = next_version()
    new, old = asked(with_one_more_row, version), asked(None, NEWEST.version)
    assert new["dialect"] == f"vllm-{version}"
    assert (new["notes"], new["by_name"], new["newest"]) == ([], True, version)
    assert new["gate"] == [f"vllm=={version}"]
    assert new["matrix"] == [*old["matrix"], version]
    for follows in ("waived", "known", "canaries", "column", "unreachable", "expected"):
        assert new[follows] == old[follows], follows
    assert new["replayed"] == old["replayed"]
    assert "FAILED" in new["expected"]


def test_without_a_row_a_release_is_compared_under_the_newest_and_nothing_is_expected() -> None:
    answer = asked(None, next_version())
    assert answer["dialect"] == NEWEST.dialect.name
    (note,) = answer["notes"]
    assert note == (
        f"vllm=={next_version()} has no row in model/releases.py: "
        f"compared under {NEWEST.dialect.name}"
    )
    assert set(answer["expected"]) == {None}
    assert not any(answer["replayed"])


def test_the_rows_are_in_order_and_each_names_its_dialect() -> None:
    assert list(VERSIONS) == sorted(VERSIONS, key=Version)
    assert [r.dialect.name for r in RELEASES] == [f"vllm-{version}" for version in VERSIONS]
    assert list(DIALECTS) == [*(p.name for p in PROPOSALS), *(r.dialect.name for r in RELEASES)]
    assert (RELEASES[0], RELEASES[-1]) == (OLDEST, NEWEST)


def test_a_release_is_found_by_its_dialect_and_a_proposal_is_none() -> None:
    assert release_named(NEWEST.dialect.name) is NEWEST
    assert release_named("eager") is None


def test_the_first_release_with_a_switch_is_the_oldest_one() -> None:
    assert first_with(adopt_at="commit") is OLDEST
    assert first_with(adopt_at="end_of_step").dialect.residency_hook == "end_of_step"


def test_the_newest_release_is_one_of_which_a_gate_is_expected_to_be_clean() -> None:
    assert NEWEST in SOUND
    assert OLDEST not in SOUND
