"""Every rule has a twin that must fail: a reference with one fault, which that rule sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest

from invariants.manager import peak
from invariants.manager.judge import Judge
from invariants.rules import RULE_BY_ID, RULES, Rule
from invariants.violation import Violation
from model import allocation, publication, residency
from model import reference as reference_module
from model import state as state_module
from model.allocator import Allocation, AllocationFailedError
from model.dialect import Dialect
from model.holding import Hit, Holding
from model.manager.actions import Action, Admit, Arrive, EndStep, Extend, Preempt
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.pool import NULL, Pool
from model.program import Program
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.request import Request
from model.state import State
from specs.manager.generator import draw_program

DIALECT = DIALECTS["vllm-0.31.0"]
"""A release that breaks no rule by design."""
PROGRAMS = 60
ACTIONS = 60
EAGER_PROGRAMS = 400
"""So many that some come to the few counts of free blocks at which `eager` breaks."""


# What is done wrong: each stands for the function named in the table below.

TAKE, TOUCH, UNPIN, RELEASE = Pool.take, Pool.touch, Pool.unpin, Pool.release
PREDICT, ALLOCATE, COMMIT_HIT = allocation.predict, allocation.allocate, allocation.commit_hit
NAME_CONTENTS = ReferenceAllocator._name_contents
TAKE_COMMAND = ReferenceAllocator.take_command


def forgets_the_queue(pool: Pool, blocks: Sequence[int]) -> None:
    """The first block that a release frees is not queued."""
    before = set(pool.free)
    RELEASE(pool, blocks)
    freed = [block for block in pool.free if block not in before]
    pool.free = [block for block in pool.free if block not in freed[:1]]


def queues_twice(pool: Pool, block: int) -> None:
    UNPIN(pool, block)
    if pool.counts[block] == 0:
        pool.free.append(block)


def counts_twice(pool: Pool, blocks: Sequence[int]) -> None:
    """A block that others hold too gets two references."""
    TOUCH(pool, blocks)
    for block in blocks:
        pool.counts[block] += block != NULL and pool.counts[block] > 1


def counts_one_holder(pool: Pool, blocks: Sequence[int]) -> None:
    """A block that others hold already gets no reference."""
    TOUCH(pool, [block for block in blocks if block == NULL or pool.counts[block] == 0])


def keeps_the_copy(state: State, block: int) -> None:
    """A block is handed out, its readers stop, and it stays recorded as a copy."""
    for request_id, page in state_module.readers_of(state, block):
        state_module.lose_page(state, request_id, page)


def promises_less(*arguments: Any) -> int:
    return max(PREDICT(*arguments) - 1, 0)


def asks_for_more(*arguments: Any) -> int:
    return 2 * PREDICT(*arguments)


def keeps_the_hit(
    state: State, request: Request, new_tokens: int, hit: Hit | None, beside_running: bool
) -> Allocation:
    """A refusal comes after the hit was touched."""
    outcome = ALLOCATE(state, request, new_tokens, hit, beside_running)
    if outcome.new_blocks is None and hit is not None:
        state.gpu.touch(hit.indexer)
    return outcome


def asks_for_more_of_running(state: State, request: Request, *arguments: Any) -> int:
    need = PREDICT(state, request, *arguments)
    return 9 * need if request.id in state.holdings else need


def forgets_the_hit(
    state: State, request: Request, new_tokens: int, hit: Hit | None, beside_running: bool
) -> Allocation:
    """A refusal makes the hit unfindable."""
    outcome = ALLOCATE(state, request, new_tokens, hit, beside_running)
    if outcome.new_blocks is None and hit is not None:
        for block in hit.indexer:
            state.gpu.evict(block)
    return outcome


def asks_for_no_hot_region(state: State, request: Request, hit: Hit) -> None:
    """A request whose prefix lies on the host has nothing to read it into."""
    COMMIT_HIT(state, request, hit)
    state.holdings[request.id].wants_hot = False


def publishes_at_once(state: State, request: Request) -> None:
    """Host pages can be found when their writes are planned."""
    holding = state.holdings[request.id]
    pages = min(holding.publication or 0, len(holding.host))
    publication.publish_host_pages(state, request.contents, holding, holding.host, pages)


def publishes_nothing(state: State, request: Request) -> None:
    pass


def keeps_reading(state: State, block: int) -> None:
    """A block is handed out and is no copy any more; its readers are not told."""
    for content, blocks in list(state.copies.items()):
        if block in blocks:
            del state.copies[content]


def watches_nothing(pool: Pool, block: int) -> None:
    UNPIN(pool, block)
    pool.watched.discard(block)


def evicts_half(pool: Pool, block: int) -> None:
    """The block forgets its key; the map keeps the block."""
    pool.keys.pop(block, None)


def ignores_the_salt(allocator: ReferenceAllocator, request: Request) -> None:
    salt, request.salt = request.salt, 0
    NAME_CONTENTS(allocator, request)
    request.salt = salt


def takes_from_the_tail(pool: Pool, count: int) -> list[int]:
    kept = len(pool.free) - count
    pool.free = pool.free[kept:] + pool.free[:kept]
    return TAKE(pool, count)


def queues_in_front(pool: Pool, blocks: Sequence[int]) -> None:
    """Freed blocks are used first, even if they can still be found."""
    before = list(pool.free)
    RELEASE(pool, blocks)
    pool.free = [block for block in pool.free if block not in before] + before


def unpins_head_first(state: State, holding: Holding) -> None:
    for page in sorted(holding.pinned_clean):
        residency.unpin_page(state, holding, page)


def remembers_what_was_sent(allocator: ReferenceAllocator) -> tuple[tuple[int, ...], ...]:
    """The list of writes still to be sent is never emptied."""
    state = allocator.state
    sent = list(state.unsent)
    state.unsent = [transfer for transfer in sent if transfer in state.transfers]
    rows = TAKE_COMMAND(allocator)
    state.unsent = sent
    return rows


def frees_the_null_block(pool: Pool, blocks: Sequence[int]) -> None:
    RELEASE(pool, blocks)
    if NULL in blocks and NULL not in pool.free:
        pool.free.append(NULL)


def goes_without_host_blocks(state: State, holding: Holding, pages: int) -> list[int]:
    """Pages beyond the first get a null entry instead of a host block."""
    missing = max(pages - len(holding.host), 0)
    new = state.host.take(min(missing, int(not holding.host)))
    holding.host.extend(new + [NULL] * (missing - len(new)))
    return new


def raises(allocator: ReferenceAllocator) -> bool:
    raise AllocationFailedError("ValueError", "the pools cannot be reset")


@dataclass(frozen=True)
class Fault:
    """One thing done wrong, and the rule that must see it."""

    rule: str
    where: object
    """Module or class whose function is replaced."""
    function: str
    faulty: Callable[..., Any]
    dialect: Dialect = DIALECT


FAULTS = (
    Fault("I1", Pool, "release", forgets_the_queue),
    Fault("I1", Pool, "unpin", queues_twice),
    Fault("I2", Pool, "touch", counts_twice),
    Fault("I2", Pool, "touch", counts_one_holder),
    Fault("I3", state_module, "stop_reading", keeps_the_copy),
    Fault("I4", allocation, "predict", promises_less),
    Fault("I5", reference_module, "allocate", forgets_the_hit),
    Fault("I6", allocation, "predict", asks_for_more),
    Fault("I7", allocation, "commit_hit", asks_for_no_hot_region),
    Fault("I8", publication, "publish_if_ready", publishes_at_once),
    Fault("I8", publication, "publish_if_ready", publishes_nothing),
    Fault("I10", Pool, "evict", evicts_half),
    Fault("I10", ReferenceAllocator, "_name_contents", ignores_the_salt),
    Fault("I11", Pool, "take", takes_from_the_tail),
    Fault("I11", Pool, "release", queues_in_front),
    Fault("I11", residency, "unpin_clean_pages", unpins_head_first),
    Fault("I12", ReferenceAllocator, "take_command", remembers_what_was_sent),
    Fault("I13", Pool, "release", frees_the_null_block),
    Fault("I14", allocation, "take_host_blocks", goes_without_host_blocks),
    Fault("I16", allocation, "predict", asks_for_more_of_running, DIALECTS["deferred"]),
    Fault("I19", ReferenceAllocator, "reset", raises),
)
"""Faults that break one rule before any other: it alone says what is wrong."""

WIDE_FAULTS = (
    Fault("I2", reference_module, "allocate", keeps_the_hit),
    Fault("I5", reference_module, "allocate", keeps_the_hit),
    Fault("I3", Pool, "unpin", watches_nothing),
    Fault("I9", Pool, "unpin", watches_nothing),
    Fault("I9", state_module, "stop_reading", keeps_reading),
    Fault("I11", Pool, "unpin", watches_nothing),
)
"""Faults that several rules see, each from its own side."""


@cache
def drawn(name: str, count: int = PROGRAMS) -> tuple[ManagerProgram, ...]:
    """Programs that play well with the sound reference, at or near the start-up minimum."""
    return tuple(draw_program(Random(seed), DIALECTS[name], ACTIONS) for seed in range(count))


def judged(
    program: ManagerProgram, dialect: Dialect, rules: Sequence[Rule] = RULES
) -> Iterator[list[Violation]]:
    """The violations of each step of the reference as it is now.

    A faulty reference may trip over its own state: that ends the program.
    """
    configuration = program.configuration
    allocator = ReferenceAllocator(configuration, dialect)
    session: Session[Any, Any] = Session(configuration, allocator)
    judge = Judge(configuration, dialect, rules)
    for action in program.actions:
        try:
            response = session.do(action)
            after = session.snapshot()
            found = judge.judge(action, response, after)
        except (ValueError, IndexError, KeyError):
            return
        yield found
        if session.dead:
            return


def new_breaches(program: ManagerProgram, dialect: Dialect) -> Iterator[set[str]]:
    """The rules that each step breaks in a way that is no known defect."""
    for step in judged(program, dialect):
        yield {violation.rule for violation in step if not violation.known}


def rules_broken(program: ManagerProgram, dialect: Dialect) -> set[str]:
    return {rule for step in new_breaches(program, dialect) for rule in step}


def first_breaches(program: ManagerProgram, dialect: Dialect) -> set[str]:
    """The rules broken in the first step that breaks any."""
    return next((step for step in new_breaches(program, dialect) if step), set())


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault], None]]:
    """Put a fault into the reference until the test ends, after the programs were drawn."""

    def put_in(fault: Fault) -> None:
        drawn(fault.dialect.name)
        monkeypatch.setattr(fault.where, fault.function, fault.faulty)
        peak.peak_blocks.cache_clear()

    yield put_in
    peak.peak_blocks.cache_clear()


def name_of(fault: object) -> str:
    return f"{fault.rule}-{fault.faulty.__name__}" if isinstance(fault, Fault) else str(fault)


# Twins


def test_every_rule_has_a_twin() -> None:
    assert {fault.rule for fault in (*FAULTS, *WIDE_FAULTS)} == {rule.id for rule in RULES}


@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_rule_alone_sees_its_fault(fault: Fault, commit: Callable[[Fault], None]) -> None:
    commit(fault)
    programs = drawn(fault.dialect.name)
    assert any(first_breaches(program, fault.dialect) == {fault.rule} for program in programs)


@pytest.mark.parametrize("fault", WIDE_FAULTS, ids=name_of)
def test_a_rule_sees_its_side_of_a_wide_fault(
    fault: Fault, commit: Callable[[Fault], None]
) -> None:
    commit(fault)
    assert any(fault.rule in rules_broken(program, DIALECT) for program in drawn(DIALECT.name))


@pytest.mark.parametrize(
    ("rule", "switch", "value"),
    [
        ("I4", "adopt_at", "commit"),
        ("I8", "publish_prefix", False),
        ("I8", "publish_after_end", False),
        ("I11", "unpin_step_tail_first", False),
        ("I11", "unpin_release_tail_first", False),
        ("I14", "host_best_effort", True),
    ],
)
def test_what_0_30_0_does_otherwise_is_a_fault_in_a_later_release(
    rule: str, switch: str, value: Any
) -> None:
    older = replace(DIALECT, **{switch: value})
    assert any(rule in rules_broken(program, older) for program in drawn(DIALECT.name))


SOUND = tuple(name for name in DIALECTS if name not in ("eager", "vllm-0.30.0"))


@pytest.mark.parametrize("name", SOUND)
def test_the_sound_reference_breaks_no_rule(name: str) -> None:
    dialect = DIALECTS[name]
    for program in drawn(name):
        assert rules_broken(program, dialect) == set()


# Admission, by dialect


@pytest.mark.parametrize("name", ["eager", "vllm-0.30.0"])
def test_adoption_before_allocation_breaks_the_promise_and_nothing_else(name: str) -> None:
    broken = [first_breaches(program, DIALECTS[name]) for program in drawn(name, EAGER_PROGRAMS)]
    assert {"I4"} in broken
    assert all(rules in ({"I4"}, set()) for rules in broken)


@pytest.mark.parametrize("name", SOUND)
def test_programs_that_break_an_eager_promise_break_none_elsewhere(name: str) -> None:
    breaking = [
        p for p in drawn("eager", EAGER_PROGRAMS) if "I4" in rules_broken(p, DIALECTS["eager"])
    ]
    assert breaking
    assert all("I4" not in rules_broken(program, DIALECTS[name]) for program in breaking)


def test_an_allocation_of_nothing_is_refused_by_contract_and_breaks_no_promise() -> None:
    program: ManagerProgram = Program(Configuration(), (Arrive(prompt=4), Admit(tokens=0)))
    steps = list(judged(program, DIALECT))
    assert steps == [[], []]


# The known defect K2


def preempted_in_the_step_that_scheduled_it(policy: str) -> ManagerProgram:
    """A page gets its key when it is allocated; the step that is to write it never runs."""
    configuration = Configuration(
        block_size=2,
        num_blocks=7,
        num_host_blocks=0,
        max_model_len=6,
        max_num_batched_tokens=4,
        policy="priority" if policy == "priority" else "fcfs",
    )
    actions: tuple[Action, ...] = (
        Arrive(prompt=5),
        Admit(tokens=2),
        Arrive(prompt=2),
        Admit(tokens=2),
        EndStep(),
        Arrive(prompt=3),
        Admit(tokens=3),
        EndStep(),
        Extend(request=0, tokens=3),
        Extend(request=0, tokens=1),
        Preempt(request=0),
        EndStep(),
        Admit(tokens=1),
        EndStep(),
    )
    return Program(configuration, actions)


@pytest.mark.parametrize("version", ["0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_a_hit_on_tokens_that_were_never_computed_is_known_as_k2(version: str) -> None:
    program = preempted_in_the_step_that_scheduled_it("priority")
    violations = [b for step in judged(program, DIALECTS[f"vllm-{version}"]) for b in step]
    assert [(b.rule, b.known, b.step) for b in violations] == [
        ("I7", "K2", len(program.actions) - 1)
    ]


def test_the_same_hit_is_a_new_finding_where_k2_is_not_known() -> None:
    program = preempted_in_the_step_that_scheduled_it("priority")
    violations = [b for step in judged(program, replace(DIALECT, known_defects=())) for b in step]
    assert [(b.rule, b.known) for b in violations] == [("I7", None)]


def test_the_same_program_is_sound_under_fcfs() -> None:
    program = preempted_in_the_step_that_scheduled_it("fcfs")
    assert rules_broken(program, DIALECT) == set()


def k2_modes(policy: str) -> dict[str, Any]:
    """Where K2 is frequent: full attention, synchronous, chunks, and no gate on whole prompts."""
    return {
        "policy": policy,
        "num_host_blocks": 0,
        "prefix_caching": True,
        "async_scheduling": False,
        "full_sequence_must_fit": False,
        "max_num_batched_tokens": 8,
    }


def foreign_reads(policy: str, seeds: range) -> Iterator[Violation]:
    for seed in seeds:
        program = draw_program(Random(seed), DIALECT, 2 * ACTIONS, k2_modes(policy))
        for step in judged(program, DIALECT, [RULE_BY_ID["I7"]]):
            yield from step


def test_drawn_programs_find_k2_under_priority() -> None:
    assert next(foreign_reads("priority", range(600))).known == "K2"


def test_drawn_programs_never_find_k2_under_fcfs() -> None:
    assert list(foreign_reads("fcfs", range(200))) == []


# Waived rules


def test_a_rule_that_a_dialect_breaks_by_design_is_named_with_the_reason() -> None:
    dialect = DIALECTS["vllm-0.30.0"]
    assert Judge(Configuration(), dialect).waived == dialect.waived("manager")
    assert set(dialect.waived("manager")) == {"I8", "I11", "I14"}


@pytest.mark.parametrize("name", ["vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0"])
def test_no_rule_is_waived_for_later_releases(name: str) -> None:
    assert Judge(Configuration(), DIALECTS[name]).waived == {}


def test_a_rule_that_is_not_asked_for_is_not_waived() -> None:
    dialect = DIALECTS["vllm-0.30.0"]
    assert Judge(Configuration(), dialect, [RULE_BY_ID["I1"]]).waived == {}


@pytest.mark.parametrize("rule", ["I8", "I11", "I14"])
def test_what_is_waived_would_be_found(rule: str) -> None:
    """The waiver hides something: without it the very same programs break the rule."""
    dialect = DIALECTS["vllm-0.30.0"]
    strict = replace(dialect, waivers=())
    programs = drawn(dialect.name)
    assert any(rule in rules_broken(program, strict) for program in programs)
    assert not any(rule in rules_broken(program, dialect) for program in programs)
