"""A checkout that renamed what kvproof reads: one line says so, and there is no verdict."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from random import Random

import pytest
from changed_engine import copy_checkout, rename

from kvproof.engines.vllm import inside
from kvproof.engines.vllm.inside.missing import WHY, EngineUnlikeError, require, unlike
from kvproof.errors import CouldNotRun
from kvproof.gate import gate as gate_module
from kvproof.gate.gate import run_gate, stages_of
from kvproof.gate.plan import Plan, Profile
from kvproof.gate.results import PredictedResult
from kvproof.gate.settings import Settings
from kvproof.levels.manager import ManagerExaminer
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.reports.words.gate import details_of
from kvproof.subjects.names import open_subject
from model.program import Level

INSIDE = Path(inside.__file__).parent
PROGRAMS = 12
RENAMED: tuple[tuple[str, str, str, str], ...] = (
    # what, at which level, where it was, who reads it
    ("free_block_queue", "both", "BlockPool", "view"),
    ("req_to_blocks", "both", "HiSparseSourceManager|FullAttentionManager", "view"),
    ("num_cached_block", "both", "HiSparseSourceManager|FullAttentionManager", "view"),
    ("_reuse_watchers", "both", "BlockPool", "view"),
    ("pending_spills", "both", "HiSparseCoordinator", "view"),
    ("_owners", "both", "HiSparseCoordinator", "view"),
    ("hot_required", "both", "HiSparseHotManager", "view"),
    ("get_residency_row", "both", "HiSparseResidentManager", "view"),
    ("unpinned_pages", "both", "_HiSparseRequestState", "view"),
    ("valid_pages", "both", "_HiSparseRequestState", "view"),
    ("worker_completions", "both", "_PendingSpill", "view"),
    ("get_new_blocks", "both", "BlockPool", "allocator|shadow"),
    ("update_spills", "both", "HiSparseCoordinator", "allocator|shadow"),
    ("allocate_slots", "both", "KVCacheManager", "allocator|shadow"),
    ("advance_scheduled", "both", "HiSparseCoordinator", "allocator|shadow"),
    ("_publish_host_blocks_if_ready", "scheduler", "HiSparseCoordinator", "shadow"),
    ("full_sequence_must_fit", "manager", "KVCacheManager.allocate_slots", "allocator"),
    ("num_in_flight_tokens", "manager", "Request", "allocator"),
    ("deferred_frees", "scheduler", "AsyncScheduler|Scheduler", "scheduler"),
    ("num_preemptions", "scheduler", "Request", "scheduler"),
)
CASES = [
    (name, level, place, reader)
    for name, levels, place, reader in RENAMED
    for level in (("manager", "scheduler") if levels == "both" else (levels,))
]


def run_some(subject_name: str, level: Level) -> int:
    """Programs of a level; returns how many of them ran without a violation."""
    with open_subject(subject_name, level) as subject:
        if level == "manager":
            examiner = ManagerExaminer(subject, subject.dialect)
            programs = [examiner.draw(Random(seed), 60) for seed in range(PROGRAMS)]
            return sum(not result.violations for result in examiner.examine_many(programs))
        whole = SchedulerExaminer(subject)
        drawn = [whole.draw(Random(seed), 60) for seed in range(PROGRAMS)]
        return sum(not result.violations for result in whole.examine_many(drawn))


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("unchanged"))


@pytest.mark.parametrize(("name", "level", "place", "reader"), CASES)
def test_a_rename_is_named_once_with_what_it_was_read_for(
    unchanged: Path, tmp_path: Path, name: str, level: Level, place: str, reader: str
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(unchanged, checkout)
    assert rename(checkout, name)
    with pytest.raises(CouldNotRun) as told:
        run_some(f"vllm@{checkout}", level)
    line = str(told.value)
    assert "\n" not in line
    assert f"`{name}`" in line
    assert any(f" {each}" in line for each in place.split("|"))
    assert any(f"inside/{each}.py" in line for each in reader.split("|"))


@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_a_function_that_is_imported_and_gone_is_named(
    unchanged: Path, tmp_path: Path, level: Level
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(unchanged, checkout)
    rename(checkout, "get_block_hash")
    with pytest.raises(CouldNotRun, match=r"get_block_hash.*") as told:
        run_some(f"vllm@{checkout}", level)
    assert "imports in inside/names.py" in str(told.value)


@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_the_unchanged_copy_runs(unchanged: Path, level: Level) -> None:
    assert run_some(f"vllm@{unchanged}", level)


def test_each_stage_of_the_gate_is_incomplete_and_says_it_in_one_line(
    unchanged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(unchanged, checkout)
    rename(checkout, "req_to_blocks")
    name = f"vllm@{checkout}"
    settings = Settings(subjects=(name,), canaries=("reference:eager",))
    plan = Plan(settings, Profile(examples=9, programs=9, scheduler_programs=9), tmp_path)
    of_checkout = [stage for stage in stages_of(plan) if stage.subject == name]
    monkeypatch.setattr(gate_module, "stages_of", lambda _: of_checkout)
    ended = run_gate(plan).stages
    assert {stage.name for stage in ended} == {
        "table", "predicted", "corpus", "lockstep", "search", "scheduler", "effort",
    }  # fmt: skip
    for stage in ended:
        assert stage.verdict == "incomplete", stage.name
        (line,) = details_of(stage.result)
        assert "`req_to_blocks`" in line, stage.name


def test_a_prediction_of_no_allocation_is_no_verdict() -> None:
    nothing = PredictedResult(1_200, 1_000, 0, ("a mismatch",), None)
    assert nothing.verdict == "incomplete"
    assert PredictedResult(1_200, 1_000, 1, ("a mismatch",), None).verdict == "counterexample"


# What says so, and what does not


class Engine:
    """Stands for a class of the engine."""


Engine.__module__ = "vllm.somewhere"


def test_an_attribute_that_is_there_is_not_missed() -> None:
    engine = Engine()
    engine.req_to_blocks = {}  # type: ignore[attr-defined]
    require(engine, "req_to_blocks")
    with pytest.raises(EngineUnlikeError, match="no `_cache` on Engine: kvproof reads it in"):
        require(engine, "req_to_blocks", "_cache")


def test_what_the_engine_s_own_code_misses_is_a_defect_of_the_engine() -> None:
    with pytest.raises(AttributeError) as told:
        Engine().nothing  # type: ignore[attr-defined]  # noqa: B018
    assert unlike(told.value) is None  # raised here, not inside


# Who reads


def private_reads(file: Path) -> set[str]:
    """Private attributes of anything but ``self`` that a file reads."""
    return {
        node.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }


def test_only_the_view_reads_what_is_private_to_the_engine() -> None:
    allowed = {
        "loading.py": {"_stand_in", "_getframe"},
        "recorder.py": {"_kvproof_tap", "_kvproof_original"},
    }
    for file in INSIDE.glob("*.py"):
        if file.name != "view.py":
            assert private_reads(file) <= allowed.get(file.name, set()), file.name
    assert private_reads(INSIDE / "view.py") == {
        "_cache", "_reuse_watchers", "_owners", "_retained_copies",
    }  # fmt: skip


def test_what_each_piece_is_for_is_said_of_pieces_that_are_read() -> None:
    sources = "".join(f.read_text() for f in INSIDE.glob("*.py") if f.name != "missing.py")
    assert [name for name in WHY if name not in sources] == []
