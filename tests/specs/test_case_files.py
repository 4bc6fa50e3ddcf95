"""Trace files: what is written is read back, and hostile files are refused in one line."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.manager.actions import Admit, Arrive, CompleteTransfers, EndStep, Finish, Reset
from model.manager.configuration import Configuration
from model.manager.events import Raised
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Program
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.scheduler import actions as serving
from model.scheduler.setup import SchedulerSetup
from model.startup import below_minimum
from specs import casefile as traces
from specs.casefile import (
    CaseFile,
    CaseFileError,
    Found,
    format_case,
    read_case,
    write_case,
)
from specs.expectations import Expectation
from specs.expectations import named as subjects_named

TRACE = CaseFile(
    format=1,
    about="An example: größer als ASCII.",
    program=Program(
        Configuration(block_size=16, policy="priority"),
        (
            Arrive(shared=8, prompt=8),
            Admit(tokens=8),
            EndStep(),
            CompleteTransfers(count=9),
            Finish(aborted=True),
            Reset(),
        ),
    ),
    found=Found("I4", 5, ("one", "two"), "vllm==0.30.0", "vllm-0.30.0", 7, "0.1.0"),
    expect=Expectation("I4", ("vllm==0.30.0",), ("vllm==0.33.0",)),
)

TEXT = """\
{
  "format": 1,
  "about": "An example: größer als ASCII.",
  "found": {
    "rule": "I4",
    "step": 5,
    "evidence": [
      "one",
      "two"
    ],
    "subject": "vllm==0.30.0",
    "dialect": "vllm-0.30.0",
    "seed": 7,
    "kvproof": "0.1.0"
  },
  "expect": {
    "rule": "I4",
    "fails": [
      "vllm==0.30.0"
    ],
    "passes": [
      "vllm==0.33.0"
    ]
  },
  "program": {
    "configuration": {
      "block_size": 16,
      "num_blocks": 16,
      "num_host_blocks": 12,
      "num_resident_groups": 1,
      "hot_blocks": 1,
      "max_model_len": 24,
      "max_num_batched_tokens": 24,
      "prefix_caching": true,
      "async_scheduling": false,
      "policy": "priority",
      "watermark_blocks": 0,
      "full_sequence_must_fit": true,
      "num_workers": 1
    },
    "actions": [
      {"action": "Arrive", "family": 0, "shared": 8, "prompt": 8, "salt": 0},
      {"action": "Admit", "request": 0, "tokens": 8},
      {"action": "EndStep"},
      {"action": "CompleteTransfers", "worker": 0, "count": 9},
      {"action": "Finish", "request": 0, "aborted": true},
      {"action": "Reset", "preempt_running": false}
    ]
  }
}
"""


def test_a_trace_file_is_readable_and_has_one_action_per_line() -> None:
    assert format_case(TRACE) == TEXT


@pytest.mark.parametrize(
    "trace",
    [
        TRACE,
        replace(TRACE, found=None, expect=None),
        replace(TRACE, program=Program(Configuration(), ())),
        replace(TRACE, found=replace(TRACE.found, seed=None, evidence=()) if TRACE.found else None),
    ],
    ids=["all of it", "without finding and expectation", "no actions", "no seed"],
)
def test_what_is_written_is_read_back(tmp_path: Path, trace: CaseFile) -> None:
    path = tmp_path / "new" / "folder" / "trace.json"
    write_case(path, trace)
    assert read_case(path) == trace
    assert os.listdir(path.parent) == ["trace.json"]


def test_fields_that_an_older_kvproof_did_not_write_have_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    actions = [{"action": "Arrive", "prompt": 4}, {"action": "EndStep"}]
    document = {"format": 1, "about": "", "program": {"configuration": {}, "actions": actions}}
    path.write_text(json.dumps(document))
    assert read_case(path).program == Program(Configuration(), (Arrive(prompt=4), EndStep()))


# Hostile files. Each row changes one thing of TRACE; the message is what follows the file's name.

Path_ = tuple[str | int, ...]

ACTIONS: Path_ = ("program", "actions")
CONFIGURATION: Path_ = ("program", "configuration")
PLACES: list[tuple[Path_, Any, str]] = [
    (("surprise",), 1, 'the file: unknown key "surprise" (known: '),
    (("about",), 3, "about: 3 is not a text"),
    (("about",), "\ud800", "about: it holds text that is no valid Unicode"),
    (("program",), [], "program: a list is not an object"),
    (("program",), None, "program: null is not an object"),
    (("found",), "I4", 'found: "I4" is not an object'),
    (("found", "seed"), 1.0, "found.seed: 1.0 is not a whole number"),
    (("found", "seed"), 2**70, "found.seed: 1180591620717411303424 is not between 0 and "),
    (("found", "seed"), -1, "found.seed: -1 is not between 0 and "),
    (("found", "step"), -1, "found.step: -1 is not between 0 and "),
    (("found", "step"), None, "found.step: null is not a whole number"),
    (("found", "evidence"), "text", 'found.evidence: "text" is not a list'),
    (("found", "evidence", 1), 2, "found.evidence[1]: 2 is not a text"),
    (("found", "cause"), "bad-luck", 'found.cause: "bad-luck" is no cause of a violation'),
    (("expect", "fails", 0), "vllm>=zero", "expect.fails[0]: 'vllm>=zero' is no range"),
    (("expect", "fails", 0), "vllm>0.31", "expect.passes: 'vllm==0.33.0' cannot both fail and"),
    (("expect", "passes"), {"a": 1}, "expect.passes: an object is not a list"),
    (("expect", "fail"), [], 'expect: unknown key "fail" (known: rule, fails, passes)'),
    (ACTIONS, {}, "program.actions: an object is not a list"),
    ((*ACTIONS, 0), 5, "program.actions[0]: 5 is not an object"),
    ((*ACTIONS, 2), {}, "program.actions[2]: null is no action (known: Arrive, Admit, "),
    ((*ACTIONS, 2), {"action": "Explode"}, 'program.actions[2]: "Explode" is no action'),
    ((*ACTIONS, 2), {"action": ["Admit"]}, "program.actions[2]: a list is no action"),
    ((*ACTIONS, 2, "tokens"), 1, 'program.actions[2]: unknown key "tokens"'),
    ((*ACTIONS, 1, "tokens"), "3", 'program.actions[1].tokens: "3" is not a whole number'),
    ((*ACTIONS, 1, "tokens"), 3.5, "program.actions[1].tokens: 3.5 is not a whole number"),
    ((*ACTIONS, 1, "tokens"), True, "program.actions[1].tokens: true is not a whole number"),
    ((*ACTIONS, 1, "tokens"), -1, "program.actions[1].tokens: -1 is not between 0 and 1000000"),
    ((*ACTIONS, 0, "prompt"), 10**9, "program.actions[0].prompt: 1000000000 is not between"),
    ((*ACTIONS, 0, "shared"), 10**99, f"program.actions[0].shared: 1{'0' * 36}... is not between"),
    ((*ACTIONS, 4, "aborted"), 1, "program.actions[4].aborted: 1 is not true or false"),
    (CONFIGURATION, None, "program.configuration: null is not an object"),
    ((*CONFIGURATION, "blocks"), 1, 'program.configuration: unknown key "blocks"'),
    ((*CONFIGURATION, "policy"), "lifo", 'program.configuration.policy: "lifo" is none of fcfs, p'),
    ((*CONFIGURATION, "policy"), [], "program.configuration.policy: a list is none of fcfs, p"),
    ((*CONFIGURATION, "num_blocks"), 2 * 10**6, "program.configuration.num_blocks: 2000000 is not"),
    ((*CONFIGURATION, "num_workers"), 65, "program.configuration.num_workers: 65 is not between"),
    ((*CONFIGURATION, "block_size"), 0, "program.configuration: block_size must be at least 1"),
    ((*CONFIGURATION, "hot_blocks"), 0, "program.configuration: HiSparse needs at least one resi"),
]


def changed(place: Path_, value: Any, text: str = TEXT) -> str:
    document = json.loads(text)
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return json.dumps(document)


def message_of(path: Path) -> str:
    with pytest.raises(CaseFileError) as raised:
        read_case(path)
    message = str(raised.value)
    assert "\n" not in message
    assert str(path) in message
    return message.replace(str(path), "X")


@pytest.mark.parametrize(("place", "value", "expected"), PLACES, ids=lambda case: str(case)[:40])
def test_a_wrong_value_is_refused_with_its_place(
    tmp_path: Path, place: Path_, value: Any, expected: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(changed(place, value))
    message = message_of(path)
    assert message.startswith(f"trace X: {expected}")
    assert message.endswith("correct it there")


def without(*place: str | int) -> str:
    document = json.loads(TEXT)
    target = document
    for key in place[:-1]:
        target = target[key]
    del target[place[-1]]
    return json.dumps(document)


def with_actions(action: dict[str, Any], count: int) -> str:
    return changed(ACTIONS, [action] * count)


NOT_OURS = (
    'trace X has no "format": 1 at the top, so it is none of kvproof\'s: '
    "give a file that kvproof wrote"
)
FILES: list[tuple[str, bytes | str, str]] = [
    ("empty", b"", "cannot read trace X (it is empty): give a file that kvproof wrote"),
    ("blank", b" \n", "cannot read trace X (it is empty)"),
    ("not JSON", "format: 1", "cannot read trace X (it is not JSON, or cut off: line 1, column 1"),
    ("truncated", TEXT[:700], "cannot read trace X (it is not JSON, or cut off: line "),
    ("trailing", TEXT + "x", "cannot read trace X (it is not JSON, or cut off: line 51, column 1"),
    ("not UTF-8", TEXT.encode("latin-1"), "cannot read trace X (it is not UTF-8 at byte "),
    ("UTF-16", TEXT.encode("utf-16"), "cannot read trace X (it is not UTF-8 at byte 0)"),
    ("BOM", TEXT.encode("utf-8-sig"), "cannot read trace X (it is not JSON, or cut off"),
    ("NaN", '{"format": NaN}', "cannot read trace X (it is not JSON: NaN is no number)"),
    ("infinity", '{"a": -Infinity}', "cannot read trace X (it is not JSON: -Infinity is no num"),
    ("endless number", '{"format": ' + "9" * 9999 + "}", "cannot read trace X (Exceeds the limit"),
    ("deep", "[" * 10**6, "cannot read trace X (it is nested too deeply)"),
    ("deep object", '{"a":' * 10**6, "cannot read trace X (it is nested too deeply)"),
    ("twice", '{"format": 1, "format": 2}', 'cannot read trace X (it has the key "format" twice'),
    ("a list", "[]", NOT_OURS),
    ("a number", "1", NOT_OURS),
    ("no format", "{}", NOT_OURS),
    ("format 0", '{"format": 0}', NOT_OURS),
    ("format true", '{"format": true}', NOT_OURS),
    ("format text", '{"format": "1"}', NOT_OURS),
    (
        "newer",
        '{"format": 7, "anything": []}',
        "trace X has format 7; this kvproof reads up to 1: upgrade kvproof",
    ),
    ("no program", without("program"), "trace X: program: it is missing: correct it there"),
    ("no about", without("about"), "trace X: about: it is missing"),
    ("no actions", without("program", "actions"), "trace X: program.actions: it is missing"),
    ("no rule", without("found", "rule"), "trace X: found.rule: it is missing"),
    (
        "many actions",
        with_actions({"action": "EndStep"}, 100_001),
        "trace X: program.actions: 100001 actions are more than 100000",
    ),
    (
        "many tokens",
        with_actions({"action": "Arrive", "prompt": 10**6}, 11),
        "trace X: program.actions: 11000000 prompt tokens are more than 10000000",
    ),
]


@pytest.mark.parametrize(
    ("content", "expected"), [row[1:] for row in FILES], ids=[row[0] for row in FILES]
)
def test_a_file_that_is_no_trace_is_refused(
    tmp_path: Path, content: bytes | str, expected: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message_of(path).startswith(expected)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    content = TEXT.encode()
    for length in range(0, len(content.rstrip()), 7):
        path.write_bytes(content[:length])
        assert message_of(path).startswith("cannot read trace X (it is ")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    missing = message_of(tmp_path / "none.json")
    assert missing.startswith("cannot read trace X (no such file or directory): give a file")
    assert message_of(tmp_path).startswith("cannot read trace X (is a directory): give a file")


def test_a_file_that_is_too_large_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MAX_BYTES", 100)
    path = tmp_path / "trace.json"
    path.write_text(TEXT)
    assert message_of(path).startswith("cannot read trace X (it has more than 100 bytes)")


# Of whole engine steps


STEPS = CaseFile(
    format=1,
    about="Two requests.",
    program=Program(
        SchedulerSetup("full", 4, 8, 16, 8, 2, external_store=True),
        (
            serving.Arrive(prompt=8, stored=8, asynchronous=True),
            serving.Step(),
            serving.CompleteLoad(),
            serving.Abort(),
        ),
    ),
    found=Found("I17", 4, ("one",), "vllm==0.33.0", "vllm-0.33.0", 7, "0.1.0"),
    expect=Expectation("I16", ("vllm==0.33.0",)),
    digests=("0a", "1b"),
)


def test_a_case_of_a_difference_from_the_model_is_read_back_at_both_levels(tmp_path: Path) -> None:
    for case in (TRACE, STEPS):
        assert case.found is not None
        differs = replace(case, found=replace(case.found, rule="lockstep"), expect=None)
        write_case(tmp_path / "case.json", differs)
        assert read_case(tmp_path / "case.json").found == differs.found


def test_a_trace_of_whole_steps_is_read_back_and_says_its_level(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_case(path, STEPS)
    assert read_case(path) == STEPS
    assert json.loads(path.read_text())["level"] == "scheduler"


STEPS_PLACES: list[tuple[Path_, Any, str]] = [
    (("level",), "gpu", 'level: "gpu" is none of manager, scheduler'),
    (("level",), ["scheduler"], "level: a list is none of manager, scheduler"),
    (("level",), None, "level: null is none of manager, scheduler"),
    (("level",), "manager", 'program.configuration: unknown key "cache", '),
    (("digests",), "0a", 'digests: "0a" is not a list'),
    (("digests", 1), 7, "digests[1]: 7 is not a text"),
    (("digests", 0), "Z", 'digests[0]: "Z" is not hexadecimal'),
    (("digests",), ["0a"] * 6, "digests: 6 digests are more than 5"),
    (("found", "rule"), "I8", "found.rule: there is no rule 'I8'"),
    ((*ACTIONS, 0), {"action": "Admit"}, 'program.actions[0]: "Admit" is no action (known: Arr'),
    ((*ACTIONS, 0, "salt"), True, "program.actions[0].salt: true is not a whole number"),
    ((*ACTIONS, 0, "priority"), -1, "program.actions[0].priority: -1 is not between 0 and 1000"),
    ((*ACTIONS, 0, "prompt"), 10**7, "program.actions[0].prompt: 10000000 is not between 0 and"),
    ((*CONFIGURATION, "cache"), "mla", 'program.configuration.cache: "mla" is none of full, sl'),
    ((*CONFIGURATION, "cache"), {}, "program.configuration.cache: an object is none of full, "),
    ((*CONFIGURATION, "block_size"), 0, "program: block_size must be at least 1"),
    ((*CONFIGURATION, "num_blocks"), 10**7, "program.configuration.num_blocks: 10000000 is not"),
    ((*CONFIGURATION, "num_blocks"), 3, "program: num_blocks 3 is below the start-up minimum"),
    ((*CONFIGURATION, "num_resident_groups"), 99, "program.configuration.num_resident_groups: 99"),
]


@pytest.mark.parametrize(
    ("place", "value", "expected"), STEPS_PLACES, ids=lambda case: str(case)[:40]
)
def test_a_wrong_value_of_whole_steps_is_refused_with_its_place(
    tmp_path: Path, place: Path_, value: Any, expected: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(changed(place, value, format_case(STEPS)))
    message = message_of(path)
    assert message.startswith(f"trace X: {expected}")
    assert message.endswith("correct it there")


# Writing fails: what was there stays, and nothing else is left.


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["pathlib.Path.write_bytes", "os.replace"])
def test_an_error_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "trace.json"
    write_case(path, TRACE)
    monkeypatch.setattr(broken, disk_full)
    with pytest.raises(CaseFileError, match=r"cannot write trace .* \(no space left on device\): "):
        write_case(path, replace(TRACE, about="new"))
    monkeypatch.undo()
    assert read_case(path) == TRACE
    assert os.listdir(tmp_path) == ["trace.json"]


def a_folder(path: Path) -> None:
    path.mkdir()


def a_file_as_parent(path: Path) -> None:
    path.parent.write_text("")


@pytest.mark.parametrize("prepare", [a_folder, a_file_as_parent])
def test_a_place_that_cannot_be_written_is_one_clear_line(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    path = tmp_path / "there"
    if prepare is a_file_as_parent:
        path = path / "trace.json"
    prepare(path)
    with pytest.raises(CaseFileError, match=r"^cannot write trace [^\n]*: choose a file[^\n]*$"):
        write_case(path, TRACE)
    assert len(os.listdir(tmp_path)) == 1


def test_text_that_is_no_unicode_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="no valid Unicode"):
        write_case(tmp_path / "trace.json", replace(TRACE, about="\udcff"))
    assert os.listdir(tmp_path) == []


# The corpus


CORPUS = sorted((Path(__file__).parents[2] / "specs" / "corpus").rglob("*.json"))


def raises(program: ManagerProgram, subject: str) -> bool:
    dialect = DIALECTS[subject.removeprefix("reference:")]
    session = Session(program.configuration, ReferenceAllocator(program.configuration, dialect))
    return any(Raised("OutOfBlocks") in session.do(action) for action in program.actions)


def test_the_crash_fails_and_passes_on_the_references_that_it_names() -> None:
    trace = read_case(CORPUS[0].with_name("k1-adoption-before-allocation.json"))
    assert trace.expect is not None
    for subjects, expected in ((trace.expect.fails, True), (trace.expect.passes, False)):
        for subject in subjects:
            if subject.startswith("reference:"):
                assert raises(trace.program, subject) == expected, subject


def test_no_action_of_the_crash_can_be_removed() -> None:
    program = read_case(CORPUS[0].with_name("k1-adoption-before-allocation.json")).program
    for index in range(len(program.actions)):
        rest = program.actions[:index] + program.actions[index + 1 :]
        assert not raises(replace(program, actions=rest), "reference:vllm-0.30.0"), index


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_a_file_of_the_corpus_is_written_as_kvproof_writes_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == format_case(read_case(path))


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_every_engine_that_a_file_of_the_corpus_names_starts_with_its_configuration(
    path: Path,
) -> None:
    trace = read_case(path)
    assert trace.expect is not None
    if trace.level == "scheduler":
        return  # of these none is read that no engine starts with
    named = {
        name.replace("reference:", "").replace("vllm==", "vllm-")
        for name in subjects_named((*trace.expect.fails, *trace.expect.passes))
    }
    configuration = trace.program.configuration
    assert {below_minimum(configuration, DIALECTS[name]) for name in named} == {None}
