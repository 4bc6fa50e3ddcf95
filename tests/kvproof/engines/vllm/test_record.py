"""The recorder: what it writes in an engine, what it never writes, and that it does no harm."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recording import recorded, records_of

from kvproof.cli import run
from kvproof.commands.record import write_recorder
from kvproof.engines.vllm.inside import recorder as recorder_module
from kvproof.engines.vllm.inside.recorder import Names, Tap
from model.releases import VERSIONS

RUNS = 3


class Group:
    kv_cache_spec = SimpleNamespace(block_size=4)


class Pool:
    def get_num_free_blocks(self) -> int:
        return 9


def fake_manager() -> Any:
    pool = Pool()
    managers = [SimpleNamespace(block_pool=pool)]
    return SimpleNamespace(
        block_pool=pool,
        kv_cache_config=SimpleNamespace(kv_cache_groups=[Group()]),
        coordinator=SimpleNamespace(single_type_managers=managers),
    )


def request_of(name: str, tokens: list[int], salt: str | None = None) -> Any:
    return SimpleNamespace(
        request_id=name,
        cache_salt=salt,
        block_hashes=[],
        all_token_ids=tokens,
        num_tokens=len(tokens),
    )


def contents_of(names: Names, request: Any) -> Any:
    return names.new_contents(names.of(request), request).get("contents", ())


def test_equal_prefixes_have_equal_numbers_and_nothing_else_has() -> None:
    names = Names(2, own_classes=True, number=None)
    assert contents_of(names, request_of("a", [5, 6, 7, 8, 9])) == (1, 2)
    assert contents_of(names, request_of("b", [5, 6, 7, 8])) == (1, 2)
    assert contents_of(names, request_of("c", [7, 8, 7, 8])) == (3, 4)
    assert contents_of(names, request_of("d", [5, 6, 9, 9])) == (1, 5)
    assert contents_of(names, request_of("e", [5, 6], salt="s")) == (6,)


def test_hashes_that_do_not_agree_with_the_tokens_are_told_apart() -> None:
    names = Names(2, own_classes=True, number=None)
    first, second = request_of("a", [1, 2]), request_of("b", [3, 4])
    first.block_hashes = second.block_hashes = [b"same"]
    assert names.new_contents(names.of(first), first) == {"contents": (1,)}
    assert names.new_contents(names.of(second), second) == {"contents": (2,), "hashes": (1,)}


def test_numbers_of_another_process_are_not_to_be_guessed() -> None:
    salts = {Names(2, True, None)._salt for _ in range(4)}
    assert len(salts) == 4


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("level", ["manager", "scheduler"])
def test_a_log_of_each_release_has_a_header_and_calls_with_results(
    version: str, level: str, tmp_path: Path
) -> None:
    logs = recorded(version, level, tmp_path, RUNS)
    assert len(logs) == RUNS
    words: set[str] = set()
    for log in logs:
        header, *calls = records_of(log)
        assert header["kvproof_calls"] == recorder_module.FORMAT
        assert header["vllm"] == version
        assert all("free" in call for call in calls)
        words |= {call["call"] for call in calls}
    assert {"lookup", "allocate", "free", "scheduled", "command", "report"} <= words
    assert ("advance" in words) == (version >= "0.32.0")
    assert ("residency" in words) == (version >= "0.32.0")
    assert "other" not in words


def test_no_token_and_no_name_of_a_request_is_in_a_log(tmp_path: Path) -> None:
    (log, *_) = recorded("0.33.0", "scheduler", tmp_path, 1)
    text = log.read_text()
    assert "1001" not in text  # tokens of the families are 1000 and more, blocks are few
    assert not any(str(token) in text for token in (1_000_001, 2_000_001, 2_001))


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "calls.ndjson").write_text("mine")
    logs = recorded("0.33.0", "scheduler", tmp_path, 1)
    assert [log.name for log in logs] == ["calls-1.ndjson", "calls.ndjson"]
    assert (tmp_path / "calls.ndjson").read_text() == "mine"


def test_a_failing_recorder_stops_says_so_and_raises_nothing(capsys: Any) -> None:
    lines: list[dict[str, Any]] = []
    tap = Tap(fake_manager(), lines.append)
    tap.note(lambda: {"call": "step"})
    tap.note(lambda: {"call": str(1 // 0)})
    assert [line["call"] for line in lines] == ["step", "stopped"]
    assert "ZeroDivisionError" in lines[1]["reason"]
    assert tap.stopped
    assert recorder_module.tap_of(tap.manager) is None
    assert "stopped recording" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_stops_the_recorder_and_raises_nothing(capsys: Any) -> None:
    def full(_: dict[str, Any]) -> None:
        raise OSError("no space left")

    tap = Tap(fake_manager(), full)
    tap.note(lambda: {"call": "step"})
    assert tap.stopped
    assert "OSError on the log" in capsys.readouterr().err


def test_a_strict_tap_raises_what_fails_in_it() -> None:
    tap = Tap(fake_manager(), lambda record: None, strict=True)
    with pytest.raises(ZeroDivisionError):
        tap.note(lambda: {"call": str(1 // 0)})


def test_without_vllm_there_is_nothing_to_record_and_that_is_said() -> None:
    with pytest.raises(RuntimeError, match="KVCacheManager"):
        recorder_module.start("calls.ndjson")


def test_the_plugin_does_nothing_without_its_variable_and_never_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv(recorder_module.VARIABLE, raising=False)
    recorder_module.register()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(recorder_module.VARIABLE, "calls.ndjson")
    recorder_module.register()
    assert "not recording" in capsys.readouterr().err


def test_the_module_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    module = write_recorder(tmp_path / "kvproof_recorder.py")[0]
    tree = ast.parse(module.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
         "import kvproof_recorder; print(kvproof_recorder.FORMAT)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(recorder_module.FORMAT)


def test_a_folder_is_found_as_a_plugin_of_vllm(tmp_path: Path) -> None:
    assert run(["record", "--out", str(tmp_path / "recorder")]) == 0
    (found,) = distributions(path=[str(tmp_path / "recorder")])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == ("vllm.general_plugins", "kvproof_recorder:register")
    assert (tmp_path / "recorder" / "kvproof_recorder.py").is_file()


def test_a_place_that_cannot_be_written_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "file").write_text("")
    assert run(["record", "--out", str(tmp_path / "file" / "below")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_header_says_what_the_engine_was_started_with(tmp_path: Path) -> None:
    (log, *_) = recorded("0.33.0", "manager", tmp_path, 1)
    header = json.loads(log.read_text().splitlines()[0])
    assert header["features"] == []
    assert [group["role"] for group in header["groups"][:2]] == [
        "HISPARSE_SOURCE",
        "HISPARSE_INDEXER",
    ]
