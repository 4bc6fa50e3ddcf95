"""The wording of a finding, pinned."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from invariants.manager.judge import initial_snapshot
from invariants.violation import Cause, Violation
from kvproof.reports.words.finding import describe_finding
from kvproof.reports.words.manager import MANAGER_WORDS, describe_action
from kvproof.reports.words.state import differing_parts
from model.events import PlainResponse
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    EvictBlocks,
    Extend,
    Finish,
    Hold,
    Output,
    Preempt,
    Reset,
)
from model.manager.events import read
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.snapshot import Snapshot
from model.trace import Ending, Step, Trace
from specs.casefile import read_case

ROOT = Path(__file__).parents[3]
PROGRAM = read_case(ROOT / "specs/corpus/manager/k1-adoption-before-allocation.json").program
CRASH = Violation(
    "I4", 7, Cause.OUT_OF_BLOCKS, ("the allocation was admitted, then raised OutOfBlocks",)
)
SENTENCE = "An allocation takes at most what the predictor promised, and never raises."


def trace_of(dialect: str) -> Trace:
    allocator = ReferenceAllocator(PROGRAM.configuration, DIALECTS[dialect])
    session = Session(PROGRAM.configuration, allocator)
    steps = []
    for action in PROGRAM.actions:
        response = session.do(action)
        steps.append(Step(response, "", session.snapshot()))
    ending: Ending = "raised" if session.dead else "ended"
    return Trace(f"reference:{dialect}", PROGRAM, tuple(steps), ending, session.failure)


def shown(
    violation: Violation = CRASH,
    *traces: Trace,
    width: int = 110,
    color: bool = False,
    **given: object,
) -> str:
    out = StringIO()
    system: Literal["standard"] | None = "standard" if color else None
    console = Console(file=out, width=width, force_terminal=color, color_system=system)
    for part in describe_finding(
        MANAGER_WORDS,
        violation,
        SENTENCE,
        PROGRAM,
        traces,
        **given,  # type: ignore[arg-type]
    ):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


PLAIN_BLOCKS = ((5, 6),)
ROWS = ((1,), (2, 3), (4,), (), (7,), ())
ACTIONS: list[tuple[Action, PlainResponse, str]] = [
    (Arrive(), (("arrived", 3, 1),), "request 3 arrives: 1 prompt token"),
    (Arrive(shared=2, prompt=7), (("idle",),), "Arrive(shared=2, prompt=7): not possible now"),
    (
        Admit(),
        (("admitted", 1, 16, (5, 4), 4, ROWS, 12),),
        "admit request 1: 16 tokens, hit 12 tokens, promised 4 blocks → "
        "blocks host [1] indexer [2 3] resident 0 [4] hot 0 [7]",
    ),
    (
        Admit(),
        (("output", 1), ("admitted", 0, 8, (2,), 2, PLAIN_BLOCKS, 0)),
        "output arrives: 1 new token; "
        "admit request 0: 8 tokens, hit 0 tokens, promised 2 blocks → blocks full [5 6]",
    ),
    (
        Admit(),
        (("refused", 2, 9, (7,), 4),),
        "admit request 2: 9 tokens, hit 4 tokens, promised 7 blocks → refused",
    ),
    (
        Extend(),
        (("extended", 0, 1, (0,), 0, ((), (), (), ())),),
        "extend request 0: 1 token, promised 0 blocks → blocks none",
    ),
    (
        Extend(),
        (("refused", 0, 4, (3,), 1),),
        "extend request 0: 4 tokens, promised 3 blocks → refused, "
        "host writes will give blocks back",
    ),
    (
        Extend(),
        (("refused", 0, 4, (3,), 0),),
        "extend request 0: 4 tokens, promised 3 blocks → refused",
    ),
    (
        Extend(tokens=4),
        (("raised", "KeyError"),),
        "extend a running request: 4 tokens → raised KeyError",
    ),
    (Finish(request=2), (("raised", "KeyError"),), "Finish(request=2) → raised KeyError"),
    (
        EndStep(),
        (("step", 2, ((4, 0, 9, 5, 6),), ((0, 1, 5),), (0, 0)), ("output", 2), ("ended", 0)),
        "end of step: 2 requests, host writes 4 (request 0, [5 6] to host 9), 1 residency update; "
        "output arrives: 2 new tokens; free request 0: it ended",
    ),
    (EndStep(), (("step", 0, (), (), ()),), "end of step: 0 requests"),
    (Output(), (("output", 0),), "output arrives: 0 new tokens"),
    (CompleteTransfers(), (("completed", 4, 5),), "host writes complete: [4 5]"),
    (Preempt(), (("preempted", 1),), "preempt request 1: its blocks are freed"),
    (
        Finish(),
        (("deferred", 1), ("ended", 1)),
        "request 1's blocks wait for the steps in flight; free request 1: it ended",
    ),
    (Reset(), (("reset", 1),), "reset the prefix cache → done"),
    (Reset(), (("reset", 0),), "reset the prefix cache → refused"),
    (EvictBlocks(), (("evicted", 0, 2),), "evict the block of page 2 of request 0"),
    (Hold(), (("held", 7),), "take blocks until 7 are free"),
]


@pytest.mark.parametrize(("action", "response", "words"), ACTIONS, ids=[row[2] for row in ACTIONS])
def test_an_action_is_told_as_the_calls_it_came_to(
    action: Action, response: PlainResponse, words: str
) -> None:
    assert describe_action(action, read(response, action)) == words


def describe_change(before: Snapshot | None, after: Snapshot) -> list[str]:
    return [f"{part}: {old} → {new}" for part, (old, new) in differing_parts(before, after)]


def test_a_change_of_state_is_told_part_by_part() -> None:
    steps = trace_of("vllm-0.33.0").steps
    before, after = snapshot(steps[0]), snapshot(steps[1])
    assert changes(before, after) == [
        "gpu free queue: [1 2 3 4 5 6 7] → [3 4 5 6 7]",
        "gpu references of [1 2]: 0 → 1",
        "host free queue: [1 2 3 4] → [2 3 4]",
        "host references of [1]: 0 → 1",
        "request 0 status: waiting → running",
        "gpu block 1 hash: - → content 1 of group 1",
        "gpu hash map, content 1 of group 1: - → [1]",
        "request 0 host table: - → [1]",
        "request 0 indexer table: - → [1]",
        "request 0 resident table: - → [2]",
        "request 0 resident row 0: - → [2]",
        "request 0 scheduled: - → 16",
        "request 0 indexer cached: - → 1",
        "request 0 publication: - → [1]",
    ]


def changes(*snapshots: Snapshot) -> list[str]:
    return [f"{part}: {' → '.join(words)}" for part, words in differing_parts(*snapshots)]


def test_equal_states_have_no_change() -> None:
    state = initial_snapshot(PROGRAM.configuration, DIALECTS["vllm-0.33.0"])
    assert differing_parts(state, state) == []
    assert ("gpu free queue", ("-", "[1 2 3 4 5 6 7]")) in differing_parts(None, state)


def snapshot(step: Step) -> Snapshot:
    assert step.snapshot is not None
    return step.snapshot


FINDING = """\
I4  An allocation takes at most what the predictor promised, and never raises.
first failing step: 8 of 8
  the allocation was admitted, then raised OutOfBlocks
configuration: block_size=16, num_blocks=8, num_host_blocks=5, max_model_len=48, max_num_batched_tokens=32
 1  request 0 arrives: 47 prompt tokens
 2  admit request 0: 16 tokens, hit 0 tokens, promised 2 blocks → blocks host [1] indexer [1] resident [2]
 3  end of step: 1 request, host writes 0 (request 0, [2] to host 1); output arrives: 0 new tokens
 4  host writes complete: [0]
 5  extend request 0: 31 tokens, promised 4 blocks → blocks host [2 3] indexer [3 4] resident [5 6]
 6  end of step: 1 request, host writes 1 (request 0, [5] to host 2); output arrives: 1 new token; free
    request 0: it ended
 7  request 1 arrives: 33 prompt tokens
>8  admit a waiting request: 17 tokens → raised OutOfBlocks
reference:vllm-0.30.0: Cannot get 1 free blocks from the pool
what changed in the state:
                                    before                reference:vllm-0.30.0
gpu free queue                      [6 4 7 2 3 1]         []
gpu references of [1 2 3 4 6 7]     0                     1
gpu block 3 hash                    content 2 of group 1  -
gpu hash map, content 2 of group 1  [3]                   -
host free queue                     [3 4 1]               []
host references of [1 3 4]          0                     1
"""  # noqa: E501 - a screen as it is


def test_a_finding_names_rule_step_calls_changes_and_how_to_replay_it() -> None:
    told = shown(
        CRASH,
        trace_of("vllm-0.30.0"),
        seed=7,
        versions=("kvproof 0.1.0", "vllm 0.30.0"),
        case_file="found/my trace.json",
    )
    assert told.startswith(FINDING)
    assert told.endswith(
        "seed 7, kvproof 0.1.0, vllm 0.30.0\n"
        "replay it: kvproof replay 'found/my trace.json' --subject reference:vllm-0.30.0"
    )


def test_model_and_engine_stand_side_by_side_where_they_differ() -> None:
    told = shown(
        replace(CRASH, rule="lockstep"),
        trace_of("vllm-0.31.0"),
        trace_of("vllm-0.30.0"),
        width=150,
    )
    lines = told.splitlines()
    assert lines[0].startswith("lockstep  ")
    assert ">8  reference:vllm-0.31.0: admit request 1: 17 tokens, hit 16 tokens" in told
    assert "    reference:vllm-0.30.0: admit a waiting request: 17 tokens → raised" in told
    (row,) = [line for line in lines if line.startswith("request 1 resident row 0")]
    assert row.split("  ")[-1].strip() == "[2 7 3]"
    assert not any(line.startswith("host write 1") and "lease" in line for line in lines[:12])
    same = " 2  admit request 0: 16 tokens, hit 0 tokens, promised 2 blocks → blocks host [1]"
    assert sum(line.startswith(same) for line in lines) == 1


def test_a_subject_that_died_is_told_by_its_ending() -> None:
    whole = trace_of("vllm-0.33.0")
    hung = replace(whole, steps=whole.steps[:4], ending="hung", failure="no answer in 10 s")
    told = shown(Violation("hang", 4, Cause.HUNG, ()), hung)
    assert ">5  Extend(tokens=31) → hung" in told
    assert "reference:vllm-0.33.0: no answer in 10 s" in told
    assert "what changed" not in told


def test_a_known_defect_is_named() -> None:
    assert shown(replace(CRASH, known="K1")).startswith("I4 (known defect K1)  An allocation")


def test_colours_are_for_terminals_and_no_color_is_respected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = trace_of("vllm-0.30.0")
    assert "\x1b[31m" in shown(CRASH, trace, color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown(CRASH, trace, color=True)
