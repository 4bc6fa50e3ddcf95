"""Focused loading: in a process of its own each time, since an import hook cannot be undone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from door import OPEN_DOOR

from kvproof.engines.vllm.engine import Engine, provision_release
from model.releases import VERSIONS

INSTALL = f"""
import sys
{OPEN_DOOR}
from pathlib import Path
from kvproof.engines.vllm.inside.loading import StandInCalled, install
install(Path(sys.argv[1]))
"""

# Two requests with one prompt of three blocks, one after the other, on a pool of 24 blocks.
ALLOCATE = """
import json, time, types
start = time.perf_counter()
import torch
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface as kv
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.hisparse.coordinator import get_hisparse_coordinator
from vllm.v1.request import Request
import_seconds = time.perf_counter() - start

BLOCK = 4

def hisparse(count):
    mla = kv.MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    resident = kv.HiSparseResidentSpec(block_size=BLOCK, page_size=16)
    hot = kv.HiSparseHotSpec(block_size=BLOCK, page_size=16, blocks_per_request=2)
    group, role = kv.KVCacheGroupSpec, kv.KVCacheGroupRole
    groups = [group(["source"], mla, role=role.HISPARSE_SOURCE, host_resident=True),
              group(["indexer"], mla, role=role.HISPARSE_INDEXER)]
    groups += [group([f"resident{i}"], resident) for i in range(count)]
    groups += [group([f"hot{i}"], hot, enable_kv_transfer=False) for i in range(count)]
    return kv.KVCacheConfig(num_blocks=24, hisparse_host_num_blocks=16, kv_cache_tensors=[],
                            kv_cache_groups=groups)

def plain():
    full = kv.FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return kv.KVCacheConfig(num_blocks=24, kv_cache_tensors=[],
                            kv_cache_groups=[kv.KVCacheGroupSpec(["layer"], full)])

def step(coordinator, name):
    if hasattr(coordinator, "advance_scheduled"):
        coordinator.advance_scheduled([(name, 12)])
    command = coordinator.build_offload_command()
    done = {t.transfer_id: 1 for t in command.page_transfers} if command else {}
    coordinator.update_spills(done, done)

def run(config, caching):
    manager = KVCacheManager(config, max_model_len=64, scheduler_block_size=BLOCK,
                             hash_block_size=BLOCK, max_in_flight_tokens=16,
                             enable_caching=caching)
    coordinator = get_hisparse_coordinator(manager) if len(config.kv_cache_groups) > 1 else None
    params = types.SimpleNamespace(max_tokens=8, extra_args=None, skip_reading_prefix_cache=None,
                                   structured_outputs=None)
    hasher = get_request_block_hasher(BLOCK, sha256) if caching else None
    hits = []
    for name in ("first", "second"):
        request = Request(name, list(range(12)), params, None, block_hasher=hasher)
        blocks, hit, *_ = manager.get_computed_blocks(request)
        hits.append(hit)
        assert manager.allocate_slots(request, 12 - hit, hit, blocks) is not None
        if coordinator:
            step(coordinator, name)
        request.num_computed_tokens = 12
        request.append_output_token_ids(5)
        assert manager.allocate_slots(request, 1) is not None
        manager.free(request)
    return {"hits": hits, "free": manager.block_pool.get_num_free_blocks()}

init_none_hash(sha256)
groups = int(sys.argv[2])
config = hisparse(groups) if groups else plain()
ours = {name: module for name, module in sys.modules.items() if name.startswith("vllm")}
real = sorted(name for name in ours if vars(ours[name]).get("__file__"))
print(json.dumps({"import_seconds": import_seconds, "real": real,
                  "on": run(config, True), "off": run(config, False)}))
"""


def run_python(python: str | Path, program: str, *arguments: object) -> str:
    command = [str(python), "-P", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=VERSIONS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return provision_release(request.param, "focused")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The smallest tree that is taken for a vLLM: one module under test."""
    write(tmp_path, "v1/core/kv_cache_manager", "")
    return tmp_path


def write(checkout: Path, module: str, text: str) -> None:
    file = checkout / "vllm" / f"{module}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def say(checkout: Path, program: str) -> str:
    return run_python(sys.executable, INSTALL + program, checkout).strip()


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_each_release_allocates_caches_and_frees(engine: Engine, groups: int) -> None:
    told: dict[str, Any] = json.loads(
        run_python(engine.python, INSTALL + ALLOCATE, engine.source, groups)
    )
    # The last block of a prompt is always computed again, so two of three blocks are hits.
    assert told["on"] == {"hits": [0, 8], "free": 23}
    assert told["off"] == {"hits": [0, 0], "free": 23}


def test_each_release_loads_its_allocator_for_real(engine: Engine) -> None:
    told: dict[str, Any] = json.loads(
        run_python(engine.python, INSTALL + ALLOCATE, engine.source, 1)
    )
    assert set(told["real"]) >= {
        "vllm.distributed.kv_events",
        "vllm.utils.hashing",
        "vllm.v1.core.block_pool",
        "vllm.v1.core.kv_cache_coordinator",
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_utils",
        "vllm.v1.core.single_type_kv_cache_manager",
        "vllm.v1.hisparse.block_pool",
        "vllm.v1.hisparse.coordinator",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.request",
    }
    assert not {"vllm.config", "vllm.platforms", "vllm.multimodal"} & set(told["real"])


USES = {
    "torch.zeros(1)": "torch.zeros was called",
    "Missing()": "vllm.elsewhere.Missing was called",
    "Missing.method(1)": "vllm.elsewhere.Missing.method was called",
    "bool(Missing.flag)": "vllm.elsewhere.Missing.flag was tested for truth",
    "list(Missing)": "vllm.elsewhere.Missing was iterated",
    "Missing == 1": "vllm.elsewhere.Missing was compared",
    "Missing < 1": "vllm.elsewhere.Missing was compared",
    "Missing + 1": "vllm.elsewhere.Missing was computed with",
    "Missing['key']": "vllm.elsewhere.Missing was indexed",
    "f'{Missing}'": "vllm.elsewhere.Missing was written out",
    "__import__('pickle').dumps(Missing)": "vllm.elsewhere.Missing was pickled",
    "Derived()": "vllm.elsewhere.Missing was instantiated through Derived",
    "decorated()": "vllm.elsewhere.decorate (called at import) was called",
    "current_platform.is_cuda()": "vllm.platforms.current_platform.is_cuda was called",
}


@pytest.mark.parametrize(("use", "message"), USES.items(), ids=USES)
def test_a_stand_in_that_a_program_uses_is_an_error_by_name(
    checkout: Path, use: str, message: str
) -> None:
    write(
        checkout,
        "v1/core/block_pool",
        "import torch\n"
        "from vllm.elsewhere import Missing, decorate\n"
        "from vllm.platforms import current_platform\n"
        "class Derived(Missing): pass\n"
        "@decorate\n"
        "def decorated(): pass\n"
        f"def use(): return {use}\n",
    )
    program = """
from vllm.v1.core.block_pool import use
try:
    use()
except StandInCalled as error:
    print(error)
"""
    assert say(checkout, program) == f"focused loading: stand-in {message}"


def test_a_stand_in_may_be_named_wherever_python_wants_a_type(checkout: Path) -> None:
    write(
        checkout,
        "v1/core/block_pool",
        "from abc import ABC\n"
        "from dataclasses import dataclass\n"
        "from typing import Generic, TypeVar\n"
        "import numpy.typing as npt\n"
        "from vllm.elsewhere import Missing\n"
        "T = TypeVar('T', bound=Missing)\n"
        "class Derived(Missing, Generic[T], ABC): pass\n"
        "@dataclass(frozen=True)\n"
        "class Data:\n"
        "    one: Missing | None = None\n"
        "    two: 'str | Missing' = Missing.DEFAULT\n"
        "def annotated(a: Missing[int], b: npt.NDArray) -> dict[str, Missing]: ...\n"
        "def check(x): return isinstance(x, Missing), isinstance(x, Missing | int)\n",
    )
    program = """
from vllm.v1.core.block_pool import Data, Derived, check
import copy
assert Data() == Data() == copy.deepcopy(Data())
assert check(3) == (False, True)
print("fine")
"""
    assert say(checkout, program) == "fine"


def test_a_new_module_of_a_checkout_under_test_loads_for_real(checkout: Path) -> None:
    write(checkout, "v1/core/kv_cache_manager", "from vllm.v1.core import helper\n")
    write(checkout, "v1/core/helper", "VALUE = 'real'\n")
    program = "from vllm.v1.core.kv_cache_manager import helper; print(helper.VALUE)"
    assert say(checkout, program) == "real"


def test_other_libraries_still_see_that_a_package_is_missing(checkout: Path) -> None:
    program = """
try:
    import surely_not_installed_anywhere
except ModuleNotFoundError as error:
    print(error)
"""
    assert say(checkout, program) == "No module named 'surely_not_installed_anywhere'"


def test_an_edit_of_the_same_length_in_the_same_second_is_seen(checkout: Path) -> None:
    program = "import vllm.v1.core.kv_cache_manager as m; print(m.VALUE)"
    seen = []
    for value in range(4):
        write(checkout, "v1/core/kv_cache_manager", f"VALUE = {value}\n")
        seen.append(say(checkout, program))
    assert seen == ["0", "1", "2", "3"]


def test_token_lists_of_a_request_are_read_only_views(checkout: Path) -> None:
    program = """
from vllm.v1.utils import ConstantList
tokens = [1]
view = ConstantList(tokens)
tokens.append(2)
assert list(view) == [1, 2] and view[-1] == 2 and len(view) == 2 and view.copy() == [1, 2]
try:
    view.append(3)
except TypeError as error:
    print(error)
"""
    assert say(checkout, program) == "this list is read-only"


def test_a_folder_without_vllm_is_refused(tmp_path: Path) -> None:
    program = "from pathlib import Path\n"
    program += "from kvproof.engines.vllm.inside.loading import install; install(Path('.'))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "holds no vllm/v1/core/kv_cache_manager.py" in done.stderr


def test_focused_loading_refuses_to_come_too_late(checkout: Path) -> None:
    program = """
import vllm.v1.request
try:
    install(Path(sys.argv[1]))
except RuntimeError as error:
    print(error)
"""
    assert say(checkout, program) == "focused loading comes too late: vllm is already imported"
