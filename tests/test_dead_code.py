"""What nothing but a test uses is dead: vulture reads the sources without the tests."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
SCANNED = ("model", "invariants", "specs", "kvproof", "benchmarks", "scripts")
INSIDE = "kvproof/engines/vllm/inside"

ALIVE = {
    "invariants/proofs/contracts.py:*": "CrossHair finds the contracts by their docstrings",
    f"{INSIDE}/store.py:*": "the engine calls its connector",
    f"{INSIDE}/loading.py:*": "the import system calls its finders, loaders and modules",
    f"{INSIDE}/sources.py:*": "as above",
    "invariants/scheduler/effort.py:f_trace_*": "the interpreter reads them of its frames",
    f"{INSIDE}/stand_ins.py:*_once": "the engine calls its logger",
    f"{INSIDE}/scheduler.py:accept_tokens": "the engine calls its grammars",
    f"{INSIDE}/scheduler.py:supports_multimodal_inputs": "the engine asks its registry",
    "kvproof/commands/*.py:*_command": "the command line imports the one that is called",
    "kvproof/provision/finder.py:auth": "the client reads it at every request",
    "kvproof/reports/streams.py:width": "rich reads it of its console",
    "specs/exhaustive/checkpoint.py:persistent_*": "pickle calls them",
    "specs/manager/machine.py:disturb": "Hypothesis calls the rules of its machines",
    "specs/scheduler/machine.py:one_comes": "as above",
    "specs/*/machine.py:teardown": "Hypothesis calls it after every run",
    "kvproof/search/outcome.py:__call__": "a protocol names what it wants by it",
    "benchmarks/shrinking.py:_hypothesis_internal_use_settings": "Hypothesis reads it of a test",
    "benchmarks/agreement.py:formatter_class": "argparse reads it",
    "invariants/conformance/records.py:kvproof_calls": "a line of a call log is read by names",
    "specs/casefile.py:kvproof": "a case file is written by names",
    "model/scheduler/plan.py:all_resident": "a digest takes all of a plan",
    "invariants/proofs/refinement/simulation.py:simulate": "the refinement is checked by tests",
    "invariants/proofs/transition_system/interpretation.py:claims": "as above",
    "kvproof/engines/vllm/export/harness/*": "what an exported file is composed of",
}
"""``file:name`` of what is used where vulture cannot see it, and by whom."""


def unused(folders: list[Path], root: Path) -> set[str]:
    """What no scanned file uses, as ``file:name``."""
    vulture = Vulture()
    vulture.scavenge([str(folder) for folder in folders])
    return {
        f"{Path(item.filename).resolve().relative_to(root).as_posix()}:{item.name}"
        for item in vulture.get_unused_code(min_confidence=60)
    }


def dead(found: set[str], alive: Mapping[str, str]) -> set[str]:
    return {name for name in found if not any(fnmatch(name, pattern) for pattern in alive)}


def idle(found: set[str], alive: Mapping[str, str]) -> set[str]:
    """Patterns that excuse nothing."""
    return {pattern for pattern in alive if not any(fnmatch(name, pattern) for name in found)}


def test_nothing_is_dead_and_no_excuse_is_idle() -> None:
    found = unused([ROOT / name for name in SCANNED], ROOT)
    assert (sorted(dead(found, ALIVE)), sorted(idle(found, ALIVE))) == ([], [])


def test_a_dead_function_and_an_idle_excuse_are_seen(tmp_path: Path) -> None:
    source = "def used():\n    pass\n\ndef dead():\n    used()\n\nDEAD = 1\n"
    (tmp_path / "twin.py").write_text(source, encoding="utf-8")
    found = unused([tmp_path], tmp_path.resolve())
    assert dead(found, {}) == {"twin.py:dead", "twin.py:DEAD"}
    excuses = {"twin.py:dead": "said so", "twin.py:used": "idle", "other.py:*": "idle"}
    assert dead(found, excuses) == {"twin.py:DEAD"}
    assert idle(found, excuses) == {"twin.py:used", "other.py:*"}
