"""What a search of whole engine steps must have seen, and what it cannot see."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from invariants.scheduler.account import account_of
from invariants.scheduler.goals import (
    COPY_TAKEN,
    GOALS,
    OF_HISPARSE,
    OF_STORE,
    UNCACHED,
    excluded_goals,
    unreachable_goals,
)
from invariants.scheduler.residency_goals import (
    adopted,
    fresh_blocks,
    lost_copies,
    residency,
    reused,
)
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.subjects.names import open_subject
from model.contents import Contents
from model.program import Program
from model.releases import DIALECTS
from model.scheduler.actions import Step
from model.scheduler.ghost_worker import GhostWorker, Rows
from model.scheduler.plan import Scheduled, StepPlan, Table
from model.scheduler.setup import SchedulerSetup
from specs.scheduler.generator import draw_program

PROGRAMS = {"0.30.0": 80, "0.31.0": 80, "0.32.0": 80, "0.33.0": 150}
"""The newest release has the goal that is met least often."""
ACTIONS = 60


def goals_seen(version: str, programs: int, modes: dict[str, Any] | None = None) -> Counter[str]:
    seen: Counter[str] = Counter()
    with open_subject(f"vllm=={version}", "scheduler") as subject:
        drawn = (draw_program(Random(seed), ACTIONS, modes) for seed in range(programs))
        for trace in subject.run_many(drawn):
            assert trace.ending in ("ended", "violated"), trace.failure
            seen += account_of(trace).goals
    return seen


@pytest.mark.parametrize("version", PROGRAMS)
def test_a_search_meets_every_goal_that_its_release_can_meet(version: str) -> None:
    seen = goals_seen(version, PROGRAMS[version])
    unreachable = unreachable_goals(DIALECTS[f"vllm-{version}"])
    assert seen.keys() <= set(GOALS)
    assert [goal for goal in GOALS if not seen[goal] and goal not in unreachable] == []
    # What no load waits for is not seen by mistake either; the other is another thing there.
    assert [goal for goal in unreachable if seen[goal] and goal != COPY_TAKEN] == []


MODES: list[dict[str, Any]] = [
    {"cache": "full", "external_store": False},
    {"cache": "hisparse", "external_store": False, "policy": "fcfs"},
    {"cache": "mamba", "policy": "priority", "async_scheduling": False},
    {"cache": "sliding", "prefix_caching": False, "external_store": True},
    {"cache": "hisparse", "prefix_caching": False, "num_resident_groups": 1},
    {"external_store": True, "load_failure": "fail", "long_prefill_threshold": 0},
    {"external_store": True, "load_failure": "recompute", "watermark_blocks": 0},
    {"prefix_caching": True, "async_scheduling": False},
]


@pytest.mark.parametrize("modes", MODES, ids=str)
def test_what_fixed_fields_rule_out_is_never_met(modes: dict[str, Any]) -> None:
    excluded = excluded_goals(modes)
    assert excluded
    assert excluded.keys() <= set(GOALS)
    seen = goals_seen("0.33.0", 20, modes)
    assert [goal for goal in excluded if seen[goal]] == []


def test_an_engine_without_requests_meets_no_goal() -> None:
    setup = SchedulerSetup("full", 4, 8, 16, 16, 2)
    with open_subject("vllm==0.33.0", "scheduler") as subject:
        trace = subject.run(Program(setup, (Step(), Step())))
    assert +account_of(trace).goals == Counter()
    with open_subject("vllm==0.33.0", "scheduler") as subject:
        unmet = SchedulerExaminer(subject).unmet(account_of(trace).goals)
    assert unmet == GOALS


def test_goals_are_named_once_and_modes_that_rule_out_nothing_exclude_nothing() -> None:
    assert len(set(GOALS)) == len(GOALS)
    assert excluded_goals({}) == {}
    assert excluded_goals({"cache": "hisparse"}).keys().isdisjoint(OF_HISPARSE)
    assert set(OF_STORE) <= excluded_goals({"external_store": False}).keys()
    assert unreachable_goals(DIALECTS["vllm-0.33.0"]) == {}
    assert UNCACHED in excluded_goals({"cache": "mamba"})


# What becomes of copies, on plans made by hand: groups are host, indexer, resident, hot

SETUP = SchedulerSetup("hisparse", 2, 20, 8, 8, 2, num_host_blocks=6)
HIT = 4
"""Tokens that the request hits: two pages."""


def worker_with(*resident: int, residency_row: tuple[int, ...] = ()) -> GhostWorker:
    worker = GhostWorker(SETUP, Contents(2))
    pages = list(range(1, len(resident) + 1))
    worker.rows[0] = Rows([pages, [p + 10 for p in pages], list(resident), [9]], [[*residency_row]])
    return worker


def share(request: int, computed: int, kind: Any, *rows: tuple[int, ...]) -> Scheduled:
    blocks: Table | None = rows or None
    return Scheduled(request, 2, computed, kind, blocks, True)


def plan_of(*shares: Scheduled, **changes: Any) -> StepPlan:
    plan = StepPlan(1, shares, (), (), (), (), ())
    return replace(plan, **changes)


@pytest.mark.parametrize(
    ("resident", "row", "expected"),
    [((0, 0, 5), (), 0), ((3, 0, 5), (), 1), ((3, 4, 5), (), 2), ((3, 4, 5), (3, 0, 5), 1)],
)
def test_adopted_copies_are_the_pages_of_the_hit_that_are_read_from_the_gpu(
    resident: tuple[int, ...], row: tuple[int, ...], expected: int
) -> None:
    worker = worker_with(*resident, residency_row=row)
    assert adopted(worker, share(0, HIT, "new")) == (2, expected)


def test_fresh_blocks_are_those_behind_the_hit_and_the_hot_region() -> None:
    worker = worker_with(3, 4, 5)
    rows = ((1, 2, 3), (11, 12, 13), (3, 4, 5), (9,))
    assert fresh_blocks(worker, share(0, HIT, "new", *rows)) == {13, 5, 9}
    assert fresh_blocks(worker, share(0, 0, "new", *rows)) == {11, 12, 13, 3, 4, 5, 9}
    assert fresh_blocks(worker, share(0, HIT, "running", (4,), (14,), (0,), ())) == {14}
    assert fresh_blocks(worker, share(0, HIT, "running")) == set()


def test_a_block_is_reused_under_a_reader_that_goes_on() -> None:
    worker = worker_with(3, 4, 5)
    before = residency(worker)
    taker = share(1, 0, "new", (1,), (4,), (6,), ())
    assert reused(worker, before, plan_of(taker))
    assert not reused(worker, before, plan_of(taker, preempted=(0,)))
    assert not reused(worker, before, plan_of(taker, finished=(0,)))
    assert not reused(worker, before, plan_of(share(0, 0, "resumed", (1,), (4,), (6,), ())))
    assert not reused(worker, before, plan_of(share(1, 0, "new", (1,), (7,), (6,), ())))


def test_a_lost_copy_held_a_page_that_its_reader_must_take_from_the_host() -> None:
    gpu = [0] * 20
    gpu[7], gpu[8] = 101, 102
    hit = share(0, HIT, "new")
    assert set(lost_copies(worker_with(0, 0, 5), hit, [[101, 102]], gpu)) == {7, 8}
    assert set(lost_copies(worker_with(7, 0, 5), hit, [[101, 102]], gpu)) == {8}
    assert set(lost_copies(worker_with(7, 8, 5), hit, [[101, 102]], gpu)) == set()
    assert set(lost_copies(worker_with(0, 0, 5), hit, [[103, 104]], gpu)) == set()
