"""The model beside real schedulers: every call and every step's whole state, on each release."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from recording import run_engine

from invariants.conformance.reading import trusted_call
from invariants.conformance.shadow import Shadow, differences
from kvproof.engines.vllm.inside.agreement import PoolAgreement
from kvproof.engines.vllm.inside.view import PoolView
from model.manager.configuration import Configuration
from model.manager.session import Session
from model.pool import Pool
from model.reference import ReferenceAllocator
from model.releases import DIALECTS, VERSIONS

RUNS = 20
RAISED = "the allocator raised OutOfBlocks"
"""What 0.30.0 does in some of the runs: the known crash."""
CONFIGURATION = Configuration()
DIALECT = DIALECTS["vllm-0.33.0"]


def shadowed(version: str, level: str, place: str = "-", runs: int = RUNS) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(run_engine(version, level, place, runs))
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_model_and_scheduler_agree_at_every_call_and_in_every_state(version: str) -> None:
    runs = shadowed(version, "shadow")
    assert [run["difference"] for run in runs if run["difference"]] == []
    ended = [run["ended_at"] for run in runs if run["ended_at"]]
    if version == "0.30.0":
        assert all(RAISED in reason for reason in ended)
    else:
        assert ended == []
        assert all(run["states"] for run in runs)
    assert sum(run["calls"] for run in runs) > 5_000
    assert sum(run["states"] for run in runs) > 500


@pytest.mark.parametrize("version", VERSIONS)
def test_a_state_that_no_answer_shows_yet_is_seen_at_the_end_of_the_step(version: str) -> None:
    for run in shadowed(version, "lying", runs=6):
        assert run["difference"] is not None
    quiet = [run for run in shadowed(version, "lying", runs=6) if "free:" in run["difference"][-1]]
    assert quiet
    assert quiet[0]["states"] == 1
    assert quiet[0]["difference"][0].startswith("the state after schedule(")


FULL_ATTENTION_HAS_NONE = {
    *(f"host.{field}" for field in ("free", "counts", "keys", "index", "watched")),
    *(f"state.{field}" for field in ("copies", "transfers", "unsent")),
    *(f"holding.{field}" for field in ("host", "resident", "table", "hot", "host_cached", "valid")),
    *(f"holding.{field}" for field in ("wants_hot", "ready", "pending", "pinned_clean")),
    *(f"holding.{field}" for field in ("unpinned", "to_adopt", "recorded", "publication")),
}
"""Fields of HiSparse, which a run of full attention does not compare."""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_fast_comparison_sees_every_field_that_a_snapshot_has(version: str) -> None:
    runs = shadowed(version, "twins", runs=12)
    seen = {name for run in runs for name in run["seen"]}
    assert {name for run in runs for name in run["missed"]} <= FULL_ATTENTION_HAS_NONE
    assert len(seen) > 30
    assert seen >= FULL_ATTENTION_HAS_NONE


def test_a_block_that_lost_its_key_and_got_it_back_is_behind_the_other_again() -> None:
    """No hash and no size tells: the order of the two blocks under one key has changed."""
    blocks = [SimpleNamespace(block_id=n, ref_cnt=0, block_hash="key" * (n > 0)) for n in range(3)]
    blocks[0].block_hash = None
    found = {"key": dict.fromkeys((1, 2))}
    pool: Any = SimpleNamespace(
        blocks=blocks,
        null_block=SimpleNamespace(block_id=0, ref_cnt=0, block_hash=None, is_null=True),
        free_block_queue=SimpleNamespace(get_all_free_blocks=lambda: blocks[1:]),
        get_num_free_blocks=lambda: 2,
        _reuse_watchers={},
        cached_block_hash_to_block=SimpleNamespace(_cache=found),
    )
    agreement = PoolAgreement(PoolView(pool), lambda key: (0, 7))
    model = Pool(3, caching=True, null_counted=False, on_reuse=lambda block: None)
    for block in (1, 2):
        model.insert((0, 7), block)
    assert agreement.holds(model)
    model.evict(1)
    assert not agreement.holds(model)
    model.insert((0, 7), 1)
    found["key"] = dict.fromkeys((2, 1))
    assert agreement.holds(model)


def test_where_loads_from_elsewhere_begin_the_shadow_says_that_it_ends() -> None:
    runs = shadowed("0.33.0", "shadow", "store", runs=8)
    ended = [run["ended_at"] for run in runs if run["ended_at"]]
    assert any("num_external_computed_tokens" in reason for reason in ended)
    assert all(run["difference"] is None for run in runs)


def new_shadow() -> Shadow:
    session: Any = Session(CONFIGURATION, ReferenceAllocator(CONFIGURATION, DIALECT))
    return Shadow(CONFIGURATION, DIALECT, lambda requests, scheduled, deferred: session.snapshot())


def lookup(hit: int = 0) -> dict[str, Any]:
    groups: tuple[tuple[int, ...], ...] = ((), (), (), ())
    view = {"request": 0, "status": "WAITING", "computed": 0, "in_flight": 0, "length": 3}
    return {"call": "lookup", **view, "hit": hit, "blocks": groups, "free": (15, 11)}


def test_a_shadow_stops_at_its_first_difference_and_keeps_it() -> None:
    shadow = new_shadow()
    shadow.feed(lookup())
    assert shadow.follows
    assert shadow.calls == 1
    shadow.feed(lookup(hit=4))
    assert shadow.difference is not None
    assert "hit tokens: the model says 0, the engine 4" in shadow.difference[1]
    shadow.feed(lookup())
    assert shadow.calls == 1
    assert not shadow.follows


def test_a_call_that_the_model_does_not_know_ends_the_shadow_and_is_no_difference() -> None:
    shadow = new_shadow()
    shadow.feed({"call": "other", "name": "BlockPool.touch", "free": (15, 11)})
    assert shadow.difference is None
    assert shadow.ended_at is not None
    assert "BlockPool.touch" in shadow.ended_at


def test_the_end_of_a_step_compares_the_whole_state() -> None:
    shadow = new_shadow()
    shadow.feed({"call": "scheduled", "tokens": (), "free": (15, 11)})
    assert (shadow.states, shadow.difference) == (1, None)
    shadow.mirror.allocator.state.gpu.free.reverse()
    shadow.feed({"call": "scheduled", "tokens": (), "free": (15, 11)})
    assert shadow.difference is not None
    assert shadow.difference[1].startswith("gpu.free: the model has (15, 14,")


def test_differences_name_the_field_of_a_pool() -> None:
    state = new_shadow().mirror.snapshot()
    other = state._replace(gpu=state.gpu._replace(num_free=3), copies=((1, 2),))
    assert [line.split(":")[0] for line in differences(state, other)] == ["gpu.num_free", "copies"]
    assert list(differences(state, state)) == []


def test_a_record_of_the_own_process_is_taken_as_it_is() -> None:
    call: Any = trusted_call(lookup(hit=2))
    assert (call.view.request, call.hit, call.free) == (0, 2, (15, 11))
