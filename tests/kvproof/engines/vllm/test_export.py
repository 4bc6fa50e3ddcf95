"""Exported files: stand-alone, failing where the rule is broken, passing where it holds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from door import OPEN_DOOR
from formatted import assert_formatted

from kvproof.engines.vllm.engine import provision_release
from kvproof.engines.vllm.export.case import export_test
from kvproof.engines.vllm.export.head import ExportError
from model.manager.actions import Admit, Arrive, EndStep, Finish
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS
from specs.casefile import CaseFile, Found, read_case
from specs.expectations import Expectation
from specs.manager.generator import draw_program

ROOT = Path(__file__).parents[4]
K1 = read_case(ROOT / "specs" / "corpus" / "manager" / "k1-adoption-before-allocation.json")
STATE_RULES = ("I1", "I2", "I10", "I13")

# Runs each file given as argument as pytest would, under focused loading.
DRIVER = f"""
import json, runpy, sys
from unittest import SkipTest
{OPEN_DOOR}
from pathlib import Path
from kvproof.engines.vllm.inside.loading import install
install(Path(sys.argv[1]))
outcomes = {{}}
for file in sys.argv[2:]:
    try:
        for name, value in runpy.run_path(file).items():
            if name.startswith("test_"):
                value()
        outcome = "passed"
    except SkipTest as reason:
        outcome = f"skipped: {{reason}}"
    except Exception as error:
        outcome = f"failed: {{type(error).__name__}}: {{error}}"
    outcomes[Path(file).stem] = outcome
print(json.dumps(outcomes))
"""


def run_focused(version: str, folder: Path, exported: dict[str, str]) -> dict[str, str]:
    engine = provision_release(version, "focused")
    files = [folder / f"{name}.py" for name in exported]
    for file in files:
        file.write_text(exported[file.stem])
    command = [str(engine.python), "-P", "-c", DRIVER, str(engine.source), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def found(
    program: ManagerProgram, rule: str, dialect: str = "vllm-0.33.0", seed: int = 1
) -> CaseFile:
    last = len(program.actions) - 1
    return CaseFile(1, "A trace.", program, Found(rule, last, (), dialect, dialect, seed, "0"))


STEPS = """\
def test_i4() -> None:
    manager = new_manager(
        hisparse_groups(block_size=16, resident_groups=1, hot_blocks=1),
        num_blocks=8,
        num_host_blocks=5,
        max_model_len=48,
        max_in_flight_tokens=32,
    )
    coordinator = get_hisparse_coordinator(manager)

    # 1. Arrive(shared=47, prompt=47)
    request_0 = new_request("0", [*range(1, 48)], block_size=16, max_tokens=48)

    # 2. Admit(tokens=16)
    hit, hit_tokens, *_ = manager.get_computed_blocks(request_0)
    expect(2, hit_tokens, 0)
    new = manager.allocate_slots(
        request_0,
        16,
        num_new_computed_tokens=hit_tokens,
        new_computed_blocks=hit,
        full_sequence_must_fit=True,
        has_scheduled_reqs=False,
    )
    expect(2, new is not None, True)

    # 3. EndStep()
    expect(3, end_step(coordinator, [("0", 16)]), [0])
    coordinator.update_spills({0: 1}, {})

    # 4. CompleteTransfers()
    coordinator.update_spills({}, {0: 1})

    # 5. Extend(tokens=31)
    request_0.status = RequestStatus.RUNNING
    request_0.num_computed_tokens = 16
    new = manager.allocate_slots(request_0, 31)
    expect(5, new is not None, True)

    # 6. EndStep()
    expect(6, end_step(coordinator, [("0", 47)]), [1])
    request_0.append_output_token_ids(1000047)
    request_0.status = RequestStatus.FINISHED_STOPPED
    request_0.num_computed_tokens = 47
    manager.free(request_0)
    coordinator.update_spills({1: 1}, {})

    # 7. Arrive(shared=33, prompt=33)
    request_1 = new_request("1", [*range(1, 34)], block_size=16, max_tokens=48)

    # 8. Admit(tokens=17)
    hit, hit_tokens, *_ = manager.get_computed_blocks(request_1)
    expect(8, hit_tokens, 16)
    # It answers with blocks or with None; it must not raise.
    new = manager.allocate_slots(
        request_1,
        17,
        num_new_computed_tokens=hit_tokens,
        new_computed_blocks=hit,
        full_sequence_must_fit=True,
        has_scheduled_reqs=False,
    )
"""


def test_the_steps_are_calls_of_the_allocator_in_the_order_of_the_engine() -> None:
    assert f"\n\n\n{STEPS}\n\n" in export_test(K1)


@pytest.mark.parametrize("rule", [*STATE_RULES, "I4", "I12", "I14", "I19", "crash"])
@pytest.mark.parametrize("hisparse", [True, False], ids=["hisparse", "plain"])
def test_an_exported_file_imports_nothing_but_vllm_and_is_formatted(
    tmp_path: Path, rule: str, hisparse: bool
) -> None:
    configuration = Configuration(num_host_blocks=12 if hisparse else 0)
    program: ManagerProgram = Program(configuration, (Arrive(prompt=9), Admit(tokens=9), EndStep()))
    text = export_test(found(program, rule))
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported <= {
        "__future__", "collections", "types", "typing", "unittest", "torch", "vllm"
    }  # fmt: skip
    assert max(map(len, text.splitlines())) <= 100
    (tmp_path / "exported.py").write_text(text)
    assert_formatted(tmp_path)


def test_the_crash_fails_on_the_release_that_has_it_and_passes_on_the_others(
    tmp_path: Path,
) -> None:
    exported = {"k1": export_test(K1)}
    outcomes = {
        version: run_focused(version, tmp_path, exported)["k1"]
        for version in ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
    }
    assert outcomes == {
        "0.30.0": "failed: ValueError: Cannot get 1 free blocks from the pool",
        "0.31.0": "passed",
        "0.32.0": "passed",
        "0.33.0": "passed",
    }


@pytest.mark.full
@pytest.mark.parametrize(("version", "code"), [("0.30.0", 1), ("0.33.0", 0)])
def test_the_crash_is_the_same_in_plain_pytest_with_full_loading(
    tmp_path: Path, version: str, code: int
) -> None:
    engine = provision_release(version, "full")
    file = tmp_path / "test_exported.py"
    file.write_text(export_test(K1))
    # The engine's environment has no pytest: take this one, behind everything of its own.
    start = f"import sys; sys.path.append({str(Path(pytest.__file__).parents[1])!r}); import pytest"
    arguments = [str(file), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [str(engine.python), "-c", f"{start}; raise SystemExit(pytest.main({arguments!r}))"],
        env=os.environ | {"PYTHONPATH": str(engine.source), "VLLM_LOGGING_LEVEL": "ERROR"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    summary = "1 failed" if code else "1 passed"
    assert summary in done.stdout
    assert ("ValueError: Cannot get 1 free blocks from the pool" in done.stdout) == bool(code)


@pytest.mark.parametrize("version", ["0.30.0", "0.33.0"])
def test_what_holds_on_a_release_passes_there_with_no_step_going_another_way(
    tmp_path: Path, version: str
) -> None:
    dialect = DIALECTS[f"vllm-{version}"]
    exported = {
        f"{rule}_{seed}": export_test(
            found(draw_program(Random(seed), dialect, 60), rule, dialect.name)
        )
        for seed in range(25)
        for rule in (*STATE_RULES, "I4", "I19")
    }
    outcomes = run_focused(version, tmp_path, exported)
    assert {name: said for name, said in outcomes.items() if said != "passed"} == {}


# What breaks each predicate, done to the pool right before the rule is judged.
FAULTS = {
    "I1": "manager.block_pool.blocks[1].ref_cnt = 0",
    "I2": "manager.block_pool.blocks[1].ref_cnt += 1",
    "I10": "manager.block_pool.cached_block_hash_to_block._cache.clear()",
    "I12": "pass  # a request still holds blocks",
    "I13": "manager.block_pool.free_block_queue.append(manager.block_pool.null_block)",
    "I14": "manager.coordinator.single_type_managers[0].req_to_blocks['0'].pop()",
}


def test_each_predicate_sees_its_fault(tmp_path: Path) -> None:
    program: ManagerProgram = Program(
        Configuration(), (Arrive(prompt=9), Admit(tokens=9), EndStep())
    )
    exported = {}
    for rule, fault in FAULTS.items():
        text = export_test(found(program, rule))
        exported[rule] = text.replace("    check_", f"    {fault}\n    check_", 1)
        assert exported[rule] != text
    outcomes = run_focused("0.33.0", tmp_path, exported)
    unseen = [rule for rule, said in outcomes.items() if not said.startswith("failed: Assertion")]
    assert unseen == []


def test_rules_that_hold_at_the_end_of_a_life_pass(tmp_path: Path) -> None:
    alive = (Arrive(prompt=9), Admit(tokens=9), EndStep())
    configuration = Configuration(num_host_blocks=0)
    exported = {
        "I14": export_test(found(Program(Configuration(), alive), "I14")),
        "I12": export_test(found(Program(configuration, (*alive, Finish())), "I12")),
    }
    assert set(run_focused("0.33.0", tmp_path, exported).values()) == {"passed"}


def test_a_promise_that_is_not_kept_fails_even_when_nothing_raises(tmp_path: Path) -> None:
    program: ManagerProgram = Program(Configuration(), (Arrive(prompt=9), Admit(tokens=9)))
    kept = export_test(found(program, "I4"))
    broken = kept.replace("    new = manager", "    promised.append(0)\n    new = manager").replace(
        "promised.append(predict(*args, **kwargs))", "promised.append(0)"
    )
    outcomes = run_focused("0.33.0", tmp_path, {"kept": kept, "broken": broken})
    assert outcomes == {"kept": "passed", "broken": "failed: AssertionError: "}


def test_a_release_that_goes_another_way_is_a_skip(tmp_path: Path) -> None:
    text = export_test(K1).replace("expect(3, ", "expect(3, [9] + ")
    outcome = run_focused("0.33.0", tmp_path, {"k1": text})["k1"]
    assert outcome == "skipped: step 3 goes another way here: [9, 0] instead of [0]"


def test_text_of_a_trace_cannot_end_the_docstring() -> None:
    hostile = '"""\nimport os\n\\"""\x00 ${rule} {braces} ' + "long " * 40
    text = export_test(
        replace(K1, about=hostile, found=Found("I4", 7, (), hostile, "vllm-0.30.0", 7, "0"))
    )
    module = ast.parse(text)
    assert "import os" in str(ast.get_docstring(module))
    assert not any(
        isinstance(node, ast.Import) and node.names[0].name == "os" for node in module.body
    )


REFUSED = [
    (replace(K1, expect=None), "names no rule"),
    (replace(K1, expect=Expectation("I7", ("vllm==0.30.0",))), "rule I7 has no stand-alone pred"),
    (replace(K1, expect=Expectation("lockstep", ("vllm==0.30.0",))), "rule lockstep has no stand-"),
    (replace(K1, expect=Expectation("I4", ("vllm==9.9.9", "vllm@/x"))), "no dialect is known for"),
    (replace(K1, expect=Expectation("I4", ())), "no dialect is known for this trace"),
    (replace(K1, expect=Expectation("I6", ("vllm==0.33.0",))), "the last step is no refused"),
]


@pytest.mark.parametrize(("trace", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_trace_that_cannot_stand_alone_is_refused_in_one_line(
    trace: CaseFile, message: str
) -> None:
    with pytest.raises(ExportError, match=message) as raised:
        export_test(trace)
    assert "\n" not in str(raised.value)
