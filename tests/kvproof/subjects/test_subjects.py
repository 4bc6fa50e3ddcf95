"""Subjects by name: the reference, released engines, checkouts, and names that users gave."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest
from changed_engine import copy_checkout

from kvproof.errors import CouldNotRun
from kvproof.subjects.names import open_subject
from kvproof.subjects.reference import ReferenceSubject
from kvproof.subjects.registry import (
    CONFIG_VARIABLE,
    add_subject,
    registered_subjects,
    remove_subject,
)
from kvproof.subjects.rows import compared_as
from kvproof.subjects.subject import Subject
from kvproof.subjects.worker import EngineSubject
from model import reference as reference_module
from model.dialect import Dialect
from model.manager.actions import Action, Admit, Arrive, EndStep, Finish
from model.manager.configuration import Configuration
from model.manager.events import Arrived
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS, VERSIONS
from model.releases import NEWEST as NEWEST_ROW
from model.snapshot import Snapshot, snapshot_from_json
from model.trace import Trace
from specs.manager.generator import draw_program

NEWEST = "vllm==0.33.0"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees or changes the names that the user gave."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture(scope="module")
def engine() -> Iterator[Subject]:
    with open_subject(NEWEST) as subject:
        yield subject


def drawn(dialect: Dialect, count: int, num_actions: int = 60) -> list[ManagerProgram]:
    return [draw_program(Random(seed), dialect, num_actions) for seed in range(count)]


def outcome(trace: Trace) -> tuple[Any, ...]:
    return trace.steps, trace.ending


def uneventful(num_requests: int) -> ManagerProgram:
    """Requests that come, are computed and go, one after the other."""
    life: tuple[Action, ...] = (Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish())
    return Program(Configuration(), life * num_requests)


# Running


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_and_the_reference_answer_alike(version: str) -> None:
    name = f"vllm-{version}"
    programs = drawn(DIALECTS[name], 20)
    with open_subject(f"reference:{name}") as model, open_subject(f"vllm=={version}") as engine:
        assert engine.dialect == model.dialect == DIALECTS[name]
        for expected, actual in zip(
            model.run_many(programs), engine.run_many(programs), strict=True
        ):
            assert outcome(actual) == outcome(expected)
            assert all(step.digest and step.snapshot is None for step in actual.steps)


def test_snapshots_are_equal_values_whichever_side_of_the_pipe_they_come_from(
    engine: Subject,
) -> None:
    program = drawn(DIALECTS["vllm-0.33.0"], 1)[0]
    with open_subject("reference:vllm-0.33.0") as model:
        expected, actual = model.run(program, "all"), engine.run(program, "all")
    assert outcome(actual) == outcome(expected)
    assert all(isinstance(step.snapshot, Snapshot) for step in actual.steps)


@pytest.mark.parametrize("name", ["reference:vllm-0.33.0", NEWEST])
def test_without_snapshots_there_are_responses_only(name: str) -> None:
    with open_subject(name) as subject:
        trace = subject.run(uneventful(1), "none")
    assert trace.steps[0].response == (Arrived(0, 8),)
    assert all(step.digest == "" and step.snapshot is None for step in trace.steps)


def test_what_the_allocator_raises_ends_the_trace() -> None:
    dialect = DIALECTS["vllm-0.30.0"]
    with open_subject("reference:vllm-0.30.0") as model, open_subject("vllm==0.30.0") as engine:
        programs = drawn(dialect, 300)
        program = next(p for p in programs if model.run(p, "none").ending == "raised")
        longer = Program(program.configuration, (*program.actions, EndStep(), EndStep()))
        expected, actual = model.run(longer), engine.run(longer)
    assert outcome(actual) == outcome(expected)
    assert (actual.ending, len(actual.steps)) == ("raised", len(program.actions))
    assert actual.failure


def test_a_bug_of_the_model_is_not_taken_for_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug of ours")

    monkeypatch.setattr(reference_module, "allocate", broken)
    with open_subject("reference:eager") as model, pytest.raises(KeyError, match="a bug of ours"):
        model.run(uneventful(1))


def test_a_snapshot_survives_json() -> None:
    with open_subject("reference:vllm-0.33.0") as model:
        for trace in model.run_many(drawn(DIALECTS["vllm-0.33.0"], 5), "all"):
            for step in trace.steps:
                assert step.snapshot is not None
                assert snapshot_from_json(json.loads(json.dumps(step.snapshot))) == step.snapshot


def test_an_engine_killed_in_mid_program_is_crashed_and_runs_the_next_program() -> None:
    with open_subject(NEWEST) as subject:
        assert isinstance(subject, EngineSubject)
        subject.run(uneventful(1))
        assert subject.pid is not None
        killer = Timer(0.8, os.kill, (subject.pid, signal.SIGKILL))
        killer.start()
        crashed, after = subject.run_many([uneventful(12_000), uneventful(1)])
        killer.join()
    assert crashed.ending == "crashed"
    assert str(crashed.failure).startswith("the worker was killed by signal 9 (SIGKILL)")
    assert after.ending == "ended"


def test_the_user_s_own_environment_variables_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"PYTHONOPTIMIZE": "2", "PYTHONPATH": "/nowhere", "VLLM_X": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HISPARSE_KEPT", "1")
    with open_subject(NEWEST) as subject:
        assert isinstance(subject, EngineSubject)
        subject.run(uneventful(1))
        environment = Path(f"/proc/{subject.pid}/environ")
        if not environment.exists():
            pytest.skip("only Linux shows the environment of a process")
        names = {entry.partition("=")[0] for entry in environment.read_text().split("\0")}
    assert {"HISPARSE_KEPT", "PYTHONHASHSEED"} <= names
    assert not {"PYTHONOPTIMIZE", "VLLM_X"} & names


# Checkouts


def test_a_checkout_with_one_changed_line_goes_another_way(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "vllm-checkout")
    programs = drawn(NEWEST_ROW.dialect, 10)
    with open_subject(f"vllm@{checkout}") as unchanged, open_subject(NEWEST) as release:
        assert unchanged.name == f"vllm@{checkout}"
        assert unchanged.dialect == NEWEST_ROW.dialect
        assert unchanged.notes[0].startswith(f"vllm@{checkout} has no row")
        assert release.notes == ()
        expected = [outcome(trace) for trace in release.run_many(programs)]
        assert [outcome(trace) for trace in unchanged.run_many(programs)] == expected

    pool = checkout / "vllm/v1/core/block_pool.py"
    right = "self.free_block_queue.append_n(blocks_to_evict_last)"
    assert pool.read_text().count(right) == 1
    wrong = "self.free_block_queue.append_n(blocks_to_evict_last[::-1])"
    pool.write_text(pool.read_text().replace(right, wrong))
    with open_subject(f"vllm@{checkout}") as changed:
        assert [outcome(trace) for trace in changed.run_many(programs)] != expected


# Names


def test_every_dialect_can_be_run_as_a_reference() -> None:
    for name, dialect in DIALECTS.items():
        with open_subject(f"reference:{name}") as subject:
            assert (subject.name, subject.dialect) == (f"reference:{name}", dialect)
            assert subject.run(uneventful(1)).ending == "ended"


def test_another_dialect_can_be_named_to_compare_with() -> None:
    with open_subject("reference:eager", dialect="charged") as subject:
        assert isinstance(subject, ReferenceSubject)
        assert subject.runs_as == DIALECTS["eager"]
        assert subject.dialect == DIALECTS["charged"]
    with open_subject(NEWEST, dialect="eager") as engine:
        assert engine.dialect == DIALECTS["eager"]


@pytest.mark.parametrize(
    ("version", "dialect"),
    [("0.30.0", "vllm-0.30.0"), ("0.31", "vllm-0.31.0"), ("0.31.0+cu12", "vllm-0.31.0")],
)
def test_a_release_is_compared_under_its_own_row(version: str, dialect: str) -> None:
    compared = compared_as("x", version)
    assert (compared.dialect.name, compared.notes) == (dialect, ())


@pytest.mark.parametrize("version", ["0.99.1", "0.33.1.dev5+g12", "unknown", None])
def test_what_has_no_row_is_compared_under_the_newest_and_says_so(version: str | None) -> None:
    compared = compared_as("vllm==9", version)
    assert compared.dialect is NEWEST_ROW.dialect
    newest = NEWEST_ROW.dialect.name
    says = f"vllm==9 has no row in model/releases.py: compared under {newest}"
    assert compared.notes == (says,)


@pytest.mark.parametrize("name", ["", "vllm", "vllm==", "sglang==1.0", "reference:", "mine"])
def test_an_unknown_subject_is_refused_with_what_is_possible(name: str) -> None:
    with pytest.raises(CouldNotRun) as refused:
        open_subject(name)
    message = str(refused.value)
    assert message.startswith(f"there is no subject {name!r}; write reference:<dialect>, ")
    assert "vllm==<version>" in message
    assert "deferred-ordered" in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "dialect"), [("reference:lazy", None), (NEWEST, "lazy")])
def test_an_unknown_dialect_is_refused_with_those_that_exist(
    name: str, dialect: str | None
) -> None:
    with pytest.raises(CouldNotRun) as refused:
        open_subject(name, dialect=dialect)
    assert str(refused.value) == f"there is no dialect 'lazy'; dialects: {', '.join(DIALECTS)}"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CouldNotRun, match=r"holds no vllm/v1/hisparse/coordinator\.py"):
        open_subject(f"vllm@{tmp_path}")


# Names that the user gave


def test_a_given_name_opens_its_subject_under_that_name() -> None:
    add_subject("mine", "reference:eager")
    with open_subject("mine") as subject:
        assert (subject.name, subject.dialect) == ("mine", DIALECTS["eager"])
    remove_subject("mine")
    with pytest.raises(CouldNotRun, match="there is no subject 'mine'"):
        open_subject("mine")


def test_given_names_are_listed_among_what_is_possible() -> None:
    add_subject("mine", "reference:eager")
    with pytest.raises(CouldNotRun, match="or one of yours: mine"):
        open_subject("yours")


def test_a_checkout_keeps_its_place_whatever_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add_subject("mine", "vllm@src")
    assert registered_subjects() == {"mine": f"vllm@{tmp_path}/src"}


@pytest.mark.parametrize("name", ["", "a b", "vllm==1", "a:b", "../x", "x@y", "-x"])
def test_a_name_that_reads_like_something_else_is_refused(name: str) -> None:
    with pytest.raises(CouldNotRun, match="cannot be a name"):
        add_subject(name, "reference:eager")


def test_only_what_can_be_a_subject_gets_a_name() -> None:
    add_subject("mine", "reference:eager")
    for subject in ("mine", "nonsense", "vllm=="):
        with pytest.raises(CouldNotRun, match=r"is not a subject; write reference:<dialect>"):
            add_subject("other", subject)
    assert registered_subjects() == {"mine": "reference:eager"}


def test_a_name_is_not_given_twice() -> None:
    add_subject("mine", "reference:eager")
    add_subject("mine", "reference:eager")
    with pytest.raises(CouldNotRun, match="mine already stands for reference:eager; remove it"):
        add_subject("mine", "reference:charged")
    with pytest.raises(CouldNotRun, match="there is no subject named 'other'; names: mine"):
        remove_subject("other")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "\xff",
        '{"subjects": {}}',
        '{"version": 2, "subjects": {}}',
        '{"version": 1}',
        '{"version": 1, "subjects": {"mine": 5}}',
        '{"version": 1, "subjects": {"mine": "nonsense"}}',
    ],
)
def test_a_broken_file_of_names_is_said_to_be_broken_and_is_kept(
    config: Path, content: str
) -> None:
    config.mkdir()
    file = config / "subjects.json"
    file.write_text(content, encoding="latin-1")
    for action in (
        registered_subjects,
        lambda: open_subject("mine"),
        lambda: add_subject("mine", "reference:eager"),
    ):
        with pytest.raises(CouldNotRun, match=r"subjects\.json .*; correct it, or delete it"):
            action()
    assert file.read_text(encoding="latin-1") == content
    with open_subject("reference:eager") as subject:  # which needs no names
        assert subject.name == "reference:eager"


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(CouldNotRun, match=f"set {CONFIG_VARIABLE} to a folder"):
        add_subject("mine", "reference:eager")


# Full loading


@pytest.mark.full
@pytest.mark.parametrize("version", VERSIONS)
def test_focused_and_full_loading_give_identical_traces(version: str) -> None:
    programs = drawn(DIALECTS[f"vllm-{version}"], 50)
    name = f"vllm=={version}"
    with open_subject(name, load="focused") as focused_, open_subject(name, load="full") as full:
        for one, other in zip(
            focused_.run_many(programs, "all"), full.run_many(programs, "all"), strict=True
        ):
            assert outcome(one) == outcome(other)
            assert one.ending in ("ended", "raised")
