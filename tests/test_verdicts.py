"""A verdict is right whatever the engine, the checkout, the cache, the user or the machine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.text import Text

import specs
from invariants.conformance.log import CallLog
from invariants.conformance.reading import CallLogError
from invariants.manager.transition import Transition
from invariants.rules import Rule
from invariants.violation import Cause, Seen
from kvproof.cli import run
from kvproof.engines.vllm.inside import sources
from kvproof.levels.manager import ManagerExaminer
from kvproof.provision.cache import MANIFEST, is_whole
from kvproof.reports.consoles import SafeConsole, shown
from kvproof.search.hunt import soak
from kvproof.search.hypothesis_rounds import search
from kvproof.subjects.reference import reference_subject
from kvproof.subjects.registry import add_subject
from model.dialect import Dialect
from model.releases import NEWEST

K1 = Path(specs.__file__).parent / "corpus" / "manager" / "k1-adoption-before-allocation.json"


def dialect() -> Dialect:
    """The newest release's, which is known for nothing: what is seen is the fault of the test."""
    return replace(NEWEST.dialect, known_defects=())


# The checkout


LOADING = """
import sys
from pathlib import Path
from kvproof.engines.vllm.inside.sources import SourceFinder
sys.meta_path.insert(0, SourceFinder(Path(sys.argv[1])))
from vllm.answer import ANSWER
print(ANSWER)
"""


def test_what_runs_is_what_lies_there(tmp_path: Path) -> None:
    """Also with the same size and the same time of change, and with byte code of another text."""
    module = tmp_path / "vllm" / "answer.py"
    module.parent.mkdir()
    (module.parent / "__init__.py").write_text("")
    cache = tmp_path / "bytecode"
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(cache)}
    for answer in ("one", "two"):
        module.write_text(f"ANSWER = '{answer}'\n")
        os.utime(module, (1_000_000_000, 1_000_000_000))
        home = str(Path(sources.__file__).parents[4])
        said = subprocess.run(
            [sys.executable, "-c", LOADING, str(tmp_path)],
            capture_output=True, text=True, check=True, cwd=home, env=environment,
        )  # fmt: skip
        assert said.stdout == f"{answer}\n"
    assert not list(cache.rglob("answer*"))


# The cache


def test_a_manifest_that_is_nested_without_end_is_damage_like_any_other(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("[" * 100_000)
    assert not is_whole(tmp_path)


# The user


def interrupted(step: Transition) -> Iterator[Seen]:
    """Every step is a violation, and after a few the user has enough."""
    yield Seen(Cause.LOST, "seen")
    interrupted.left -= 1  # type: ignore[attr-defined]
    if interrupted.left == 0:  # type: ignore[attr-defined]
        raise KeyboardInterrupt


ABSURD = Rule("I2", "Nothing happens.", (interrupted,))


@pytest.mark.parametrize("strategy", [soak, search])
def test_what_was_found_is_kept_when_the_user_ends_a_search(strategy: object) -> None:
    interrupted.left = 300  # type: ignore[attr-defined]
    subject = reference_subject(dialect())
    examiner = ManagerExaminer(subject, subject.dialect, (ABSURD,), watch_goals=False)
    outcome = strategy(examiner, 1, seconds=60.0)  # type: ignore[operator]
    (finding,) = outcome.findings
    assert (outcome.interrupted, outcome.verdict) == (True, "counterexample")
    assert len(finding.program.actions) > 1, "it is as it was found"


def test_a_search_that_found_nothing_is_just_interrupted() -> None:
    interrupted.left = 1  # type: ignore[attr-defined]
    subject = reference_subject(dialect())
    examiner = ManagerExaminer(subject, subject.dialect, (ABSURD,), watch_goals=False)
    with pytest.raises(KeyboardInterrupt):
        soak(examiner, 1, seconds=60.0)


@pytest.mark.parametrize("text", ["\x1b[2J\x1b]0;title\x07", "\x9b31mclean", "a\rb\x08"])
def test_what_a_file_says_cannot_control_the_terminal(text: str) -> None:
    out = StringIO()
    console = SafeConsole(file=out, force_terminal=True, color_system="truecolor")
    console.print(Text(text, "bold red"))
    for character in shown(text):
        assert character.isprintable()
    assert text not in out.getvalue()
    assert not {"\x07", "\x08", "\x9b", "\r"} & set(out.getvalue())


def test_a_trace_needs_consent_for_code_in_a_folder_also_by_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KVPROOF_CONFIG_DIR", str(tmp_path / "config"))
    add_subject("mine", f"vllm@{tmp_path}")
    case = json.loads(K1.read_text())
    case["expect"]["fails"], case["expect"]["passes"] = ["mine"], []
    (tmp_path / "case.json").write_text(json.dumps(case))
    assert run(["replay", str(tmp_path / "case.json")]) == 2
    assert "the trace names a checkout; to run it, add --subject mine" in capsys.readouterr().out


def test_a_replay_says_whether_it_saw_a_known_defect(capsys: pytest.CaptureFixture[str]) -> None:
    run(["replay", str(K1), "--subject", "vllm==0.30.0", "--json"])
    (entry,) = json.loads(capsys.readouterr().out)["traces"]
    assert (entry["outcome"], entry["known"]) == ("FAILED", None)


def test_an_export_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "test_k1.py"
    target.write_text("mine")
    assert run(["export", str(K1), "--out", str(target)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert target.read_text() == "mine"


@pytest.mark.parametrize("time", ["inf", "nan", "1e300", "-1"])
def test_a_time_without_an_end_is_a_slip(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--subject", "reference:deferred", "--time", time]) == 2
    assert "--time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            ['{"kvproof_calls": 1, "kvproof_calls": 1}'],
            'line 1: it has the key "kvproof_calls" twice',
        ),
        (["{}", '{"kvproof_calls": 1}'], "line 2: a second log begins here"),
    ],
)
def test_a_log_that_says_two_things_is_refused(tmp_path: Path, lines: list[str], why: str) -> None:
    path = tmp_path / "calls.ndjson"
    path.write_text("\n".join([*lines, ""]))
    log = CallLog(path)
    with pytest.raises(CallLogError, match=why):
        list(log.calls()) if len(lines) > 1 else log.header()
