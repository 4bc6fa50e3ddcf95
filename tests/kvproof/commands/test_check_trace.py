"""check-trace: recorded runs of each release are clean; a log with one lie in it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recording import recorded, records_of, write_log

from invariants.conformance.check import check
from invariants.conformance.reading import CallLogError, read_call
from invariants.conformance.wording import wording
from kvproof.cli import run
from model.releases import DIALECTS, NEWEST, VERSIONS

RUNS = 20
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of the whole scheduler with HiSparse, hits and transfers in it."""
    logs = recorded("0.33.0", "scheduler", tmp_path_factory.mktemp("logs"), 6)
    return max(logs, key=lambda path: path.stat().st_size)


@pytest.fixture
def records(log: Path) -> Records:
    return records_of(log)


def verdict_of(tmp_path: Path, records: Records, *options: str) -> int:
    return run(["check-trace", str(write_log(tmp_path / "log.ndjson", records)), *options])


def place_of(records: Records, wanted: Callable[[dict[str, Any]], Any]) -> int:
    return next(place for place, record in enumerate(records) if wanted(record))


# Recorded runs of each release


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_recorded_runs_conform_and_break_no_rule(version: str, level: str, tmp_path: Path) -> None:
    results = [
        check(log, DIALECTS[f"vllm-{version}"]) for log in recorded(version, level, tmp_path, RUNS)
    ]
    found = [finding for result in results for finding in result.findings if not finding.known]
    if version == "0.30.0":
        # Its crash is known, and its start-up check lets in pools on which a lone request stalls.
        assert {f.rule for f in found} <= {"I4", "I16"}
        assert all("OutOfBlocks" in f.evidence[0] for f in found if f.rule == "I4")
    else:
        assert found == []
        assert {result.verdict for result in results} == {"clean"}
    assert sum(result.calls for result in results) > 2_000
    assert sum(result.steps for result in results) > 200


def test_a_log_under_the_dialect_of_another_release_does_not_conform(tmp_path: Path) -> None:
    logs = recorded("0.33.0", "scheduler", tmp_path, RUNS)
    found = [f for log in logs for f in check(log, DIALECTS["vllm-0.30.0"]).findings]
    assert any(finding.rule == "lockstep" for finding in found)


def test_a_rule_that_a_release_breaks_is_found_on_its_line(tmp_path: Path) -> None:
    """The crash of 0.30.0: the rule, not only the end of the log, is reported."""
    logs = recorded("0.30.0", "scheduler", tmp_path, RUNS)
    results = [check(log, DIALECTS["vllm-0.30.0"]) for log in logs]
    (first, *_) = [result for result in results if result.findings]
    assert first.findings[0].rule == "I4"
    line = records_of(first.path)[first.findings[0].line - 1]
    assert line["raised"] == "OutOfBlocks"


# The command


def test_a_clean_log_ends_with_0_and_says_what_was_followed(log: Path, capsys: Any) -> None:
    assert run(["check-trace", str(log), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "clean"
    marks = [record for record in records_of(log) if record.get("call") in ("step", "scheduled")]
    assert told["calls"] == len(records_of(log)) - len(marks) - 1
    assert told["steps"] > 10
    assert run(["check-trace", str(log)]) == 0
    assert "clean" in capsys.readouterr().out


def test_a_finding_names_line_call_and_difference_and_leaves_the_log_up_to_it(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    place = place_of(records, lambda r: r.get("call") == "allocate" and r["popped"] > 1)
    group = next(group for group in records[place]["blocks"] if group)
    group[0] += 1
    assert verdict_of(tmp_path, records, "--json", "--out", str(tmp_path / "out")) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["rule"] == "lockstep"
    assert finding["line"] == place + 1
    assert finding["call"].startswith("allocate_slots(")
    assert "new blocks: the model says" in finding["evidence"][0]
    assert len(records_of(Path(finding["log"]))) == place + 1
    assert verdict_of(tmp_path, records) == 1
    assert f"line {place + 1}: allocate_slots(" in capsys.readouterr().out


def test_a_dialect_can_be_chosen_and_a_release_without_a_row_is_judged_under_the_newest(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    records[0]["vllm"] = "0.99.0"
    assert verdict_of(tmp_path, records) == 0
    note = f"vllm==0.99.0 has no row in model/releases.py: compared under {NEWEST.dialect.name}"
    assert note in capsys.readouterr().out
    assert verdict_of(tmp_path, records, "--json") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [note]
    assert verdict_of(tmp_path, records, "--dialect", "vllm-0.33.0") == 0
    assert verdict_of(tmp_path, records, "--dialect", "nonsense") == 2
    records[0]["vllm"] = "0.33.0+cu128"
    assert verdict_of(tmp_path, records) == 0


# Twins: one lie in a clean log


def test_a_line_that_is_missing_is_noticed(records: Records, tmp_path: Path) -> None:
    for word, wanted in {
        "allocate": lambda r: r["blocks"] is not None,
        "free": lambda r: r["free"] != [],
        "report": lambda r: r["completed"],
        "advance": lambda r: r["scheduled"],
        "command": lambda r: r["transfers"],
    }.items():
        place = place_of(records, lambda r, w=word, f=wanted: r.get("call") == w and f(r))  # type: ignore[misc]
        assert verdict_of(tmp_path, records[:place] + records[place + 1 :], "--no-rules") != 0, word


def test_an_allocation_too_many_is_noticed(records: Records, tmp_path: Path) -> None:
    place = place_of(records, lambda r: r.get("call") == "allocate" and r["popped"])
    twice = records[: place + 1] + records[place:]
    assert verdict_of(tmp_path, twice, "--no-rules") != 0


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("lookup", "hit"),
        ("allocate", "popped"),
        ("allocate", "promised"),
        ("allocate", "free"),
        ("command", "transfers"),
        ("residency", "updates"),
        ("scheduled", "tokens"),
    ],
)
def test_a_number_that_is_wrong_is_a_difference(
    word: str, field: str, records: Records, tmp_path: Path
) -> None:
    def raised(value: Any) -> Any:
        """The last number of the value, one more."""
        if isinstance(value, list):
            return [*value[:-1], raised(value[-1])]
        return value + 1

    def numbers(value: Any) -> bool:
        return any(map(numbers, value)) if isinstance(value, list) else value is not None

    place = place_of(records, lambda r: r.get("call") == word and numbers(r[field]))
    records[place][field] = raised(records[place][field])
    result = check(write_log(tmp_path / "log.ndjson", records), DIALECTS["vllm-0.33.0"], False)
    assert [(f.rule, f.line) for f in result.findings] == [("lockstep", place + 1)]


def test_hashes_that_collide_break_the_rule_of_equal_keys(records: Records, tmp_path: Path) -> None:
    """Two prefixes of different tokens under one block hash."""
    header, groups = records[0], len(records[0]["groups"])
    view = {
        "status": "WAITING",
        "computed": 0,
        "in_flight": 0,
        "length": header["groups"][0]["block_size"],
    }
    free = [header["num_blocks"] - 1, header["num_host_blocks"] - 1]
    lookups = [
        {"call": "lookup", "request": n, **view, "contents": [n + 1], "hashes": [1],
         "hit": 0, "blocks": [[]] * groups, "free": free}
        for n in range(2)
    ]  # fmt: skip
    path = write_log(tmp_path / "log.ndjson", [header, *lookups])
    found = check(path, DIALECTS["vllm-0.33.0"]).findings
    assert [finding.rule for finding in found] == ["I10"]


def test_a_rule_is_judged_on_the_states_of_a_log(records: Records, tmp_path: Path) -> None:
    """A dialect that unpins head first breaks the order of copies: the rule says so, too."""
    head_first = replace(
        DIALECTS["vllm-0.33.0"], unpin_step_tail_first=False, unpin_release_tail_first=False
    )
    logs = recorded("0.33.0", "scheduler", tmp_path, RUNS)
    rules = {finding.rule for log in logs for finding in check(log, head_first).findings}
    assert "I11" in rules


# Where it ends


def test_what_the_model_does_not_know_is_named_and_never_green(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    place = place_of(records, lambda r: r.get("call") == "allocate")
    records[place]["beyond"] = ["num_external_computed_tokens=8"]
    assert verdict_of(tmp_path, records, "--json") == 2
    told = json.loads(capsys.readouterr().out)
    assert told["ended"].startswith(f"line {place + 1}: ")
    assert "num_external_computed_tokens=8" in told["ended"]
    assert verdict_of(tmp_path, [records[0], {"call": "other", "name": "BlockPool.touch"}]) == 2
    assert "BlockPool.touch" in capsys.readouterr().out


def test_a_recorder_that_stopped_makes_the_log_incomplete(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    records.append({"call": "stopped", "reason": "ValueError in the recorder"})
    assert verdict_of(tmp_path, records) == 2
    assert "ValueError in the recorder" in capsys.readouterr().out


def test_a_log_without_calls_is_never_clean(records: Records, tmp_path: Path) -> None:
    assert verdict_of(tmp_path, records[:1]) == 2
    assert verdict_of(tmp_path, [records[0], {"call": "step"}]) == 2


def test_a_cache_that_the_model_does_not_have_is_named(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    records[0]["groups"][-1]["kind"] = "SlidingWindowSpec"
    assert verdict_of(tmp_path, records) == 2
    assert "SlidingWindowSpec" in capsys.readouterr().out
    records[0] = {**records[0], "num_host_blocks": 0, "groups": records[0]["groups"][:1]}
    records[0]["features"] = ["use_eagle"]
    assert verdict_of(tmp_path, records) == 2
    assert "use_eagle" in capsys.readouterr().out


def test_without_marks_of_steps_the_rules_of_contents_are_named_as_not_judged(
    records: Records, tmp_path: Path, capsys: Any
) -> None:
    kept = [record for record in records if record.get("call") != "scheduled"]
    assert verdict_of(tmp_path, kept, "--json") == 0
    not_judged = json.loads(capsys.readouterr().out)["not_judged"]
    assert set(not_judged) == {"I7", "I8"}


def test_a_torn_last_line_is_reported_and_the_rest_is_judged(
    log: Path, tmp_path: Path, capsys: Any
) -> None:
    torn = tmp_path / "torn.ndjson"
    torn.write_bytes(log.read_bytes()[:-9])
    assert run(["check-trace", str(torn), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torn_line"] == len(records_of(log))


# Hostile logs


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"not JSON\n",
        b"[1, 2]\n",
        b"{}\n",
        b'{"kvproof_calls": 2}\n',
        b'{"kvproof_calls": 1}\n',
        b"\xff\xfe\x00\n",
        b"[" * 100_000 + b"\n",
        b'{"kvproof_calls": ' + b"9" * 5_000 + b"}\n",
    ],
)
def test_what_is_no_log_is_one_clear_line(first: bytes, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "log.ndjson"
    path.write_bytes(first)
    assert run(["check-trace", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "defect of kvproof" not in error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_blocks", 10**12),
        ("num_blocks", -1),
        ("num_blocks", "many"),
        ("max_model_len", 2**60),
        ("groups", []),
        ("groups", [3]),
        ("prefix_caching", 1),
        ("vllm", None),
        ("watermark_blocks", 1.5),
    ],
)
def test_a_header_that_no_engine_wrote_is_one_clear_line(
    field: str, value: Any, records: Records, tmp_path: Path, capsys: Any
) -> None:
    records[0][field] = value
    assert verdict_of(tmp_path, records) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "defect of kvproof" not in error
    assert field in error


@pytest.mark.parametrize(
    "record",
    [
        {"call": "nonsense"},
        {"call": ["allocate"]},
        {"call": "free"},
        {"call": "evict", "blocks": "all"},
        {"call": "evict", "blocks": [True]},
        {"call": "report", "enqueued": [[1]], "completed": []},
        {"call": "scheduled", "tokens": [[0, 10**30]]},
        {"call": "free", "request": 0, "status": "RUNNING", "computed": 0, "in_flight": 0,
         "length": 10**9},
        {"call": "cache", "request": 0, "status": "RUNNING", "computed": 0, "in_flight": 0,
         "length": 0, "contents": [1, 2, 3], "tokens": 2},
    ],
)  # fmt: skip
def test_a_record_that_no_recorder_wrote_is_one_clear_line(
    record: dict[str, Any], records: Records, tmp_path: Path, capsys: Any
) -> None:
    assert verdict_of(tmp_path, [records[0], record]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "line 2" in error
    assert "defect of kvproof" not in error


def test_a_log_that_is_not_there_is_one_clear_line(tmp_path: Path, capsys: Any) -> None:
    assert run(["check-trace", str(tmp_path / "none")]) == 2
    assert run(["check-trace", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("cannot read") == 2


def test_a_call_that_the_model_cannot_make_is_no_crash(records: Records, tmp_path: Path) -> None:
    advance = {"call": "advance", "scheduled": [[7, 4]]}
    assert verdict_of(tmp_path, [records[0], advance]) == 1
    scheduled = {"call": "scheduled", "tokens": [[7, 4]]}
    assert verdict_of(tmp_path, [records[0], scheduled]) == 1


def test_words_of_every_call_are_one_line(records: Records) -> None:
    for record in records[1:]:
        text = wording(read_call(record))
        assert text
        assert "\n" not in text


def test_a_wrong_field_is_named() -> None:
    with pytest.raises(CallLogError, match=r"blocks: 'x' is not a list"):
        read_call({"call": "evict", "blocks": "x"})
