"""The groups of a cache are the engine's own, in the order that the model says."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from door import OPEN_DOOR

from kvproof.engines.vllm.engine import provision_release
from model.groups import Cache, kinds_of, positions

RELEASES = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
CACHES: tuple[tuple[Cache, int], ...] = (
    ("full", 1), ("sliding", 1), ("mamba", 1), ("hisparse", 1), ("hisparse", 3),
)  # fmt: skip
HELD = {
    "FullAttentionManager": ("full", "indexer"),
    "SlidingWindowManager": ("sliding",),
    "MambaManager": ("state",),
    "HiSparseSourceManager": ("host",),
    "HiSparseResidentManager": ("resident",),
    "HiSparseHotManager": ("hot",),
}
"""Manager of the engine → what a group of it may hold."""

MANAGERS = f"""
import json, sys
from pathlib import Path
{OPEN_DOOR}
from kvproof.engines.vllm.inside.loading import install
install(Path(sys.argv[1]))
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from model.scheduler.setup import SchedulerSetup
told = []
for cache, groups in json.loads(sys.argv[2]):
    setup = SchedulerSetup(
        cache=cache, block_size=4, num_blocks=99, max_model_len=16, max_num_batched_tokens=8,
        max_num_seqs=2, sliding_window=6, num_resident_groups=groups, num_host_blocks=50,
    )
    managers = EngineScheduler(setup).manager.coordinator.single_type_managers
    told.append([type(manager).__name__ for manager in managers])
print(json.dumps(told))
"""


def are(managers: list[str], cache: Cache, resident_groups: int) -> bool:
    kinds = kinds_of(cache, resident_groups)
    return len(managers) == len(kinds) and all(
        kind in HELD[manager] for manager, kind in zip(managers, kinds, strict=True)
    )


@pytest.mark.parametrize("version", RELEASES)
def test_each_release_has_the_groups_that_the_model_says(version: str) -> None:
    engine = provision_release(version, "focused")
    done = subprocess.run(
        [str(engine.python), "-P", "-c", MANAGERS, str(engine.source), json.dumps(CACHES)],
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for managers, (cache, groups) in zip(told, CACHES, strict=True):
        assert are(managers, cache, groups), (cache, managers)


def test_another_order_is_seen() -> None:
    managers = ["HiSparseSourceManager", "FullAttentionManager"]
    assert are([*managers, "HiSparseResidentManager", "HiSparseHotManager"], "hisparse", 1)
    assert not are([*managers, "HiSparseHotManager", "HiSparseResidentManager"], "hisparse", 1)
    assert not are([*managers, "HiSparseResidentManager"], "hisparse", 1)


def test_rows_of_a_kind_are_found_by_their_position() -> None:
    kinds = kinds_of("hisparse", 2)
    assert kinds == ("host", "indexer", "resident", "resident", "hot", "hot")
    assert positions(kinds, "resident") == (2, 3)
    assert positions(kinds, "full") == ()
