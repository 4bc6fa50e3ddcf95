"""Exported files of whole engine steps: stand-alone, and of one verdict with the run itself."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from door import OPEN_DOOR
from formatted import assert_formatted

from invariants.violation import Cause
from kvproof.engines.vllm.engine import provision_release
from kvproof.engines.vllm.export.case import export_test
from kvproof.engines.vllm.export.head import ExportError
from kvproof.engines.vllm.export.scheduler import RULES, export_program
from model.groups import Cache
from model.program import Program
from model.releases import VERSIONS
from model.scheduler.actions import (
    Abort,
    Action,
    Arrive,
    CompleteLoad,
    CompleteTransfers,
    Output,
    Reset,
    Step,
)
from model.scheduler.minimum import minimum_pools
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from specs.casefile import CaseFile, Found
from specs.expectations import Expectation


def setup_of(cache: Cache, spare_blocks: int = 0, **fields: Any) -> SchedulerSetup:
    """A small engine, so many blocks above the start-up minimum."""
    sizes = {
        "block_size": 2,
        "max_model_len": 8,
        "max_num_batched_tokens": 4,
        "max_num_seqs": 4,
        "sliding_window": 3 if cache == "sliding" else 0,
    }
    setup = SchedulerSetup(cache=cache, num_blocks=0, **(sizes | fields))
    least = minimum_pools(setup)
    hosts = least.host_blocks + spare_blocks if setup.hisparse else 0
    return replace(setup, num_blocks=least.gpu_blocks + spare_blocks, num_host_blocks=hosts)


# What random search found in released schedulers, as small as it gets.

SHORT_IMPORT: SchedulerProgram = Program(
    setup_of("hisparse", external_store=True), (Arrive(prompt=7, stored=1, asynchronous=True),)
)
ALONE: SchedulerProgram = Program(
    setup_of("hisparse", max_model_len=6, max_num_batched_tokens=3, max_num_seqs=3,
             num_resident_groups=3),
    (Arrive(prompt=5),),
)  # fmt: skip
MAMBA_LOADS: SchedulerProgram = Program(
    setup_of("mamba", 5, max_model_len=12, external_store=True),
    (Arrive(prompt=10, stored=9), Arrive(prompt=11, stored=10)),
)
WINDOW_EDGE: SchedulerProgram = Program(
    setup_of("sliding", max_model_len=7, max_num_batched_tokens=2, max_num_seqs=2,
             sliding_window=1, external_store=True),
    (Arrive(prompt=6, stored=6, asynchronous=True),),
)  # fmt: skip
FAILED_LOAD: SchedulerProgram = Program(
    setup_of("full", max_model_len=4, async_scheduling=True, external_store=True,
             load_failure="recompute"),
    (Arrive(prompt=2, stored=1, lost=1),),
)  # fmt: skip
ON_LOST_DATA: SchedulerProgram = Program(
    setup_of("full", block_size=1, max_model_len=4, max_num_batched_tokens=1, max_num_seqs=1,
             async_scheduling=True, external_store=True, load_failure="recompute"),
    (Arrive(prompt=2, output=2, stored=1, lost=1), Step()),
)  # fmt: skip

DEFECTS: dict[str, tuple[str, SchedulerProgram, str]] = {
    "short_import": ("I16", SHORT_IMPORT, "no request gets a token any more: request 0 is waiting"),
    "alone": ("I16", ALONE, "request 0 runs alone and is preempted"),
    "mamba_loads": ("I4", MAMBA_LOADS, "Cannot get 1 free blocks from the pool"),
    "window_edge": ("I7", WINDOW_EDGE, "request 0 reads page 2 of group 1 from the null block"),
    "failed_load": ("I7", FAILED_LOAD, "request 0 is given [1000003] instead of [1000002]"),
    "on_lost_data": ("I7", ON_LOST_DATA, "a token that was computed on a failed load"),
}
"""Name → rule, program, what its failure says."""

ORDINARY: tuple[Action, ...] = (
    Arrive(shared=5, prompt=5, output=3),
    Step(),
    Arrive(shared=5, prompt=6, output=2, salt=1, priority=1),
    Step(),
    CompleteTransfers(2),
    Output(),
    Arrive(shared=5, prompt=7, stored=5, asynchronous=True, delays=1),
    Step(),
    Step(),
    CompleteLoad(),
    Abort(1),
    Step(),
    Output(),
    Reset(preempt_running=True),
    Reset(),
    Arrive(shared=5, prompt=5, output=2),
    Step(),
)


def ordinary(cache: Cache, store: bool = False, asynchronous: bool = False) -> SchedulerProgram:
    """Something of everything, in an engine that has room for it."""
    fields = {"external_store": store, "async_scheduling": asynchronous}
    return Program(setup_of(cache, 20, **fields), ORDINARY)


KINDS = tuple(product(get_args(Cache), (False, True), (False, True)))


def export(program: SchedulerProgram, rule: str, step: int | None = None) -> str:
    return export_program(program, rule, about="A program.", step=step)


# Running exported files

# Runs each file given as argument as pytest would, under focused loading.
DRIVER = f"""
import contextlib, importlib.util, io, json, sys
{OPEN_DOOR}
from pathlib import Path
from kvproof.engines.vllm.inside.loading import install
install(Path(sys.argv[1]))

def run(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in list(vars(module).items()):
        if name.startswith("test_"):
            value()

outcomes = {{}}
for file in map(Path, sys.argv[2:]):
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run(file)
        outcomes[file.stem] = "passed"
    except Exception as error:
        outcomes[file.stem] = f"failed: {{type(error).__name__}}: {{error}}"
print(json.dumps(outcomes))
"""


def run_focused(version: str, folder: Path, exported: dict[str, str]) -> dict[str, str]:
    engine = provision_release(version, "focused")
    files = [folder / f"{name}.py" for name in exported]
    for file in files:
        file.write_text(exported[file.stem])
    return run_python(engine.python, DRIVER, str(engine.source), *map(str, files))


def run_python(python: Path, code: str, *arguments: str) -> dict[str, str]:
    done = subprocess.run(
        [str(python), "-P", "-c", code, *arguments],
        env=os.environ | {"VLLM_LOGGING_LEVEL": "CRITICAL", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


# The text

TEST = """\
def test_i7() -> None:
    cache = cache_of(full_groups(block_size=2), num_blocks=5)
    scheduler = new_scheduler(Scheduler, vllm_config(), cache)
    loads = LossyLoads(scheduler.connector, block_size=2)
    memory = Memory(Tables(), 2, [Pages(0)])
    rule = NoLostContents(memory, loads)
    engine = Engine(scheduler, rule, [loads])

    # 1. Request 0 arrives: 5 prompt tokens, 2 to generate, salt 3, the first 4 in the store,
    # loaded beside the steps, 1 look-up answered "not known yet" first, its last 1 page lost at
    # first.
    loads.store.contents[0] = External(tokens=4, asynchronous=True, delays=1)
    loads.lost_pages[0] = 1
    engine.arrive(
        "0",
        [*range(1, 4), *range(1000003, 1000010)],
        prompt=5,
        max_tokens=2,
        cache_salt="3",
    )

    # 2. A step is scheduled, and runs.
    engine.step()

    # 3. A load beside the steps completes.
    loads.complete(engine, 0)

    # 4. Up to 2 page transfers to or from the host complete. There are none.

    # 5. The output of the oldest step arrives.
    engine.output()

    # 6. Request 1 arrives: 1 prompt token, 1 to generate.
    engine.arrive("1", [*range(2000000, 2000010)], prompt=1, max_tokens=1)

    # 7. A client gives up.
    abort(engine, 1)

    # 8. The prefix cache is reset; what runs is preempted first.
    reset(engine, preempt_running=True)

    # Everything pending completes, and steps go on until all requests have ended.
    drain(engine, patience=41)
"""


def test_the_test_is_the_programs_actions_in_words_and_calls() -> None:
    arrive = Arrive(shared=3, prompt=5, output=2, salt=3, stored=4, asynchronous=True, delays=1,
                    lost=1)  # fmt: skip
    actions = (arrive, Step(), CompleteLoad(), CompleteTransfers(2), Output(), Arrive(), Abort(1),
               Reset(preempt_running=True))  # fmt: skip
    text = export(Program(setup_of("full", external_store=True), actions), "I7")
    assert "def test_i7" + text.partition("def test_i7")[2].partition("\n\n\n")[0] + "\n" == TEST


def test_what_comes_after_the_step_that_failed_is_left_out() -> None:
    cut = export(ordinary("full"), "I7", step=3)
    assert "# 4. " in cut
    assert "# 5. " not in cut
    assert "drain" not in cut
    for rule in ("I12", "I16"):
        assert "    drain(engine" in export(ordinary("full"), rule, step=3)
    assert "    drain(engine" in export(ordinary("full"), "I7", step=len(ORDINARY))


def test_blocks_are_followed_only_where_the_finding_is_about_what_they_hold() -> None:
    wrong_tokens = export_program(FAILED_LOAD, "I7", about="", cause=Cause.WRONG_TOKENS)
    assert "class Memory" not in wrong_tokens
    assert "instead of {expected}" in wrong_tokens
    for cause in (None, Cause.MISREAD):
        text = export_program(FAILED_LOAD, "I7", about="", cause=cause)
        assert "class Memory" in text


def test_an_exported_file_imports_nothing_but_vllm_and_defines_all_that_it_uses(
    tmp_path: Path,
) -> None:
    imported: set[str] = set()
    for (cache, store, asynchronous), rule in product(KINDS, RULES):
        for step in (None, 4):
            text = export(ordinary(cache, store, asynchronous), rule, step)
            assert max(map(len, text.splitlines())) <= 100, (cache, rule)
            name = f"{cache}_{store}_{asynchronous}_{rule}_{step}.py"
            (tmp_path / name).write_text(text)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Import):
                    imported.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    imported.add(str(node.module).partition(".")[0])
    assert imported <= {
        "__future__", "collections", "dataclasses", "functools", "importlib", "sys", "types",
        "typing", "unittest", "torch", "vllm"
    }  # fmt: skip
    assert_formatted(tmp_path)


def test_text_of_a_trace_cannot_end_the_docstring() -> None:
    hostile = '"""\nimport os\n\\"""\x00 ${rule} $rule #if {braces} ' + "long " * 40
    text = export_program(ALONE, "I16", about=hostile, origin=hostile)
    module = ast.parse(text)
    assert "import os" in str(ast.get_docstring(module))
    assert not any(
        isinstance(node, ast.Import) and node.names[0].name == "os" for node in module.body
    )


# Traces


def test_a_trace_of_the_scheduler_is_exported_with_its_rule_and_origin() -> None:
    found = Found("I16", 1, (), "vllm==0.33.0", "vllm-0.33.0", 7, "0")
    text = export_test(CaseFile(1, "A short import.", SHORT_IMPORT, found))
    head = ast.get_docstring(ast.parse(text))
    assert head is not None
    assert head.startswith(
        "A short import.\n\n"
        "I16: With finite work every request ends, and one that is alone is never preempted.\n\n"
        "Written by kvproof from a trace that it found on vllm==0.33.0 (seed 7).\n"
    )


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        (None, "names no rule"),
        (Expectation("hang", ("vllm==0.33.0",)), "rule hang has no stand-alone predicate"),
        (Expectation("lockstep", ("vllm==0.33.0",)), "rule lockstep has no stand-alone predicate"),
    ],
)
def test_a_trace_that_cannot_stand_alone_is_refused_in_one_line(
    expect: Expectation | None, message: str
) -> None:
    trace = CaseFile(1, "A trace.", SHORT_IMPORT, None, expect)
    with pytest.raises(ExportError, match=message) as raised:
        export_test(trace)
    assert "\n" not in str(raised.value)


# What the files say


@pytest.mark.parametrize("version", VERSIONS)
def test_what_search_found_fails_and_says_why(version: str, tmp_path: Path) -> None:
    exported = {name: export(program, rule) for name, (rule, program, _) in DEFECTS.items()}
    outcomes = run_focused(version, tmp_path, exported)
    if version == "0.30.0":
        assert outcomes.pop("alone") == "passed"
    unlike = {n: said for n, said in outcomes.items() if f" {DEFECTS[n][2]}" not in said}
    assert unlike == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ordinary_program_passes_under_every_rule(version: str, tmp_path: Path) -> None:
    exported = {
        f"{cache}_{store}_{asynchronous}_{rule}": export(ordinary(cache, store, asynchronous), rule)
        for (cache, store, asynchronous), rule in product(KINDS, RULES)
    }
    outcomes = run_focused(version, tmp_path, exported)
    assert len(outcomes) == len(KINDS) * len(RULES)
    assert {name: said for name, said in outcomes.items() if said != "passed"} == {}


def test_more_requests_than_may_be_alive_at_once_are_refused_as_in_the_run(tmp_path: Path) -> None:
    program: SchedulerProgram = Program(
        setup_of("full", 20), (*[Arrive(prompt=3)] * 11, Step(), Abort(7))
    )
    text = export(program, "I16")
    assert run_focused("0.33.0", tmp_path, {"many": text}) == {"many": "passed"}
    full = text.replace("    abort(engine, 7)", "    assert len(engine.live) < 8")
    assert run_focused("0.33.0", tmp_path, {"full": full})["full"].startswith("failed: Assertion")


# What breaks each predicate, done right before the rule is judged.
POOL = "engine.scheduler.kv_cache_manager.block_pool"
JUDGED = "        self.check("
FAULTS = {
    "I1": (JUDGED, f"        {POOL}.blocks[1].ref_cnt = 0\n{JUDGED}", "Assertion"),
    "I2": (
        "        held = [",
        f"        {POOL}.blocks[1].ref_cnt += 1\n        held = [",
        "Assertion",
    ),
    "I10": (
        JUDGED,
        f"        {POOL}.cached_block_hash_to_block._cache.clear()\n{JUDGED}",
        "Assertion",
    ),
    "I13": (
        JUDGED,
        f"        {POOL}.free_block_queue.append({POOL}.null_block)\n{JUDGED}",
        "Assertion",
    ),
    "I12": (
        "    check_quiescence(",
        f"    {POOL}.get_new_blocks(1)\n    check_quiescence(",
        "these blocks are not free",
    ),
    "I15": (
        "self.used[step.number] = set()",
        'self.used[step.number] = {("gpu", block) for block in range(1000)}',
        "which a step in flight uses",
    ),
    "I17": ("request.num_computed_tokens,", "request.num_computed_tokens - 99,", "request 0: ("),
    "I7": (
        "self.memory.run(step.output",
        "self.memory.holds.clear() or self.memory.run(step.output",
        "which holds nothing instead of",
    ),
}


@pytest.mark.parametrize("cache", get_args(Cache))
def test_each_predicate_sees_its_fault(cache: Cache, tmp_path: Path) -> None:
    program = ordinary(cache, store=True, asynchronous=True)
    exported = {}
    for rule, (judged, fault, _) in FAULTS.items():
        text = export(program, rule)
        exported[rule] = text.replace(judged, fault)
        assert exported[rule] != text, rule
    outcomes = run_focused("0.33.0", tmp_path, exported)
    unseen = {rule: said for rule, said in outcomes.items() if FAULTS[rule][2] not in said}
    assert unseen == {}


def test_a_preempted_request_that_keeps_its_blocks_is_seen(tmp_path: Path) -> None:
    text = export(ALONE, "I17")
    broken = text.replace("for block in row if not block.is_null]", "for block in row] or [1]")
    assert broken != text
    said = run_focused("0.33.0", tmp_path, {"broken": broken})["broken"]
    assert "request 0 was preempted and still holds [1]" in said


# One verdict with the run itself, on drawn programs, some with an engine that lies to its workers.

COMPARE = f"""
import contextlib, importlib, io, json, sys, types
{OPEN_DOOR}
from pathlib import Path
from random import Random
from kvproof.engines.vllm.inside.loading import install
install(Path(sys.argv[1]))
from vllm.v1.core import kv_cache_utils
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from kvproof.engines.vllm.export.scheduler import HARNESS, body_of, export_program
from invariants.scheduler.progress import drain
from invariants.scheduler.judge import Judge
from specs.scheduler.generator import draw_program

def first_breach(program):
    judge = Judge(program.configuration, EngineScheduler(program.configuration), 1)
    try:
        for action in program.actions:
            judge.do(action)
            if judge.violations:
                return judge.violations[0]
        drain(judge)
        return judge.violations[0] if judge.violations else None
    except Exception as error:
        return error

def verdict(text):
    module = sys.modules["exported"] = types.ModuleType("exported")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "exported", "exec"), vars(module))
            next(value for name, value in vars(module).items() if name.startswith("test_"))()
    except Exception as error:
        return error
    return None

def as_it_stands(program, violation):
    # The same test on the modules themselves.
    names = {{}}
    for module in HARNESS:
        names |= vars(importlib.import_module(module))
    body = body_of(program, violation.rule, violation.step, violation.cause)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(body, "body", "exec"), names)
            next(value for name, value in names.items() if name.startswith("test_"))()
    except Exception as error:
        return error
    return None

def compare(seed, lie, cache):
    program = draw_program(Random(seed), 40, {{"cache": cache}})
    violation = first_breach(program)
    if isinstance(violation, Exception):
        said = verdict(export_program(program, "I19", about=""))
        return "raises", repr(said) == repr(violation)
    if violation is None:
        return "clean", verdict(export_program(program, "I7", about="")) is None
    text = export_program(program, violation.rule, about="", step=violation.step,
                          cause=violation.cause)
    said, here = verdict(text), as_it_stands(program, violation)
    return violation.rule, isinstance(said, AssertionError) and repr(said) == repr(here)

weak = kv_cache_utils.hash_block_tokens
seen, unlike = set(), []
for lie in (False, True):
    if lie:  # all blocks have one hash, so that requests hit what is not theirs
        kv_cache_utils.hash_block_tokens = lambda hash, *_: weak(hash, None, (7,), None)
    for cache in ("full", "sliding", "mamba", "hisparse"):
        for seed in range(10):
            kind, alike = compare(seed, lie, cache)
            seen.add((cache, lie, kind))
            unlike += [] if alike else [(cache, lie, seed, kind)]
print(json.dumps({{"seen": sorted(map(list, seen)), "unlike": unlike}}))
"""


@pytest.mark.parametrize("version", ["0.31.0", "0.33.0"])
def test_an_exported_file_fails_exactly_where_the_run_found_a_breach(version: str) -> None:
    engine = provision_release(version, "focused")
    answer: dict[str, Any] = run_python(engine.python, COMPARE, str(engine.source))
    assert answer["unlike"] == []
    for cache in get_args(Cache):
        assert [cache, False, "clean"] in answer["seen"]
        assert [cache, True, "I7"] in answer["seen"]


# Full loading


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_plain_pytest_with_full_loading_says_the_same(version: str, tmp_path: Path) -> None:
    engine = provision_release(version, "full")
    exported = {name: export(program, rule) for name, (rule, program, _) in DEFECTS.items()}
    for cache, store, asynchronous in KINDS:
        name = f"clean_{cache}_{store}_{asynchronous}"
        exported[name] = export(ordinary(cache, store, asynchronous), "I7")
    for name, text in exported.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    # The engine's environment has no pytest: take this one, behind everything of its own.
    start = f"import sys; sys.path.append({str(Path(pytest.__file__).parents[1])!r}); import pytest"
    arguments = [str(tmp_path), "-q", "-rA", "--tb=short", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [str(engine.python), "-c", f"{start}; raise SystemExit(pytest.main({arguments!r}))"],
        env=os.environ | {"PYTHONPATH": str(engine.source), "VLLM_LOGGING_LEVEL": "CRITICAL"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = sorted(
        line.split("::")[0].split("test_", 1)[1].removesuffix(".py")
        for line in done.stdout.splitlines()
        if line.startswith("FAILED ")
    )
    absent = {"alone"} if version == "0.30.0" else set()
    assert failed == sorted(set(DEFECTS) - absent), done.stdout + done.stderr
    assert f"{len(exported) - len(failed)} passed" in done.stdout
    for name in failed:
        assert DEFECTS[name][2] in done.stdout
