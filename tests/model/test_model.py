"""The reference allocator in small sentences: the pool, admission, preemption, release."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.subjects.reference import reference_subject
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
from model.manager.configuration import Configuration
from model.manager.events import (
    IDLE,
    Admitted,
    CacheReset,
    Deferred,
    Ended,
    ExtensionRefused,
    Preempted,
    Response,
)
from model.manager.program import MANAGER
from model.manager.session import Session
from model.pool import NULL, OutOfBlocksError, Pool
from model.program import Program, program_to_json
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.state import State
from specs.manager.generator import draw_program

ROOT = Path(__file__).parents[2]
NEWEST = "vllm-0.33.0"
KEY, OTHER_KEY = (0, 7), (0, 8)
ALL = 99
"""More tokens, or transfers, than there are."""

ReferenceSession = Session[Any, Any]


# The pool


def pool_of(
    size: int, caching: bool = True, null_counted: bool = False, reused: list[int] | None = None
) -> Pool:
    reused = [] if reused is None else reused
    return Pool(size, caching, null_counted, reused.append)


def test_blocks_are_handed_out_from_the_head_in_order() -> None:
    pool = pool_of(6)
    assert pool.take(2) == [1, 2]
    assert pool.take(3) == [3, 4, 5]


def test_taking_more_than_is_free_raises_and_changes_nothing() -> None:
    pool = pool_of(4)
    with pytest.raises(OutOfBlocksError, match="Cannot get 4 free blocks"):
        pool.take(4)
    assert (pool.free, pool.counts, pool.popped) == ([1, 2, 3], [0, 0, 0, 0], 0)


def test_taking_nothing_from_an_empty_pool_is_fine() -> None:
    pool = pool_of(1)
    assert pool.take(0) == []


@pytest.mark.parametrize(
    ("caching", "with_key", "released", "queue"),
    [
        (True, (), [1, 2], [1, 2, 3, 4]),
        (True, (), [2, 1], [2, 1, 3, 4]),
        (True, (1, 2), [1, 2], [3, 4, 1, 2]),
        (True, (1, 2), [2, 1], [3, 4, 2, 1]),
        (True, (1,), [1, 2], [2, 3, 4, 1]),
        (False, (1, 2), [1, 2], [1, 2, 3, 4]),
    ],
)
def test_freed_blocks_go_to_the_tail_if_they_can_be_found_else_to_the_head(
    caching: bool, with_key: Sequence[int], released: list[int], queue: list[int]
) -> None:
    pool = pool_of(5, caching)
    pool.take(2)
    for block in with_key:
        pool.insert((0, block), block)
    pool.release(released)
    assert pool.free == queue


def test_a_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = pool_of(3)
    pool.take(1)
    pool.touch([1])
    pool.release([1])
    assert pool.free == [2]
    pool.release([1])
    assert pool.free == [1, 2]


def test_touching_a_free_block_takes_it_out_of_the_queue() -> None:
    pool = pool_of(4)
    pool.touch([2])
    assert (pool.free, pool.counts[2]) == ([1, 3], 1)


def test_of_several_blocks_under_one_key_the_oldest_is_found() -> None:
    pool = pool_of(4)
    pool.insert(KEY, 3)
    pool.insert(KEY, 1)
    assert pool.find(KEY) == 3


def test_evicting_the_oldest_promotes_the_next() -> None:
    pool = pool_of(4)
    pool.insert(KEY, 3)
    pool.insert(KEY, 1)
    pool.evict(3)
    assert pool.find(KEY) == 1
    pool.evict(1)
    assert pool.find(KEY) is None


def test_a_block_is_inserted_under_its_key_once() -> None:
    pool = pool_of(4)
    pool.insert(KEY, 3)
    pool.insert(KEY, 3)
    pool.evict(3)
    assert pool.find(KEY) is None


def test_a_block_that_is_handed_out_can_no_longer_be_found() -> None:
    pool = pool_of(4)
    pool.insert(KEY, 1)
    pool.insert(OTHER_KEY, 2)
    pool.take(1)
    assert pool.find(KEY) is None
    assert pool.find(OTHER_KEY) == 2


@pytest.mark.parametrize("caching", [True, False])
def test_an_unpinned_block_goes_to_the_tail_with_or_without_a_key(caching: bool) -> None:
    pool = pool_of(4, caching)
    pool.take(1)
    pool.unpin(1)
    assert pool.free == [2, 3, 1]


def test_a_watcher_fires_when_its_block_is_handed_out_and_once_only() -> None:
    reused: list[int] = []
    pool = pool_of(3, reused=reused)
    pool.take(1)
    pool.unpin(1)
    assert reused == []
    assert pool.take(2) == [2, 1]
    assert reused == [1]
    pool.release([1])
    pool.take(1)
    assert reused == [1]


def test_a_watcher_fires_before_the_key_is_evicted() -> None:
    seen: list[int | None] = []
    pool = Pool(3, True, False, lambda block: seen.append(pool.find(KEY)))
    pool.take(2)
    pool.insert(KEY, 1)
    pool.unpin(1)
    pool.take(1)
    assert seen == [1]


def test_touching_leaves_the_watcher_armed() -> None:
    reused: list[int] = []
    pool = pool_of(2, reused=reused)
    pool.take(1)
    pool.unpin(1)
    pool.touch([1])
    pool.release([1])
    pool.take(1)
    assert reused == [1]


def test_a_watcher_is_set_while_others_still_hold_the_block() -> None:
    pool = pool_of(3)
    pool.take(1)
    pool.touch([1])
    pool.unpin(1)
    assert (pool.free, pool.watched) == ([2], {1})


def test_a_reset_is_refused_while_a_block_is_held() -> None:
    pool = pool_of(3)
    pool.insert(KEY, 2)
    pool.take(1)
    assert not pool.reset()
    assert pool.find(KEY) == 2


def test_a_reset_forgets_all_keys_and_fires_all_watchers() -> None:
    reused: list[int] = []
    pool = pool_of(3, reused=reused)
    pool.take(1)
    pool.insert(KEY, 1)
    pool.unpin(1)
    assert pool.reset()
    assert (pool.find(KEY), pool.keys, reused) == (None, {}, [1])


@pytest.mark.parametrize(("null_counted", "count"), [(True, 1), (False, 0)])
def test_the_null_block_is_held_by_nobody_and_counted_where_the_dialect_says(
    null_counted: bool, count: int
) -> None:
    pool = pool_of(3, null_counted=null_counted)
    pool.touch([NULL, NULL])
    pool.release([NULL])
    assert (pool.free, pool.counts) == ([1, 2], [count, 0, 0])


def test_the_null_block_never_counts_as_free() -> None:
    pool = pool_of(3)
    pool.take(1)
    assert pool.num_free([NULL, 1, 2]) == 1


# Admission

PLAIN = Configuration(block_size=4, num_blocks=8, num_host_blocks=0, max_model_len=24)
SPARSE = Configuration(block_size=4, num_blocks=24, num_host_blocks=12, max_model_len=24)


def session_of(configuration: Configuration, dialect: str = NEWEST) -> ReferenceSession:
    return Session(configuration, ReferenceAllocator(configuration, DIALECTS[dialect]))


def play(session: ReferenceSession, *actions: Action) -> Response:
    """Take actions; the response to the last."""
    return [session.do(action) for action in actions][-1]


def state_of(session: ReferenceSession) -> State:
    state = session.allocator.state  # type: ignore[attr-defined]
    assert isinstance(state, State)
    return state


def hit_of(response: Response) -> int:
    admitted = response[0]
    assert isinstance(admitted, Admitted)
    return admitted.hit


def first(response: Response) -> str:
    return response[0].word


def free_blocks(session: ReferenceSession) -> int:
    return len(state_of(session).gpu.free)


def life_of_a_prefix(tokens: int) -> tuple[Action, ...]:
    """A request computes tokens of family 0, writes its pages back, and ends."""
    return (
        Arrive(shared=tokens, prompt=tokens),
        Admit(tokens=tokens),
        EndStep(),
        CompleteTransfers(count=ALL),
        Finish(),
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refused_admission_changes_nothing(dialect: str) -> None:
    session = session_of(SPARSE, dialect)
    play(session, *life_of_a_prefix(12), Hold(2), Arrive(shared=12, prompt=12))
    before = session.snapshot()
    assert first(play(session, Admit(tokens=12))) == "refused"
    assert session.snapshot() == before


def test_a_refused_request_keeps_waiting_and_is_admitted_when_there_is_room() -> None:
    session = session_of(PLAIN)
    play(session, Arrive(prompt=20), Admit(tokens=20), Arrive(prompt=20))
    assert first(play(session, Admit(tokens=20))) == "refused"
    assert first(play(session, EndStep(), Finish(), Admit(tokens=20))) == "admitted"


def test_the_last_token_of_a_hit_is_computed_again() -> None:
    session = session_of(PLAIN)
    response = play(session, *life_of_a_prefix(8), Arrive(shared=8, prompt=8), Admit(tokens=8))
    admitted = response[0]
    assert isinstance(admitted, Admitted)
    assert (admitted.tokens, admitted.hit) == (4, 4)


def test_no_caching_means_no_hit() -> None:
    session = session_of(Configuration(num_host_blocks=0, prefix_caching=False))
    response = play(session, *life_of_a_prefix(8), Arrive(shared=8, prompt=8), Admit(tokens=8))
    assert hit_of(response) == 0


def test_a_salt_keeps_equal_prompts_apart() -> None:
    session = session_of(PLAIN)
    again = Arrive(shared=8, prompt=8, salt=1)
    response = play(session, *life_of_a_prefix(8), again, Admit(tokens=8))
    assert hit_of(response) == 0


@pytest.mark.parametrize(("watermark", "word"), [(2, "refused"), (1, "admitted"), (0, "admitted")])
def test_the_watermark_stays_free_beside_running_requests(watermark: int, word: str) -> None:
    """7 usable blocks, 4 held: a request of 2 leaves 1."""
    session = session_of(Configuration(num_blocks=8, num_host_blocks=0, watermark_blocks=watermark))
    play(session, Arrive(prompt=16), Admit(tokens=16), Arrive(prompt=8))
    assert first(play(session, Admit(tokens=8))) == word


@pytest.mark.parametrize(("whole", "word"), [(True, "refused"), (False, "admitted")])
def test_only_the_full_sequence_gate_looks_beyond_the_first_chunk(whole: bool, word: str) -> None:
    session = session_of(
        Configuration(num_blocks=5, num_host_blocks=0, full_sequence_must_fit=whole)
    )
    assert first(play(session, Arrive(prompt=20), Admit(tokens=4))) == word


# Preemption


def crowded(policy: str = "fcfs", **modes: Any) -> ReferenceSession:
    """Two running requests in a full pool, the first of which is refused its next block."""
    configuration = Configuration(
        block_size=4,
        num_blocks=5,
        num_host_blocks=0,
        max_model_len=16,
        policy="priority" if policy == "priority" else "fcfs",
        **modes,
    )
    session = session_of(configuration)
    play(session, Arrive(prompt=8), Admit(tokens=8), Arrive(prompt=8), Admit(tokens=8), EndStep())
    assert first(session.do(Extend(request=0))) == "refused"
    return session


def test_nobody_is_preempted_without_a_refusal() -> None:
    session = session_of(PLAIN)
    play(session, Arrive(prompt=4), Admit(tokens=4), EndStep())
    assert session.do(Preempt()) == IDLE


def test_nobody_is_preempted_when_something_happened_since_the_refusal() -> None:
    session = crowded()
    session.do(Arrive())
    assert session.do(Preempt()) == IDLE


@pytest.mark.parametrize("asked", [0, 1])
def test_under_fcfs_the_youngest_is_preempted_whoever_is_asked_for(asked: int) -> None:
    assert crowded().do(Preempt(request=asked)) == (Preempted(1),)


@pytest.mark.parametrize("asked", [0, 1])
def test_under_priority_any_running_request_is_preempted(asked: int) -> None:
    assert crowded("priority").do(Preempt(request=asked)) == (Preempted(asked),)


@pytest.mark.parametrize(("policy", "word"), [("fcfs", "idle"), ("priority", "preempted")])
def test_only_priority_preempts_a_request_that_this_step_has_scheduled(
    policy: str, word: str
) -> None:
    """5 of 6 usable blocks are held: the youngest gets the last, the oldest none."""
    configuration = Configuration(
        num_blocks=7, num_host_blocks=0, policy="priority" if policy == "priority" else "fcfs"
    )
    session = session_of(configuration)
    play(session, Arrive(prompt=12), Admit(tokens=12), Arrive(prompt=8), Admit(tokens=8))
    play(session, EndStep(), Extend(request=1))
    assert first(session.do(Extend(request=0))) == "refused"
    assert first(session.do(Preempt(request=1))) == word


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    session = crowded()
    assert play(session, Preempt(), Admit(tokens=1)) == IDLE
    assert first(play(session, Extend(tokens=1), EndStep(), Admit(tokens=1))) != "idle"


def test_a_preempted_request_starts_again_from_what_is_still_cached() -> None:
    session = crowded()
    play(session, Preempt(), Extend(tokens=1), EndStep(), Finish(request=0))
    response = session.do(Admit(tokens=ALL))
    admitted = response[0]
    assert isinstance(admitted, Admitted)
    assert (admitted.request, admitted.hit) == (1, 4)


@pytest.mark.parametrize(("dialect", "waits"), [("vllm-0.30.0", 0), ("vllm-0.33.0", 1)])
def test_a_write_of_a_request_that_is_gone_is_waited_for_from_0_31_0(
    dialect: str, waits: int
) -> None:
    """The write is the last to hold its blocks; without caching nothing is to be published."""
    session = session_of(replace(SPARSE, prefix_caching=False), dialect)
    play(session, Arrive(prompt=7), Admit(tokens=7), EndStep(), CompleteTransfers(count=ALL))
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish(request=1))
    play(session, Extend(tokens=1), EndStep(), Hold(0))
    refusal = session.do(Extend(tokens=1))[0]
    assert isinstance(refusal, ExtensionRefused)
    assert refusal.pending == waits
    assert (first(session.do(Preempt())) == "idle") == bool(waits)


# Release

IN_FLIGHT = Configuration(num_blocks=24, num_host_blocks=12, async_scheduling=True)


def test_a_request_that_ends_with_a_step_in_flight_is_released_later() -> None:
    session = session_of(IN_FLIGHT)
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep())
    free = free_blocks(session)
    assert play(session, Finish()) == (Deferred(0), Ended(0))
    assert free_blocks(session) == free
    assert session.snapshot().deferred != ()


def test_a_deferred_release_happens_when_the_step_is_done() -> None:
    session = session_of(IN_FLIGHT)
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish(), Output())
    assert session.snapshot().deferred == ()
    play(session, CompleteTransfers(count=ALL))
    assert free_blocks(session) == IN_FLIGHT.num_blocks - 1


def test_a_synchronous_engine_releases_at_once() -> None:
    session = session_of(PLAIN)
    assert play(session, Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish()) == (Ended(0),)
    assert free_blocks(session) == PLAIN.num_blocks - 1


@pytest.mark.parametrize(
    ("dialect", "published"), [("vllm-0.30.0", 0), ("vllm-0.31.0", 2), ("vllm-0.33.0", 2)]
)
def test_writes_that_complete_after_the_end_are_published_from_0_31_0(
    dialect: str, published: int
) -> None:
    session = session_of(SPARSE, dialect)
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish())
    play(session, CompleteTransfers(count=ALL))
    host = session.snapshot().host
    assert host is not None
    assert len(host.keys) == published
    assert len(host.free) == SPARSE.num_host_blocks - 1


def test_writes_that_complete_one_by_one_after_the_end_are_published_by_the_last() -> None:
    session = session_of(SPARSE)
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep(), Finish(), CompleteTransfers())
    assert state_of(session).host.keys == {}
    play(session, CompleteTransfers())
    assert len(state_of(session).host.keys) == 2


def test_an_eviction_reported_by_a_connector_ends_later_hits() -> None:
    session = session_of(PLAIN)
    play(session, Arrive(shared=8, prompt=8), Admit(tokens=8), EndStep(), EvictBlocks(page=0))
    play(session, Arrive(shared=8, prompt=8))
    assert hit_of(session.do(Admit(tokens=8))) == 0


def test_a_reset_preempts_first_where_asked() -> None:
    session = session_of(PLAIN)
    play(session, Arrive(prompt=8), Admit(tokens=8), EndStep())
    assert session.do(Reset()) == (CacheReset(0),)
    assert session.do(Reset(preempt_running=True)) == (Preempted(0), CacheReset(1))


# Programs


dialect_names = st.sampled_from(sorted(DIALECTS))
seeds = st.integers(0, 2**32)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(seed=seeds, name=dialect_names, place=st.integers(0, 39))
def test_a_program_without_any_one_action_is_a_program(seed: int, name: str, place: int) -> None:
    program = draw_program(Random(seed), DIALECTS[name], 40)
    actions = program.actions[:place] + program.actions[place + 1 :]
    shorter = Program(program.configuration, actions)
    trace = reference_subject(DIALECTS[name]).run(shorter)
    assert trace.ending in ("ended", "raised")
    assert len(trace.steps) == len(actions) or trace.ending == "raised"


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=seeds, name=dialect_names, other=dialect_names)
def test_a_program_drawn_for_one_dialect_is_a_program_for_every(
    seed: int, name: str, other: str
) -> None:
    program = draw_program(Random(seed), DIALECTS[name], 40)
    assert reference_subject(DIALECTS[other]).run(program).ending in ("ended", "raised")


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seed=seeds, name=dialect_names)
def test_a_program_survives_json(seed: int, name: str) -> None:
    program = draw_program(Random(seed), DIALECTS[name], 40)
    assert MANAGER.read(program_to_json(program)) == program


def digests(count: int) -> list[str]:
    """Digests of every step of drawn programs, one line each."""
    lines: list[str] = []
    for number, dialect in enumerate(DIALECTS.values()):
        for seed in range(count):
            program = draw_program(Random(100 * number + seed), dialect, 60)
            trace = reference_subject(dialect).run(program)
            lines.append(" ".join(step.digest for step in trace.steps))
    return lines


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_digests_are_equal_in_every_process(hash_seed: str) -> None:
    code = "from test_model import digests; print('\\n'.join(digests(5)))"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
    }
    finished = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines() == digests(5)


def test_digests_of_different_programs_differ() -> None:
    assert len(set(digests(2))) == 2 * len(DIALECTS)


# The seeds' table

TABLE_POOLS = Configuration(
    block_size=16,
    num_blocks=64,
    num_host_blocks=16,
    hot_blocks=2,
    max_model_len=128,
    max_num_batched_tokens=128,
)


def hit_of_three_pages(
    dialect: str, configuration: Configuration, free: int, tokens: int, cold: int = 0
) -> str:
    """What becomes of a hit with so many free blocks: a word, or adopted pages of three.

    ``cold`` tokens of another request are allocated in the same step, after the hit.
    """
    session = session_of(configuration, dialect)
    play(session, *life_of_a_prefix(tokens), Hold(free), Arrive(shared=tokens, prompt=tokens))
    word = first(session.do(Admit(tokens=tokens)))
    if word != "admitted":
        return {"refused": "rejected", "raised": "crash"}[word]
    if cold:
        assert first(play(session, Arrive(family=1, prompt=cold), Admit(tokens=cold))) == "admitted"
    session.do(EndStep())
    adopted = session.snapshot().requests[0].resident[0][:3]
    return f"{sum(block != NULL for block in adopted)}/3"


@pytest.mark.parametrize(
    ("dialect", "free", "cell"),
    [
        (dialect, free, cell)
        for free, cells in {
            4: ("rejected", "rejected", "rejected", "rejected"),
            5: ("rejected", "rejected", "rejected", "rejected"),
            6: ("rejected", "rejected", "rejected", "rejected"),
            7: ("crash", "rejected", "0/3", "0/3"),
            8: ("crash", "rejected", "0/3", "1/3"),
            9: ("crash", "rejected", "1/3", "2/3"),
            10: ("3/3", "3/3", "2/3", "3/3"),
            11: ("3/3", "3/3", "3/3", "3/3"),
            12: ("3/3", "3/3", "3/3", "3/3"),
            13: ("3/3", "3/3", "3/3", "3/3"),
        }.items()
        for dialect, cell in zip(
            ("eager", "charged", "deferred", "deferred-ordered"), cells, strict=True
        )
    ],
)
def test_the_seeds_table_cell_by_cell(dialect: str, free: int, cell: str) -> None:
    assert hit_of_three_pages(dialect, TABLE_POOLS, free, tokens=64) == cell


@pytest.mark.parametrize("free", range(4, 14))
@pytest.mark.parametrize(
    ("release", "column"),
    [
        ("vllm-0.30.0", "eager"),
        ("vllm-0.31.0", "deferred"),
        ("vllm-0.32.0", "deferred"),
        ("vllm-0.33.0", "deferred"),
    ],
)
def test_the_dialect_of_a_release_has_the_column_of_its_policy(
    release: str, column: str, free: int
) -> None:
    assert hit_of_three_pages(release, TABLE_POOLS, free, 64) == hit_of_three_pages(
        column, TABLE_POOLS, free, 64
    )


@pytest.mark.parametrize("dialect", ["deferred", "vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0"])
def test_three_pages_and_one_token_keep_one_copy_more(dialect: str) -> None:
    """The producer's last page is not full: without a key it is handed out before the copies."""
    cells = [hit_of_three_pages(dialect, TABLE_POOLS, free, tokens=49) for free in range(7, 11)]
    assert cells == ["0/3", "1/3", "2/3", "3/3"]


@pytest.mark.parametrize(
    ("dialect", "kept"),
    [
        ("vllm-0.31.0", ("0/3", "1/3", "2/3", "3/3", "3/3")),
        ("vllm-0.32.0", ("0/3", "0/3", "1/3", "2/3", "3/3")),
        ("vllm-0.33.0", ("0/3", "0/3", "1/3", "2/3", "3/3")),
    ],
)
def test_from_0_32_0_a_later_request_of_the_step_takes_copies_of_an_earlier_hit(
    dialect: str, kept: tuple[str, ...]
) -> None:
    """Pool 24, hot region 1; a cold request of one page is allocated after the hit."""
    pools = Configuration(
        block_size=16,
        num_blocks=24,
        num_host_blocks=16,
        max_model_len=128,
        max_num_batched_tokens=128,
    )
    cells = [hit_of_three_pages(dialect, pools, free, 64, cold=16) for free in range(8, 13)]
    assert tuple(cells) == kept
