"""The whole scheduler of each release runs, alike in both ways of loading.

In a process of its own each time, since an import hook cannot be undone.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from door import OPEN_DOOR

from kvproof.engines.vllm.engine import Engine, provision_release
from kvproof.engines.vllm.environment import Load
from model.releases import VERSIONS

CACHES = ("full", "sliding", "mamba", "hisparse", "hisparse2", "store", "hisparse+store")

LOAD = f"""
import sys
{OPEN_DOOR}
from pathlib import Path
source, load, *arguments = sys.argv[1:]
if load == "focused":
    from kvproof.engines.vllm.inside.loading import StandInCalled, install
    install(Path(source))
else:
    from kvproof.engines.vllm.inside.loading import leave_out_gpu_code
    sys.path.insert(0, source)
    leave_out_gpu_code()
"""

# Three requests, two with a common prefix, on tiny pools, in the engine's own order: schedule,
# execute, aborts, update.  Transfers complete two steps late, loads one; the third request is
# aborted.
RUN = """
import json
from dataclasses import asdict
from kvproof.engines.vllm.inside.configuration import startup_minimum
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from model.scheduler.plan import External, NewRequest, StepOutcome
from model.scheduler.setup import SchedulerSetup

CACHES = {
    "full": {"cache": "full"},
    "sliding": {"cache": "sliding", "sliding_window": 6},
    "mamba": {"cache": "mamba"},
    "hisparse": {"cache": "hisparse", "num_host_blocks": 24},
    "hisparse2": {"cache": "hisparse", "num_host_blocks": 24, "num_resident_groups": 2},
    "store": {"cache": "full", "external_store": True},
    "hisparse+store": {"cache": "hisparse", "num_host_blocks": 24, "external_store": True},
}

def setup_of(name, asynchronous):
    settings = dict(block_size=4, max_model_len=40, max_num_batched_tokens=12, max_num_seqs=3,
                    async_scheduling=asynchronous, **CACHES[name])
    least = startup_minimum(SchedulerSetup(num_blocks=1, **settings))
    return SchedulerSetup(num_blocks=least.gpu_blocks + 6, **settings)

def pools(engine):
    return [(len(pool.counts), pool.num_free) for pool in engine.pool_states()]

def run(setup):
    engine = EngineScheduler(setup)
    empty = pools(engine)
    steps, outputs, flying, late, loading = [], [], [], [], []
    for number in range(3):
        stored = External(12, asynchronous=True) if number == 1 else External()
        tokens = (int(number == 1), *range(2, 15), *[100 + number] * (1 + number))
        engine.add(NewRequest(number, tokens, max_tokens=4 + number, external=stored))
    while engine.has_requests() or flying:
        assert len(steps) < 100, (engine.statuses(), engine.pending())
        if engine.has_requests() and len(flying) < engine.steps_in_flight_max:
            plan = engine.schedule()
            steps.append(asdict(plan))
            flying.append(plan)
            late.append([transfer.id for transfer in plan.transfers])
            if len(flying) < engine.steps_in_flight_max and (plan.tokens or engine.has_requests()):
                continue
        plan = flying.pop(0)
        if plan.step == 3:
            outputs.append(engine.abort([2]))
        done = late.pop(0) if len(late) > 2 or not plan.tokens and late else ()
        received, loading = loading, [load.request for load in plan.loads if load.asynchronous]
        outcome = StepOutcome(
            sampled={share.request: [7] for share in plan.scheduled if share.samples},
            enqueued={transfer.id: 1 for transfer in plan.transfers},
            completed=dict.fromkeys(done, 1),
            host_copies_done=[target for _, target in plan.host_copies],
            received=received,
        )
        outputs.append([asdict(output) for output in engine.update(plan.step, outcome)])
    return {"setup": asdict(setup), "steps": steps, "outputs": outputs,
            "left": len(engine.statuses()), "pending": asdict(engine.pending()),
            "drained": pools(engine) == empty}
"""
RUN_ALL = """
names, kinds = arguments[0].split(), (False, True)
print(json.dumps([run(setup_of(name, kind)) for name in names for kind in kinds]))
"""


def run_python(engine: Engine, load: Load, program: str, *arguments: str) -> str:
    command = [str(engine.python), "-P", "-c", LOAD + program, str(engine.source), load, *arguments]
    environment = os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def run_all(version: str, load: Load) -> list[dict[str, Any]]:
    engine = provision_release(version, load)
    told: list[dict[str, Any]] = json.loads(
        run_python(engine, load, RUN + RUN_ALL, " ".join(CACHES))
    )
    assert len(told) == 2 * len(CACHES)
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_both_schedulers_of_each_release_finish_their_requests_and_drain(version: str) -> None:
    for told in run_all(version, "focused"):
        ended = [
            (output["request"], output["finish"], len(output["tokens"]))
            for outputs in told["outputs"]
            for output in outputs
            if isinstance(output, dict) and output["finish"]
        ]
        assert sorted(ended) == [(0, "length", 1), (1, "length", 1)], told["setup"]
        assert [2] in told["outputs"]
        assert told["left"] == 0
        assert told["drained"], told["setup"]
        assert all(value == [] for value in told["pending"].values())
        if told["setup"]["cache"] == "hisparse":
            assert any(step["transfers"] for step in told["steps"])
            assert any(step["mirrors"] for step in told["steps"])
        loads = [load for step in told["steps"] for load in step["loads"]]
        expected = [(1, 0, 12)] if told["setup"]["external_store"] else []
        assert [(load["request"], load["start"], load["tokens"]) for load in loads] == expected


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_focused_and_full_loading_schedule_alike(version: str) -> None:
    assert run_all(version, "focused") == run_all(version, "full")


# Twins that must fail

UNUSED = """
from vllm.distributed.kv_transfer.kv_connector.v1.hisparse.connector import HiSparseConnector
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from kvproof.engines.vllm.inside.configuration import cache_config, engine_config
setup = setup_of("hisparse", False)
try:
    HiSparseConnector(engine_config(setup), KVConnectorRole.WORKER, cache_config(setup))
except StandInCalled as error:
    print(error)
"""


def test_the_workers_half_is_a_stand_in_and_an_error_when_it_is_called() -> None:
    engine = provision_release("0.33.0", "focused")
    told = run_python(engine, "focused", RUN + UNUSED)
    worker = "vllm.distributed.kv_transfer.kv_connector.v1.hisparse.worker"
    assert told == f"focused loading: stand-in {worker}.HiSparseConnectorWorker was called"


LOST = """
from dataclasses import replace
engine = EngineScheduler(setup_of("hisparse", False))
engine.add(NewRequest(0, tuple(range(14)), max_tokens=2))
while engine.statuses():
    plan = engine.schedule()
    sampled = {share.request: [7] for share in plan.scheduled if share.samples}
    engine.update(plan.step, StepOutcome(sampled=sampled))
print(engine.has_requests(), bool(engine.pending().transfers),
      [free < total - 1 for total, free in pools(engine)])
"""


def test_transfers_that_nobody_reports_keep_blocks_and_the_engine_awake() -> None:
    engine = provision_release("0.33.0", "focused")
    assert run_python(engine, "focused", RUN + LOST) == "True True [True, True]"


CAPTURED = """
from types import SimpleNamespace
from kvproof.engines.vllm.inside.capture import Capture
from kvproof.engines.vllm.inside.names import KeyNames
engine = EngineScheduler(setup_of("hisparse", False))
names = {}
capture = Capture(engine.view, {"0": 0}, KeyNames(names))
engine.add(NewRequest(0, tuple(range(14)), max_tokens=1))
for block_hash in engine.scheduler.requests["0"].block_hashes:
    names.setdefault(bytes(block_hash), len(names) + 1)
plan = engine.schedule()
view = engine.statuses()[0]
facts = SimpleNamespace(id=0, status=0, num_tokens=view.tokens, computed=view.computed,
                        contents=list(names.values()))
snapshot = capture.snapshot([facts], {0: plan.tokens}, [])
print(json.dumps([snapshot.gpu.num_free == pools(engine)[0][1], len(snapshot.transfers),
                  len(snapshot.requests[0].tables[1]), snapshot.requests[0].scheduled]))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_scheduler_gives_the_snapshots_of_the_manager_level(version: str) -> None:
    engine = provision_release(version, "focused")
    assert json.loads(run_python(engine, "focused", RUN + CAPTURED)) == [True, 3, 3, 12]


REFUSED = """
from dataclasses import replace
from model.scheduler.setup import NotStartableError
good = setup_of("hisparse", False)
least = startup_minimum(good)
EngineScheduler(replace(good, num_blocks=least.gpu_blocks, num_host_blocks=least.host_blocks))
bad = [{"num_blocks": least.gpu_blocks - 1}, {"num_host_blocks": least.host_blocks - 1},
       {"reserve_full_isl": False}, {"max_num_seqs": 13}, {"long_prefill_threshold": 41},
       {"cache": "mamba", "prefix_caching": False}]
refused = 0
for change in bad:
    try:
        EngineScheduler(replace(good, **change))
    except NotStartableError:
        refused += 1
print(refused == len(bad))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_setup_below_the_engines_own_minimum_is_refused(version: str) -> None:
    engine = provision_release(version, "focused")
    assert run_python(engine, "focused", RUN + REFUSED) == "True"


MANAGER = """
import kvproof.engines.vllm.inside.allocator
print(sorted(name for name in sys.modules if name.startswith("vllm.v1.core.sched.s")))
"""


def test_the_manager_level_does_not_load_the_scheduler() -> None:
    engine = provision_release("0.33.0", "focused")
    assert run_python(engine, "focused", MANAGER) == "[]"


# The configuration, against the engine's own classes

REAL_CONFIG = """
import os
from types import SimpleNamespace
from kvproof.engines.vllm.inside.configuration import engine_config
from vllm.config import CacheConfig, DeviceConfig, ParallelConfig, SchedulerConfig, VllmConfig

def real_config(setup):
    os.environ.pop("VLLM_USE_V2_MODEL_RUNNER", None)  # it makes demands when a model is missing
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=setup.max_num_seqs,
            max_num_batched_tokens=setup.max_num_batched_tokens,
            max_model_len=setup.max_model_len,
            policy=setup.policy,
            async_scheduling=setup.async_scheduling,
            long_prefill_token_threshold=setup.long_prefill_threshold,
            scheduler_reserve_full_isl=setup.reserve_full_isl,
            watermark=engine_config(setup).scheduler_config.watermark,
            is_encoder_decoder=False,
        ),
        cache_config=CacheConfig(
            block_size=setup.block_size, enable_prefix_caching=setup.prefix_caching
        ),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=engine_config(setup).kv_transfer_config,
    )
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # what a GPU with Triton gives
    return config

def differences(ours, theirs, path=""):
    for name, value in vars(ours).items():
        if not hasattr(theirs, name):
            yield path + name, "missing"
        elif isinstance(value, SimpleNamespace) and getattr(theirs, name) is not None:
            yield from differences(value, getattr(theirs, name), f"{path}{name}.")
        elif callable(value):
            assert value() == getattr(theirs, name)()
        elif value != getattr(theirs, name):
            yield path + name, repr(getattr(theirs, name))

settings = dict(cache="full", block_size=4, num_blocks=60, max_model_len=40,
                max_num_batched_tokens=16, max_num_seqs=4)
setups = [
    SchedulerSetup(**settings),
    SchedulerSetup(**settings, async_scheduling=True, policy="priority", long_prefill_threshold=8,
                   watermark_blocks=2, prefix_caching=False, reserve_full_isl=False),
    SchedulerSetup(**settings, async_scheduling=True, external_store=True,
                   load_failure="recompute"),
]
print(json.dumps([dict(differences(engine_config(s), real_config(s))) for s in setups]))
"""

# What a CPU without a model cannot give: the profiled pool, the model, a GPU's hybrid caches.
EXPECTED = {
    "cache_config.num_gpu_blocks": "None",
    "model_config": "None",
    "scheduler_config.disable_hybrid_kv_cache_manager": "True",
}


@pytest.mark.full
def test_the_configuration_has_the_values_of_a_real_one() -> None:
    missing_everywhere: set[str] | None = None
    for version in VERSIONS:
        engine = provision_release(version, "full")
        missing = set()
        for told in json.loads(run_python(engine, "full", RUN + REAL_CONFIG)):
            missing |= {name for name, value in told.items() if value == "missing"}
            present = {name: value for name, value in told.items() if value != "missing"}
            assert present == EXPECTED
        missing_everywhere = missing if missing_everywhere is None else missing_everywhere & missing
    assert missing_everywhere == set()
