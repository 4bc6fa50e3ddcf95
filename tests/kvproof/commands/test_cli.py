"""The command line: exit codes, what goes to which stream, and how it ends when disturbed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from invariants.proofs.catalogue import OBLIGATIONS
from kvproof import cli
from kvproof.commands import looking
from kvproof.gate.events import GateResult, StageEnded
from kvproof.gate.results import CanaryResult, NotRun, StageResult
from kvproof.gate.settings import OWN_CORPUS
from kvproof.subjects.registry import CONFIG_VARIABLE
from model.releases import DIALECTS
from specs.casefile import CaseFileError

K1 = OWN_CORPUS / "manager" / "k1-adoption-before-allocation.json"
ENGINE = "vllm==0.33.0"

SEARCH_KEYS = {
    "verdict", "level", "subject", "dialect", "seed", "programs", "actions_run", "actions_moving",
    "scheduler_steps", "shadowed", "shadow_ends", "seconds", "findings", "goals", "unmet_goals",
    "known_defects", "waived_rules", "refused", "unrepeated", "stopped", "notes",
}  # fmt: skip
FINDING_KEYS = {
    "rule", "actions", "actions_count", "first_bad_step", "evidence", "known", "cause", "trace",
}  # fmt: skip
REPLAY_KEYS = {"trace", "subject", "outcome", "expected", "first_changed_step", "why", "known"}


@dataclass(frozen=True)
class Ran:
    """What one command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def complaint(self) -> str:
        """The one line on standard error."""
        (line,) = self.err.splitlines()
        assert line.startswith("kvproof: ")
        return line.removeprefix("kvproof: ")


Kvproof = Callable[..., Ran]


@pytest.fixture
def kvproof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Kvproof:
    """Run the entry point in this process, in an empty folder and without the user's names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "config"))

    def run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, *capsys.readouterr())

    return run


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "kvproof", *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    here = str(Path(cli.__file__).resolve().parents[1])
    return plain | {"PYTHONPATH": here, "TERM": "xterm", **changes}


def alone(folder: Path, *arguments: str | Path, **changes: str) -> Ran:
    """Run a command in a process of its own."""
    done = subprocess.run(
        command_line(*arguments),
        cwd=folder,
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


# Verdicts, and the promised keys


def test_a_clean_soak_is_0_and_prints_one_object(kvproof: Kvproof) -> None:
    ran = kvproof(
        "soak", "--subject", "reference:vllm-0.33.0", "--seed", "0", "--programs", "200", "--json"
    )
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == SEARCH_KEYS
    assert (ran.json["verdict"], ran.json["programs"]) == ("clean", 200)
    assert ran.json["findings"] == []


def test_a_soak_of_whole_steps_tells_how_many_ran(kvproof: Kvproof) -> None:
    options = ("--seed", "0", "--steps", "50", "--rule", "I17", "--fix", "cache=full", "--json")
    ran = kvproof("soak", *SCHEDULER, *options)
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == SEARCH_KEYS
    assert (ran.json["level"], ran.json["verdict"], ran.json["refused"]) == (
        "scheduler",
        "clean",
        {},
    )
    assert ran.json["scheduler_steps"] >= 50


def test_a_trace_of_whole_steps_is_replayed_where_it_has_a_scheduler(kvproof: Kvproof) -> None:
    trace = OWN_CORPUS / "scheduler" / "k1-whole-steps.json"
    ran = kvproof("replay", trace, "--json")
    assert ran.code == 0
    outcomes = {entry["subject"]: entry["outcome"] for entry in ran.json["traces"]}
    assert outcomes["vllm==0.30.0"] == "FAILED"
    assert outcomes["vllm==0.31.0"] == outcomes["vllm==0.33.0"] == "FIXED"
    ran = kvproof("replay", trace, "--subject", "reference:eager")
    assert (ran.code, "has no scheduler" in ran.complaint) == (2, True)


def test_a_clean_search_for_one_rule_is_0(kvproof: Kvproof) -> None:
    options = ("--rule", "I12", "--max-examples", "20", "--seed", "1", "--json")
    ran = kvproof("search", "--subject", "reference:vllm-0.33.0", *options)
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == SEARCH_KEYS
    assert ran.json["programs"] == 20


def test_a_counterexample_is_1_is_saved_and_replays(kvproof: Kvproof, tmp_path: Path) -> None:
    options = ("--rule", "I4", "--seed", "1", "--json")
    ran = kvproof("search", "--subject", "reference:eager", *options)
    assert (ran.code, ran.err) == (1, "")
    assert set(ran.json) == SEARCH_KEYS
    (finding,) = ran.json["findings"]
    assert set(finding) == FINDING_KEYS
    assert (finding["rule"], finding["known"]) == ("I4", None)
    assert len(finding["actions"]) == finding["actions_count"] <= 8
    assert finding["first_bad_step"] == finding["actions_count"] - 1
    trace = tmp_path / finding["trace"]
    assert trace.parent.name == "kvproof-out"

    again = kvproof("replay", trace, "--json")
    assert (again.code, again.err) == (1, "")
    (entry,) = again.json["traces"]
    assert set(entry) == REPLAY_KEYS
    assert (entry["outcome"], entry["expected"]) == ("FAILED", None)

    fixed = kvproof("replay", trace, "--subject", "reference:deferred", "--json")
    assert fixed.code == 0
    assert fixed.json["traces"][0]["outcome"] == "FIXED"


def test_a_failure_names_the_rule_the_steps_and_the_command_that_replays_it(
    kvproof: Kvproof, tmp_path: Path
) -> None:
    options = ("--rule", "I4", "--seed", "1", "--programs", "200", "--out", str(tmp_path / "f"))
    ran = kvproof("soak", "--subject", "reference:eager", *options)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("I4  An allocation takes at most what the predictor promised")
    assert "first failing step: " in ran.out
    assert "→ raised OutOfBlocks" in ran.out
    path = tmp_path / "f" / "I4-reference-eager-seed-1.json"
    assert f"replay it: kvproof replay {path} --subject reference:eager\n" in ran.out
    assert "counterexample  reference:eager against the model eager, seed 1: " in ran.out


def test_an_unmet_goal_is_2(kvproof: Kvproof) -> None:
    options = ("--subject", "reference:vllm-0.33.0", "--seed", "0", "--programs", "1")
    ran = kvproof("soak", *options, "--json")
    assert (ran.code, ran.json["verdict"], ran.json["programs"]) == (2, "incomplete", 1)
    assert ran.json["unmet_goals"]
    told = kvproof("soak", *options)
    assert told.code == 2
    assert "goal not met: " in told.out
    assert "incomplete  reference:vllm-0.33.0" in told.out


def test_two_subjects_that_differ_are_1_with_a_shrunk_difference_that_replays(
    kvproof: Kvproof,
) -> None:
    options = ("--seed", "1", "--programs", "20", "--json")
    ran = kvproof("diff", "reference:eager", "reference:deferred", *options)
    assert (ran.code, ran.err) == (1, "")
    assert set(ran.json) == SEARCH_KEYS
    assert ran.json["subject"] == "reference:eager reference:deferred"
    (finding,) = ran.json["findings"]
    assert finding["rule"] == "lockstep"
    assert finding["actions_count"] <= 6
    again = kvproof("replay", finding["trace"], "--json")
    assert (again.code, again.json["traces"][0]["subject"]) == (1, "reference:deferred")


def test_two_subjects_that_agree_are_0(kvproof: Kvproof) -> None:
    options = ("--programs", "10", "--json")
    ran = kvproof("diff", "reference:deferred", "reference:deferred", *options)
    assert (ran.code, ran.json["verdict"], ran.json["programs"]) == (0, "clean", 10)


def test_the_table_has_a_row_for_each_count_and_a_cell_for_each_subject(kvproof: Kvproof) -> None:
    ran = kvproof("table", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"rows", "notes"}
    assert [row["free_blocks"] for row in ran.json["rows"]] == list(range(4, 14))
    for row in ran.json["rows"]:
        assert set(row) == {"free_blocks", "cells"}
        assert list(row["cells"]) == [
            "reference:eager",
            "reference:charged",
            "reference:deferred",
            "reference:deferred-ordered",
        ]
    assert ran.json["rows"][3]["cells"]["reference:eager"] == "crash"
    one = kvproof("table", "--subject", ENGINE, "--json")
    assert [row["cells"] for row in one.json["rows"]][3:5] == [{ENGINE: "0/3"}, {ENGINE: "0/3"}]


def test_replay_of_a_corpus_trace_is_0_where_expectations_are_met(kvproof: Kvproof) -> None:
    subjects = ("--subject", "reference:eager", "--subject", "reference:deferred")
    ran = kvproof("replay", K1, *subjects, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"traces", "notes"}
    assert [set(entry) for entry in ran.json["traces"]] == [REPLAY_KEYS] * 2
    told = [(e["outcome"], e["expected"], e["first_changed_step"]) for e in ran.json["traces"]]
    assert told == [("FAILED", "FAILED", None), ("FIXED", "FIXED", 7)]
    shown = kvproof("replay", K1, *subjects)
    assert shown.out.startswith(f"FAILED  {K1.name} on reference:eager\n")
    assert f"FIXED  {K1.name} on reference:deferred; first changed step: 8\n" in shown.out


def changed_k1(tmp_path: Path, **changes: Any) -> Path:
    """A copy of the corpus trace with other keys; None removes one."""
    content = json.loads(K1.read_text()) | changes
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("expect", "subject", "code"),
    [
        ({"rule": "I4", "fails": ["reference:deferred"], "passes": []}, "reference:deferred", 1),
        ({"rule": "I4", "fails": [], "passes": ["reference:eager"]}, "reference:eager", 1),
        ({"rule": "I4", "fails": [], "passes": []}, "reference:deferred", 0),
        (None, "reference:eager", 1),
        (None, "reference:deferred", 0),
    ],
)
def test_replay_is_1_where_expectations_are_not_met_or_a_trace_without_them_fails(
    kvproof: Kvproof, tmp_path: Path, expect: Any, subject: str, code: int
) -> None:
    ran = kvproof("replay", changed_k1(tmp_path, expect=expect), "--subject", subject)
    assert (ran.code, ran.err) == (code, "")


def test_a_subject_of_the_trace_s_that_cannot_be_had_is_an_error_and_the_others_are_replayed(
    kvproof: Kvproof, tmp_path: Path
) -> None:
    expect = {"rule": "I4", "fails": ["vllm@/nowhere", "reference:eager"], "passes": []}
    ran = kvproof("replay", changed_k1(tmp_path, expect=expect), "--json")
    assert ran.code == 2
    assert [entry["outcome"] for entry in ran.json["traces"]] == ["ERROR", "FAILED"]


def test_a_trace_does_not_make_kvproof_run_a_folder_that_it_names(
    kvproof: Kvproof, tmp_path: Path
) -> None:
    folder = tmp_path / "checkout" / "vllm" / "v1" / "hisparse"
    folder.mkdir(parents=True)
    (folder / "coordinator.py").write_text("raise SystemExit('ran')")
    checkout = f"vllm@{tmp_path / 'checkout'}"
    expect = {"rule": "I4", "fails": [], "passes": [checkout]}
    ran = kvproof("replay", changed_k1(tmp_path, expect=expect), "--json")
    assert ran.code == 2
    (entry,) = json.loads(ran.out)["traces"]
    assert entry["why"] == f"the trace names a checkout; to run it, add --subject {checkout}"


# Export


def test_export_writes_a_test_to_standard_output_or_to_a_file(
    kvproof: Kvproof, tmp_path: Path
) -> None:
    ran = kvproof("export", K1)
    assert (ran.code, ran.err) == (0, "")
    compile(ran.out, "exported", "exec")
    assert "def test_" in ran.out
    done = kvproof("export", K1, "--out", tmp_path / "test_it.py")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "test_it.py").read_text() == ran.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["test_it.py"]


# Subjects


def test_subjects_are_added_listed_used_and_removed(kvproof: Kvproof) -> None:
    assert kvproof("subjects", "list", "--json").json["added"] == {}
    added = kvproof("subjects", "add", "mine", "reference:eager")
    assert (added.code, added.complaint) == (0, "mine stands for reference:eager")
    ran = kvproof("subjects", "list", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"references", "provisioned", "added"}
    assert ran.json["references"] == [f"reference:{name}" for name in DIALECTS]
    assert ran.json["added"] == {"mine": "reference:eager"}
    assert "mine = reference:eager" in kvproof("subjects", "list").out
    table = kvproof("table", "--subject", "mine", "--json")
    assert table.json["rows"][3]["cells"] == {"mine": "crash"}
    assert kvproof("subjects", "remove", "mine").code == 0
    assert kvproof("subjects", "list", "--json").json["added"] == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("add", "mine"), "what does mine stand for? kvproof subjects add mine SUBJECT"),
        (("add", "a b", "reference:eager"), "'a b' cannot be a name"),
        (("add", "mine", "nonsense"), "'nonsense' is not a subject"),
        (("remove", "mine"), "there is no subject named 'mine'; names: none"),
    ],
)
def test_a_wrong_name_is_2(kvproof: Kvproof, arguments: tuple[str, ...], complaint: str) -> None:
    ran = kvproof("subjects", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(complaint)


# What could not run: one line, exit code 2

SCHEDULER = ("--subject", "vllm==0.33.0", "--level", "scheduler")
EAGER = ("--subject", "reference:eager")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("xyzzy",), "No such command 'xyzzy'; see kvproof --help"),
        (("search",), "Missing option '--subject'; see kvproof search --help"),
        (("search", *EAGER, "--bogus"), "No such option: --bogus"),
        (("search", *EAGER, "--seed", "x"), "Invalid value for '--seed'"),
        (("search", *EAGER, "--seed", "-1"), "Invalid value for '--seed'"),
        (("search", *EAGER, "--seed", str(2**64)), "Invalid value for '--seed'"),
        (("search", *EAGER, "--max-examples", "0"), "Invalid value for '--max-examples'"),
        (("search", *EAGER, "--time", "0"), "Invalid value for '--time'"),
        (("search", *EAGER, "--load", "half"), "Invalid value for '--load'"),
        (("search", *EAGER, "--rule", "I99"), "there is no rule 'I99'; there are I1, "),
        (("search", *EAGER, "--rule", "I17"), "I17 is not judged in programs of the level of the "),
        (("search", *EAGER, "--level", "gpu"), "Invalid value for '--level'"),
        (("search", *EAGER, "--level", "scheduler"), "reference:eager has no scheduler"),
        (("search", *EAGER, "--fix", "cache=full"), "--fix fixes a setting of schedulers"),
        (("search", *SCHEDULER, "--rule", "I5"), "I5 is not judged in programs of the level of "),
        (("search", *SCHEDULER, "--fix", "cache"), "--fix cache: give full or sliding or "),
        (("search", *SCHEDULER, "--fix", "block_size=x"), "--fix block_size=x: give a number"),
        (("search", *SCHEDULER, "--fix", "colour=red"), "--fix colour=red: a setting is one of "),
        (("search", *SCHEDULER, "--fix", "num_blocks=2"), "no engine starts with what is fixed: "),
        (("search", *SCHEDULER, "--compare", "renamed"), "--compare is for --level manager"),
        (("soak", *EAGER, "--seed", "1", "--steps", "9"), "--steps counts steps of the scheduler"),
        (("soak", *SCHEDULER, "--seed", "1"), "soak needs either --programs, --time or --steps"),
        (("search", *EAGER, "--rule", "I8"), "I8 is not judged under the dialect eager: "),
        (("search", *EAGER, "--rule", "lockstep"), "reference:eager is the model itself"),
        (("search", *EAGER, "--dialect", "lazy"), "there is no dialect 'lazy'; dialects: eager"),
        (("search", "--subject", "reference:lazy"), "there is no dialect 'lazy'"),
        (("search", "--subject", "nonsense"), "there is no subject 'nonsense'; write reference:"),
        (("search", "--subject", "vllm@/nowhere"), "/nowhere"),
        (("soak", *EAGER, "--seed", "1"), "soak needs either --programs or --time"),
        (("soak", *EAGER, "--seed", "1", "--programs", "1", "--time", "1"), "soak needs either"),
        (("diff", "reference:eager", "nonsense"), "there is no subject 'nonsense'"),
        (("table", "--subject", "nonsense"), "there is no subject 'nonsense'"),
        (("replay", K1, "--subject", "nonsense"), "there is no subject 'nonsense'"),
        (("replay", K1, "--dialect", "lazy"), "there is no dialect 'lazy'"),
        (("replay", "none.json"), "cannot read trace none.json (no such file or directory)"),
        (("replay", "."), "cannot read trace . (is a directory)"),
        (("export", "none.json"), "cannot read trace none.json"),
        (("export", K1, "--out", "file/x"), "cannot write file/x"),
        (("search", *EAGER, "--out", "file/x"), "--out: "),
        (("diff", "reference:eager", "reference:eager", "--out", "file"), "--out: "),
        (("gate", "--profile", "weekly"), "there is no profile 'weekly'; there are pr, nightly"),
        (("gate", "--junit", "file/gate.xml"), "--junit: "),
        (("gate", "--out", "file/x"), "--out: "),
    ],
)
def test_what_cannot_run_is_2_with_one_line(
    kvproof: Kvproof, tmp_path: Path, arguments: tuple[str | Path, ...], complaint: str
) -> None:
    (tmp_path / "file").write_text("")
    ran = kvproof(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.complaint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    as_json = kvproof(*arguments, "--json") if arguments[0] != "export" else None
    if as_json is not None:
        assert as_json.code == 2
        assert set(as_json.json) == {"verdict", "error"}
        assert as_json.json["verdict"] == "incomplete"
        assert as_json.complaint == as_json.json["error"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"format": 99}', "has format 99; this kvproof reads up to 1: upgrade kvproof"),
        (K1.read_text()[:600], "it is not JSON, or cut off"),
        ("", "it is empty"),
        ("[]", "is none of kvproof's"),
    ],
    ids=["too new", "truncated", "empty", "not a trace"],
)
def test_a_trace_that_cannot_be_read_is_2(
    kvproof: Kvproof, tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    for arguments in (("replay", path), ("replay", K1, path), ("export", path)):
        ran = kvproof(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert complaint in ran.complaint


def test_broken_settings_are_2_before_anything_runs(kvproof: Kvproof, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.kvproof]\nsubject = []\n")
    for arguments in (("search", *EAGER), ("gate",)):
        assert "[tool.kvproof] has no key 'subject'" in kvproof(*arguments).complaint


def test_without_a_command_the_help_is_shown(kvproof: Kvproof) -> None:
    ran = kvproof()
    assert (ran.code, ran.complaint) == (2, "name a command; see kvproof --help")
    assert "gate" in ran.out
    assert kvproof("--help").code == 0


def test_the_version_is_shown(kvproof: Kvproof) -> None:
    ran = kvproof("--version")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(r"kvproof \d+\.\d+\.\d+\n", ran.out)


def test_a_bug_of_kvproof_s_own_is_2_and_never_a_counterexample(
    kvproof: Kvproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a bug of ours")

    monkeypatch.setattr("kvproof.commands.table.measure", broken)
    ran = kvproof("table", "--json")
    assert ran.code == 2
    assert ran.json["error"].startswith("this is a defect of kvproof: KeyError")
    assert "Traceback" in ran.err


# What is imported


HEAVY = ("cattrs", "crosshair", "hypothesis", "unearth", "z3")
IMPORTED = """
import sys
from kvproof.cli import run
run(sys.argv[1:])
print(*[name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (("--help",), set[str]()),
        (("--version",), set[str]()),
        (("subjects", "list"), {"cattrs", "hypothesis"}),
        (("replay", "--help"), {"cattrs", "hypothesis"}),
        (("prove", "--help"), {"cattrs", "hypothesis", "z3"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_a_command_imports_what_is_its_own(
    tmp_path: Path, arguments: tuple[str, ...], heavy: set[str]
) -> None:
    command = [sys.executable, "-c", IMPORTED.format(heavy=HEAVY), *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert set(done.stderr.split()) == heavy


def test_a_command_is_listed_under_the_first_sentence_of_its_own() -> None:
    for name, sentence in (cli.COMMANDS | cli.SUBJECTS).items():
        file = "subjects" if name in cli.SUBJECTS else name.replace("-", "_")
        module = import_module(f"kvproof.commands.{file}")
        described = getattr(module, f"{name.replace('-', '_')}_command").__doc__
        assert " ".join(described.split()) == sentence


# The gate


@pytest.fixture
def gate_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the gate come to one verdict without running anything."""

    def set_verdict(verdict: Any) -> None:
        results: dict[str, StageResult] = {
            "clean": CanaryResult("a", "[told]", programs=1, actions=2),
            "counterexample": CanaryResult("a", "[told]", programs=1, actions=None),
            "incomplete": NotRun("[told]"),
        }
        stage = StageEnded("canary", "reference:eager", 1.0, results[verdict])
        ended = GateResult((stage,), 1.0)
        monkeypatch.setattr("kvproof.commands.gate.run_gate", lambda *_: ended)

    return set_verdict


@pytest.mark.parametrize(
    ("verdict", "code"), [("clean", 0), ("counterexample", 1), ("incomplete", 2)]
)
def test_the_gate_ends_with_its_verdict(
    kvproof: Kvproof, tmp_path: Path, gate_of: Callable[[str], None], verdict: str, code: int
) -> None:
    gate_of(verdict)
    ran = kvproof("gate", "--junit", tmp_path / "sub" / "gate.xml", "--json")
    assert (ran.code, ran.err) == (code, "")
    assert set(ran.json) == {"verdict", "seconds", "stages", "notes"}
    assert [set(stage) for stage in ran.json["stages"]] == [
        {"name", "subject", "verdict", "seconds", "details"}
    ]
    assert ran.json["verdict"] == verdict
    assert (tmp_path / "sub" / "gate.xml").is_file()
    shown = kvproof("gate")
    assert (shown.code, shown.err) == (code, "")
    assert f"{verdict} in 1 s" in shown.out
    assert "[told]" in shown.out


@pytest.mark.parametrize(("verdict", "code"), [("clean", 2), ("counterexample", 1)])
def test_a_junit_file_that_cannot_be_written_loses_no_result(
    kvproof: Kvproof, tmp_path: Path, gate_of: Callable[[str], None], verdict: str, code: int
) -> None:
    gate_of(verdict)
    (tmp_path / "folder").mkdir()
    ran = kvproof("gate", "--junit", tmp_path / "folder", "--json")
    assert (ran.code, ran.json["verdict"]) == (code, verdict)
    assert "cannot write the JUnit file" in ran.complaint


def test_a_finding_that_cannot_be_saved_is_reported_all_the_same(
    kvproof: Kvproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise CaseFileError("cannot write trace x (no space left on device): free some")

    monkeypatch.setattr(looking, "save_findings", full)
    subjects = ("reference:eager", "reference:deferred")
    ran = kvproof("diff", *subjects, "--seed", "1", "--programs", "3", "--json")
    assert ran.code == 1
    assert [(f["rule"], f["trace"]) for f in ran.json["findings"]] == [("lockstep", None)]
    assert "no space left on device" in ran.complaint


# Streams


@pytest.mark.parametrize(
    "command", [("subjects", "list"), ("prove", *[f"--only={o.id}" for o in OBLIGATIONS[:9]])]
)
def test_modules_on_the_user_s_path_do_not_hide_kvproof_s_own(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Nor in the processes that prove, of which nine obligations need two."""
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    for name in ("model", "invariants", "specs"):
        (hiding / f"{name}.py").write_text("raise ImportError('not kvproof')\n")
    plain = environment()
    path = os.pathsep.join([str(hiding), plain["PYTHONPATH"]])
    told = alone(tmp_path, *command, PYTHONPATH=path)
    assert (told.code, told.err) == (0, "")
    without = subprocess.run(
        [sys.executable, "-c", "import kvproof.commands.subjects"],
        env=plain | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "not kvproof" in without.stderr


def test_nobody_who_reads_on_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command_line("table"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.close()
    assert process.stderr
    assert (process.stderr.read(), process.wait(60)) == ("", 0)
    process.stderr.close()


@pytest.mark.parametrize(
    ("stdout", "code", "complaint"),
    [
        (">&-", 0, ""),
        ("> /dev/full", 2, "kvproof: cannot write to standard output: No space left on device\n"),
    ],
    ids=["closed", "full"],
)
def test_standard_output_that_cannot_be_written_is_told_of_in_one_line(
    tmp_path: Path, stdout: str, code: int, complaint: str
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("only Linux has /dev/full")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {stdout}', "sh", *command_line("table", "--json")],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, complaint)


COLOUR = re.compile(r"\x1b\[([0-9]+;)*[39][0-7][;m]")


def test_colours_are_for_those_who_want_them(tmp_path: Path) -> None:
    arguments = ("replay", K1, *EAGER)
    assert COLOUR.search(alone(tmp_path, *arguments, FORCE_COLOR="1").out)
    assert not COLOUR.search(alone(tmp_path, *arguments, FORCE_COLOR="1", NO_COLOR="1").out)
    assert "\x1b" not in alone(tmp_path, *arguments).out


def test_an_encoding_without_arrows_is_no_reason_to_fail(tmp_path: Path) -> None:
    ran = alone(tmp_path, "diff", "reference:eager", "reference:deferred", "--programs", "3",
                "--seed", "1", PYTHONIOENCODING="ascii")  # fmt: skip
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.isascii()


def test_progress_goes_to_a_terminal_on_standard_error(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command_line("soak", *EAGER, "--rule", "I12", "--seed", "1", "--time", "1.5", "--json"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # Linux says so at the end of a terminal
        pass
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert json.loads(out)["verdict"] == "clean"
    assert b"soak reference:eager" in shown


# Time and interruption


@pytest.mark.parametrize("command", ["search", "soak"])
def test_a_search_with_a_time_ends_near_it(kvproof: Kvproof, command: str) -> None:
    started = time.monotonic()
    options = ("--subject", "reference:vllm-0.33.0", "--seed", "1", "--time", "1.5", "--json")
    ran = kvproof(command, *options)
    assert 1.5 <= ran.json["seconds"] <= time.monotonic() - started < 6
    assert ran.json["programs"] > 0
    assert ran.code in (0, 2)  # 2 where the goals need longer


def children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            yield int(stat.parent.name)


def wait_for_child(process: subprocess.Popen[str]) -> int:
    for _ in range(600):
        for child in children(process.pid):
            return child
        time.sleep(0.1)
    raise AssertionError("no worker was started")


def heed_interrupts() -> None:
    """A job in the background is started with SIGINT ignored, and hands that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What an interrupted command wrote. One interrupt may fall into a callback of Python's garbage
    collector, which reports it and goes on: then it is sent again, as a user would."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=40)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for workers in /proc")
@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "--subject", ENGINE, "--time", "60"),
        ("soak", "--subject", ENGINE, "--seed", "1", "--time", "60"),
        ("diff", ENGINE, "reference:vllm-0.33.0", "--time", "60"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_interrupted_search_ends_with_one_line_and_leaves_no_worker(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    process = subprocess.Popen(
        command_line(*arguments, "--json"),
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - no thread runs here
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker = wait_for_child(process)
    time.sleep(1.5)
    out, err = interrupted(process)
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "kvproof: interrupted")
    assert not Path(f"/proc/{worker}").exists()
