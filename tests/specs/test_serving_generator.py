"""Drawn programs are ones that an engine starts with, and they find what is known to be wrong."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from door import OPEN_DOOR

from kvproof.engines.vllm.engine import provision_release
from kvproof.levels.scheduler import SchedulerExaminer
from kvproof.subjects.names import open_subject
from model.program import Program, program_to_json
from model.releases import VERSIONS
from model.scheduler.actions import ACTIONS, Arrive, Step
from model.scheduler.legal import problem_of_program, problem_of_setup
from model.scheduler.minimum import minimum_pools
from model.scheduler.program import SCHEDULER, SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from specs.scheduler.generator import draw_program, draw_setup

CACHES = ("full", "sliding", "mamba", "hisparse")
SEEDS = 500
SETUP = SchedulerSetup("full", 4, 8, 16, 16, 2)
HISPARSE = replace(SETUP, cache="hisparse", num_blocks=20, num_host_blocks=6, external_store=True)


def drawn(modes: dict[str, Any] | None = None, seeds: int = SEEDS) -> Iterator[SchedulerProgram]:
    for seed in range(seeds):
        yield draw_program(Random(seed), 40, modes)


# What is drawn


def test_every_drawn_program_is_legal_and_as_long_as_asked() -> None:
    for program in drawn():
        assert problem_of_program(program) is None
        assert len(program.actions) == 40
        assert isinstance(program.actions[0], Arrive)
        assert SCHEDULER.read(json.loads(json.dumps(program_to_json(program)))) == program


def test_the_same_seed_draws_the_same_program() -> None:
    assert list(drawn(seeds=20)) == list(drawn(seeds=20))
    assert len({program.configuration for program in drawn(seeds=20)}) > 15


def test_pools_are_at_the_minimum_most_often_and_never_below() -> None:
    spare = Counter(
        program.configuration.num_blocks - minimum_pools(program.configuration).gpu_blocks
        for program in drawn()
    )
    assert min(spare) == 0
    assert spare.most_common(1)[0][0] == 0
    assert set(spare) - {0, 1} != set()


def test_every_kind_of_setup_and_of_action_is_drawn() -> None:
    programs = list(drawn())
    setups = [program.configuration for program in programs]
    assert {s.cache for s in setups} == set(CACHES)
    assert {s.policy for s in setups} == {"fcfs", "priority"}
    assert {s.load_failure for s in setups if s.external_store} == {"recompute", "fail"}
    assert {s.max_num_seqs for s in setups} == {1, 2, 3, 4}
    assert {s.num_resident_groups for s in setups if s.hisparse} == {1, 2, 3}
    for name in ("prefix_caching", "async_scheduling", "external_store", "reserve_full_isl"):
        assert {getattr(s, name) for s in setups} == {False, True}, name
    for name in ("long_prefill_threshold", "watermark_blocks"):
        assert {getattr(s, name) > 0 for s in setups} == {False, True}, name
    kinds = Counter(type(action) for program in programs for action in program.actions)
    assert set(kinds) == set(ACTIONS)
    assert kinds.most_common(1)[0][0] is Step


MODES: list[dict[str, Any]] = [
    {"cache": "hisparse", "external_store": False, "policy": "fcfs"},
    {"cache": "mamba", "num_blocks": 40, "max_model_len": 12},
    {"max_num_seqs": 8},
    {"block_size": 16, "max_model_len": 100, "async_scheduling": True},
    {"cache": "sliding", "sliding_window": 3},
    {"max_model_len": 3},
]


@pytest.mark.parametrize("modes", MODES, ids=str)
def test_modes_fix_fields_and_the_others_are_made_to_fit(modes: dict[str, Any]) -> None:
    for program in drawn(modes, 60):
        assert problem_of_program(program) is None
        assert {name: getattr(program.configuration, name) for name in modes} == modes


@pytest.mark.parametrize(
    ("modes", "why"),
    [
        ({"cache": "mamba", "prefix_caching": False}, "prefix_caching"),
        ({"cache": "hisparse", "reserve_full_isl": False}, "reserve_full_isl"),
        ({"num_blocks": 2}, "below the start-up minimum"),
        ({"cache": "hisparse", "num_host_blocks": 1}, "below the start-up minimum"),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 4}, "max_num_batched_tokens"),
        ({"long_prefill_threshold": 9, "max_model_len": 8}, "long_prefill_threshold"),
        ({"cache": "sliding", "sliding_window": 0}, "sliding_window"),
        ({"cache": "paged"}, "cache must be one of"),
        ({"page_size": 4}, "unknown settings: page_size"),
    ],
)
def test_modes_that_no_engine_starts_with_are_an_error(modes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        draw_setup(Random(1), modes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_blocks": 4}, "num_blocks 4 is below the start-up minimum 5"),
        ({"block_size": 0}, "block_size must be at least 1"),
        ({"watermark_blocks": 8}, "watermark_blocks must be less"),
        ({"watermark_blocks": -1}, "watermark_blocks must be at least 0"),
        ({"max_model_len": 1}, "max_model_len must be at least 2"),
        ({"policy": "lifo"}, "policy must be one of fcfs, priority"),
    ],
)
def test_an_illegal_setup_is_named(change: dict[str, Any], why: str) -> None:
    assert problem_of_setup(SETUP) is None
    problem = problem_of_setup(replace(SETUP, **change))
    assert problem is not None
    assert problem.startswith(why)


def test_a_load_within_a_step_is_illegal_with_hisparse_only() -> None:
    actions = (Arrive(prompt=8, stored=4),)
    assert problem_of_program(Program(HISPARSE, ())) is None
    assert "asynchronous" in (problem_of_program(Program(HISPARSE, actions)) or "")
    assert problem_of_program(Program(replace(SETUP, external_store=True), actions)) is None


# The engine's own start-up check, in its own interpreter

AGAINST_THE_ENGINE = f"""
import json
import sys
{OPEN_DOOR}
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from kvproof.engines.vllm.inside.loading import install
install(Path(sys.argv[1]))
from kvproof.engines.vllm.inside.configuration import check_startable, startup_minimum
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from model.scheduler.legal import problem_of_setup
from model.scheduler.minimum import minimum_pools
from model.scheduler.setup import NotStartableError
from specs.scheduler.generator import draw_setup

def starts(setup):
    try:
        check_startable(setup)
    except NotStartableError:
        return False
    return True

def changed(random, setup):
    return replace(setup, **{{
        name: max(0, getattr(setup, name) + random.choice((-2, -1, 0, 1, 40)))
        for name in ("num_blocks", "num_host_blocks", "max_num_seqs", "long_prefill_threshold")
    }})

differ, refused, legal = [], 0, 0
for seed in range(1500):
    random = Random(seed)
    setup = draw_setup(random)
    other = changed(random, setup)
    if startup_minimum(setup) != minimum_pools(setup):
        differ.append(asdict(setup))
    if other.max_num_seqs and starts(other) != (problem_of_setup(other) is None):
        differ.append(asdict(other))
    refused += not starts(other)
    if seed < 100:
        EngineScheduler(setup)
print(json.dumps([differ, refused]))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_arithmetic_is_that_of_the_engine(version: str) -> None:
    engine = provision_release(version, "focused")
    done = subprocess.run(
        [str(engine.python), "-P", "-c", AGAINST_THE_ENGINE, str(engine.source)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr
    differ, refused = json.loads(done.stdout.splitlines()[-1])
    assert differ == []
    assert refused > 200


# What it finds. Seeds from which each is found soon; any other finds it too, later.


@pytest.mark.parametrize(
    ("version", "defect", "first_seed"),
    [
        ("0.30.0", "K1", 0),
        ("0.33.0", "K2", 745),
        ("0.33.0", "K3", 140),
        ("0.33.0", "K4", 1070),
        ("0.33.0", "K5", 0),
    ],
)
def test_a_plain_search_finds_a_known_defect(version: str, defect: str, first_seed: int) -> None:
    with open_subject(f"vllm=={version}", "scheduler") as subject:
        examiner = SchedulerExaminer(subject, watch_goals=False)
        programs = (draw_program(Random(first_seed + n), 40) for n in range(20))
        for examination in examiner.examine_many(programs):
            if defect in {violation.known for violation in examination.violations}:
                return
    pytest.fail(f"{defect} was not found")
