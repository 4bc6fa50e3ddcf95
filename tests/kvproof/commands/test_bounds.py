"""The numbers of a deployment: each with a theorem, and what allocators do at just these counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lone_requests import hardest_steps, lone_program

from invariants.proofs.catalogue import OBLIGATIONS
from kvproof.cli import run
from kvproof.gate.table import EXPECTED, FREE_BLOCKS
from kvproof.subjects.names import open_subject
from kvproof.theorems.deployment import MOST_ROWS, Deployment, Row, bounds_of, row_at
from model.manager.actions import Action, Admit, Arrive, CompleteTransfers, EndStep, Finish, Hold
from model.manager.events import Admitted, Raised, Refused
from model.manager.program import ManagerProgram
from model.pool import NULL
from model.program import Program
from model.releases import DIALECTS
from model.startup import minimum_blocks
from model.trace import Trace

THEOREMS = {obligation.id: obligation for obligation in OBLIGATIONS}
SEEDS = Deployment(
    blocks=64,
    hot=2,
    block_size=16,
    max_model_len=128,
    max_in_flight=128,
    dialect=DIALECTS["vllm-0.33.0"],
    prefix_pages=3,
    prompt=64,
)
"""The engine and the request of the seeds' table."""


# What allocators do


def program_at(d: Deployment, free: int) -> ManagerProgram:
    """Somebody leaves the prefix and its copies; the request finds ``free`` blocks."""
    c = replace(d.configuration, num_host_blocks=400)
    actions: list[Action] = []
    shared = d.prefix_pages * d.block_size
    if shared:
        actions += [Arrive(0, shared, shared), Admit(0, shared), EndStep(),
                    CompleteTransfers(0, 99), Finish(0)]  # fmt: skip
    if d.watermark:
        actions += [Arrive(1, 0, 1), Admit(0, 1), EndStep()]
    actions += [Hold(free), Arrive(0, shared, d.prompt_tokens), Admit(0, 10**9), EndStep()]
    return Program(c, tuple(actions))


def found(d: Deployment, trace: Trace) -> Row:
    """What became of the request of ``program_at``."""
    at = len(trace.program.actions) - 2
    before = trace.steps[at - 1].snapshot
    assert before is not None
    free, answer = len(before.gpu.free), trace.steps[at].response[-1]
    if isinstance(answer, Refused):
        return Row(free, "refused", 0, 0)
    if isinstance(answer, Raised):
        assert answer.kind == "OutOfBlocks"
        return Row(free, "crash", 0, 0)
    assert isinstance(answer, Admitted)
    after = trace.steps[-1].snapshot
    assert after is not None
    (request,) = (r for r in after.requests if r.id == answer.request)
    copies = {
        block
        for step in trace.steps[:at]
        if step.snapshot is not None
        for _, *blocks in step.snapshot.copies
        for block in blocks
    }
    popped = {block for row in answer.blocks[1:] for block in row}  # the first is the host's
    rows = [row[: d.prefix_pages] for row in request.resident]
    pages = sum(all(block != NULL for block in page) for page in zip(*rows, strict=True))
    return Row(free, "admitted", len((copies & set(before.gpu.free)) - popped), pages)


def free_counts(d: Deployment) -> range:
    """From one less than the need to one more than keeps all.

    Where copies are queued behind the hit, a pool with fewer blocks than both has no whole hit.
    """
    numbers = bounds_of(d).numbers
    name = "keeps_all_copies" if d.prefix_pages else "cold_admitted"
    first, last = (int(numbers[n].value or 0) for n in (f"{kind(d)}_admitted", name))
    whole_hit = d.prefix_pages + d.copies if d.dialect.copies_behind_release else 0
    return range(max(first - 1, whole_hit, 0), last + 2)


def kind(d: Deployment) -> str:
    return "hit" if d.prefix_pages else "cold"


def compare(subject_name: str, d: Deployment) -> None:
    counts = list(free_counts(d))
    with open_subject(subject_name) as subject:
        traces = subject.run_many([program_at(d, free) for free in counts], "all")
        rows = [found(d, trace) for trace in traces]
    assert [row.free for row in rows] == counts
    assert rows == [row_at(d, free) for free in counts]


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    size = draw(st.integers(1, 4))
    pages = draw(st.integers(0, 4))
    more = draw(st.integers(1, 9))
    in_flight = draw(st.integers(max(pages * size, 1), 20))
    return Deployment(
        blocks=200,
        hot=draw(st.integers(1, 3)),
        block_size=size,
        max_model_len=pages * size + more + draw(st.integers(2, 5)),
        max_in_flight=in_flight,
        dialect=draw(st.sampled_from(list(DIALECTS.values()))),
        prefix_pages=pages,
        resident_groups=draw(st.integers(1, 3)),
        watermark=draw(st.sampled_from((0, 0, 1, 3))),
        prompt=pages * size + more,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(deployments())
def test_the_model_does_what_the_numbers_say_at_each_count_of_free_blocks(d: Deployment) -> None:
    """Refused one below the least, admitted there; crash window and copies kept, count by count."""
    compare(f"reference:{d.dialect.name}", d)


HANDFUL = [
    SEEDS,
    replace(SEEDS, resident_groups=2, hot=1, prompt=100, max_in_flight=64),
    replace(SEEDS, block_size=4, prefix_pages=5, resident_groups=3, prompt=40, watermark=2),
    replace(SEEDS, prefix_pages=0, max_in_flight=48),
]


@pytest.mark.parametrize("version", ["0.30.0", "0.31.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("deployment", HANDFUL, ids=range(len(HANDFUL)))
def test_a_release_does_what_the_numbers_say(deployment: Deployment, version: str) -> None:
    d = replace(deployment, blocks=200, dialect=DIALECTS[f"vllm-{version}"])
    compare(f"vllm=={version}", d)


def test_numbers_of_another_dialect_are_seen_to_be_wrong() -> None:
    with pytest.raises(AssertionError):
        compare("reference:vllm-0.30.0", SEEDS)


@pytest.mark.parametrize("column", EXPECTED)
def test_the_seeds_table_comes_out_of_the_numbers(column: str) -> None:
    """The request's last page is computed anew: its old indexer block lies behind the copies,
    unless they are queued behind the release."""
    behind = 1 if column == "deferred" else 0
    d = replace(SEEDS, dialect=DIALECTS[column], behind=behind)
    words = {"refused": "rejected", "crash": "crash"}
    cells = [row_at(d, free) for free in FREE_BLOCKS]
    assert tuple(words.get(r.outcome, f"{r.pages}/3") for r in cells) == EXPECTED[column]


@pytest.mark.parametrize("name", ["vllm-0.30.0", "vllm-0.33.0"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_lone_request_stalls_on_one_block_less_than_the_least_pool(
    name: str, asynchronous: bool
) -> None:
    """Of each way of cutting it into steps, on the model; synchronous steps on a release too."""
    d = Deployment(40, 1, 4, 33, 16, DIALECTS[name], asynchronous=asynchronous)
    least = int(bounds_of(d).numbers["least_pool_alone"].value or 0)
    release = [] if asynchronous else [name.replace("-", "==")]
    for subject_name in (f"reference:{name}", *release):
        for blocks, stalls in ((least - 1, True), (least, False)):
            c = replace(d, blocks=blocks).configuration
            refused = False
            with open_subject(subject_name) as subject:
                programs = [lone_program(c, steps) for steps in hardest_steps(c)]
                for trace in subject.run_many(programs, "none"):
                    refused |= any(isinstance(s.response[-1], Refused) for s in trace.steps)
            assert refused == stalls, (subject_name, blocks)


# Theorems


def all_deployments() -> Iterator[Deployment]:
    for dialect, pages, watermark in product(DIALECTS.values(), (0, 3), (0, 5)):
        for groups, behind, in_flight in product((1, 2), (0, 2), (32, 128)):
            yield replace(
                SEEDS, dialect=dialect, prefix_pages=pages, watermark=watermark,
                resident_groups=groups, behind=behind, max_in_flight=in_flight,
            )  # fmt: skip


def test_every_number_has_a_theorem_that_is_proved() -> None:
    used: set[str] = set()
    for d in all_deployments():
        bounds = bounds_of(d)
        used |= {bound.theorem for bound in bounds.numbers.values()}
        if bounds.rows:
            used.add(bounds.rows_theorem)
    assert {theorem: THEOREMS[theorem].expected for theorem in used} == dict.fromkeys(
        used, "proved"
    )
    assert len(used) >= 9


# Rows


def test_the_rows_of_a_large_pool_are_few_and_have_every_change() -> None:
    d = replace(
        SEEDS, blocks=100_000, block_size=16, max_model_len=200_001, max_in_flight=8_192,
        prefix_pages=5_000, prompt=100_000, resident_groups=2, dialect=DIALECTS["vllm-0.30.0"],
    )  # fmt: skip
    bounds = bounds_of(d)
    assert 10 < len(bounds.rows) <= MOST_ROWS + 10
    outcomes = {row.free: row.outcome for row in bounds.rows}
    crash_from, crash_to = (int(bounds.numbers[n].value or 0) for n in ("crash_from", "crash_to"))
    assert outcomes[crash_from - 1] == "refused"
    assert crash_from in outcomes  # here no page is whole then: another order of copies crashes
    assert outcomes[crash_to] == "crash"
    assert outcomes[crash_to + 1] == "admitted"


def test_the_rows_go_no_further_than_the_pool() -> None:
    rows = bounds_of(replace(SEEDS, blocks=9)).rows
    assert [row.free for row in rows] == [6, 7, 8]


# The command


ARGUMENTS = ["bounds", "--hot", "2", "--block-size", "16", "--max-model-len", "128",
             "--max-in-flight", "32"]  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run([*ARGUMENTS, *arguments, "--check", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_json_has_each_number_with_its_theorem_and_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, data = told(capsys, "--blocks", "64", "--prefix-pages", "3", "--dialect", "deferred")
    assert code == 0
    numbers = {key: value for key, value in data.items() if isinstance(value, dict)}
    deployment = numbers.pop("deployment")
    assert deployment["copies"] == 3
    assert set(numbers) == {
        "startup_minimum", "least_pool_alone", "pool_suffices",
        "cold_step_gate", "cold_full_sequence_gate", "cold_admitted",
        "hit_step_gate", "hit_full_sequence_gate", "hit_admitted",
        "crash_from", "crash_to", "keeps_all_copies", "by_free_blocks",
    }  # fmt: skip
    assert all(set(number) == {"value", "theorem", "sentence"} for number in numbers.values())
    assert numbers["crash_from"]["value"] is None
    assert numbers["pool_suffices"]["value"] is True
    assert data["verdict"] == "clean"
    assert data["findings"] == []


def test_without_a_prefix_there_are_no_numbers_of_a_hit(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = told(capsys, "--blocks", "64")
    assert code == 0
    assert not [key for key in data if key.startswith(("hit", "crash", "keeps", "by_"))]


def test_a_pool_that_is_enough_to_start_but_not_to_finish_is_a_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """K5: the start-up check of 0.33.0 accepts pools on which a lone request stalls."""
    _, data = told(capsys, "--blocks", "64")
    startup, alone = data["startup_minimum"]["value"], data["least_pool_alone"]["value"]
    assert startup == minimum_blocks(replace(SEEDS, max_in_flight=32).configuration, SEEDS.dialect)
    assert startup < alone
    for blocks, code, finding in (
        (startup - 1, 1, "the engine does not start"),
        (startup, 1, "a lone request of the longest length can stall"),
        (alone - 1, 1, "a lone request of the longest length can stall"),
        (alone, 0, None),
    ):
        result, data = told(capsys, "--blocks", str(blocks))
        assert result == code
        assert len(data["findings"]) == code
        assert finding is None or finding in data["findings"][0]
        assert data["pool_suffices"]["value"] == (code == 0)


def test_the_check_of_0_30_0_does_not_keep_a_small_pool_from_starting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, data = told(capsys, "--blocks", "15", "--dialect", "vllm-0.30.0")
    assert code == 1
    assert "the check of 0.30.0 leaves resident pages out" in data["findings"][0]
    assert "can stall: it may need a pool of 19 blocks" in data["findings"][1]


def test_a_crash_window_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--blocks", "64", "--prefix-pages", "3", "--prompt-tokens", "64")
    code, data = told(capsys, *arguments, "--dialect", "vllm-0.30.0")
    assert (code, data["verdict"]) == (1, "counterexample")
    assert data["findings"] == ["a hit of 3 pages can kill the engine at 7 to 9 free blocks"]
    assert (data["crash_from"]["value"], data["crash_to"]["value"]) == (7, 9)


def test_a_watermark_as_large_as_the_copies_closes_the_crash_window(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("--blocks", "64", "--prefix-pages", "3", "--prompt-tokens", "64")
    code, data = told(capsys, *arguments, "--dialect", "vllm-0.30.0", "--watermark", "3")
    assert (code, data["crash_from"]["value"]) == (0, None)


def test_a_watermark_that_lets_nobody_in_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = told(capsys, "--blocks", "64", "--watermark", "60")
    assert code == 1
    assert "is never admitted beside others" in data["findings"][0]


def test_people_see_the_numbers_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(
        [*ARGUMENTS, "--blocks", "64", "--prefix-pages", "3", "--dialect", "eager", "--check"]
    )
    shown = capsys.readouterr().out
    assert code == 1
    for part in ("hit_admitted", "least-free", "copies kept", "can kill the engine"):
        assert part in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--blocks", "1"], "--blocks"),
        (["--blocks", "64", "--hot", "0"], "--hot"),
        (["--blocks", "64", "--prefix-pages", "-1"], "--prefix-pages"),
        (["--blocks", "64", "--prefix-pages", "8"], "hits at most 7 pages of 16"),
        (["--blocks", "64", "--prompt-tokens", "128"], "give at most 127"),
        (["--blocks", "64", "--dialect", "nonsense"], "there is no dialect 'nonsense'"),
        (["--blocks", "64", "--async-scheduling", "--max-in-flight", "31"], "so it is even"),
        (["--blocks", "64", "--plot", "a.html"], "say of how many --prefix-pages"),
        (["--blocks", "64", "--prefix-pages", "1", "--plot", "a.gif"], "ends in .html, .png, .svg"),
        (["--blocks", "64", "--prefix-pages", "1", "--plot", "/nowhere/a.html"], "--plot"),
        ([], "--blocks"),
    ],
)
def test_bad_input_is_one_line(
    arguments: Iterable[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ARGUMENTS, *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


# The picture


def plotted(path: Path, *arguments: str) -> bytes:
    wanted = ["--blocks", "64", "--prefix-pages", "3", "--dialect", "eager", *arguments]
    assert run([*ARGUMENTS, *wanted, "--plot", str(path)]) == 0
    return path.read_bytes()


def test_a_page_has_the_picture_all_numbers_and_their_proofs(tmp_path: Path) -> None:
    page = plotted(tmp_path / "a.html").decode()
    assert page.count("<svg") == 1
    for part in ("copies kept", "crash", "keeps_all_copies", "kvproof prove --only eager-bound",
                 "can kill the engine"):  # fmt: skip
        assert part in page


@pytest.mark.parametrize(("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_picture_is_drawn_and_equal_numbers_give_equal_bytes(
    tmp_path: Path, kind: str, magic: bytes
) -> None:
    first = plotted(tmp_path / f"a.{kind}", "--resident-groups", "2")
    assert first.startswith(magic)
    assert plotted(tmp_path / f"b.{kind}", "--resident-groups", "2") == first
    assert plotted(tmp_path / f"c.{kind}", "--resident-groups", "1") != first


def test_without_matplotlib_a_plot_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    wanted = ["--blocks", "64", "--prefix-pages", "3", "--plot", str(tmp_path / "a.svg")]
    assert run([*ARGUMENTS, *wanted]) == 2
    assert "--plot needs matplotlib: install kvproof[plot]\n" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_no_verdict_unless_they_are_to_be_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = [*ARGUMENTS, "--blocks", "64", "--prefix-pages", "3", "--dialect", "eager", "--json"]
    assert run(wanted) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "counterexample"
    assert run([*wanted, "--check"]) == 1
