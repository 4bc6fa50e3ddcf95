"""Every step of the running model is a step of the transition system; a faulty one is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invariants.proofs.refinement.simulation import (
    NOT_COMPARED,
    SEEN_PART,
    Simulation,
    simulate,
)
from invariants.proofs.transition_system.actions.system import actions
from invariants.proofs.transition_system.evaluate import holds
from invariants.proofs.transition_system.execute import Witness, chosen, executable, refused
from invariants.proofs.transition_system.formula import FALSE
from invariants.proofs.transition_system.interpretation import claims, violations
from invariants.proofs.transition_system.invariant.conjuncts import capacity
from invariants.proofs.transition_system.mutants import mutants
from invariants.proofs.transition_system.policy import (
    CHARGED,
    DEFERRED,
    EAGER,
    END_OF_STEP,
    Policy,
    policy_of,
)
from invariants.proofs.transition_system.vocabulary import STATE
from model import allocation, release
from model import state as state_module
from model.dialect import Dialect
from model.holding import Holding
from model.manager.actions import (
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    EvictBlocks,
    Extend,
    Finish,
    Hold,
    Reset,
)
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.pool import Pool
from model.program import Program
from model.releases import DIALECTS
from model.state import State
from specs.casefile import read_case
from specs.manager.generator import draw_program

CHECKED = ("eager", "charged", "deferred", "vllm-0.30.0", "vllm-0.31.0", "vllm-0.33.0")
PROGRAMS, ACTIONS = 16, 40
TRACES = Path(__file__).parents[2] / "specs" / "corpus" / "manager"
CORPUS = [
    file
    for file in sorted(TRACES.glob("*.json"))
    if json.loads(file.read_text(encoding="utf-8")).get("level", "manager") == "manager"
]
"""Traces of whole engine steps are no programs of the model."""
CRASH = TRACES / "k1-adoption-before-allocation.json"
IMPORTS = {"import_page", "import_tail", "complete_restore"}
"""Actions about pages that come from another engine: the model has none."""


CROWDED = {"num_host_blocks": 1, "num_resident_groups": 2, "prefix_caching": True}
"""Where copies are, and are lost in one group as they are handed out in another."""


REUSED: ManagerProgram = Program(
    Configuration(num_blocks=64, num_resident_groups=2),
    (
        Arrive(0, 12, 9), Admit(0, 9), EndStep(), CompleteTransfers(0, 9), Hold(5),
        Extend(0, 1), EndStep(), Extend(0, 1), EndStep(), Hold(1), Hold(0),
    ),
)  # fmt: skip
"""The pool is low, so the producer asks for its region, gets it, and unpins its first page; then
blocks are handed out from which it still reads."""


EVERY_KIND: ManagerProgram = Program(
    Configuration(),
    (
        Arrive(0, 12, 9), Admit(0, 9), EndStep(), CompleteTransfers(0, 9), EvictBlocks(0, 1),
        Finish(0), Arrive(0, 12, 9), Admit(0, 9), EndStep(), Finish(0),
        CompleteTransfers(0, 9), Reset(), Hold(4),
    ),
)  # fmt: skip
"""``Hold`` is in no drawn program; evictions and resets are rare there."""


def drawn(dialect: Dialect, count: int = PROGRAMS) -> Iterator[ManagerProgram]:
    """Others for each dialect; every other one crowded. The first are those above."""
    yield from (REUSED, EVERY_KIND)
    for number in range(count):
        random = Random(f"{dialect.name} {number}")
        yield draw_program(random, dialect, ACTIONS, CROWDED if number % 2 else None)


@cache
def simulations(name: str) -> tuple[Simulation, ...]:
    return tuple(simulate(program, DIALECTS[name]) for program in drawn(DIALECTS[name]))


# The model's steps are steps of the system.


@pytest.mark.parametrize("name", CHECKED)
def test_every_step_of_the_model_is_steps_of_the_system(name: str) -> None:
    found = simulations(name)
    assert [simulation.wrong for simulation in found if simulation.wrong] == []
    assert sum(simulation.steps for simulation in found) > PROGRAMS * ACTIONS / 2


@given(seed=st.integers(0, 2**64 - 1), name=st.sampled_from(CHECKED))
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_steps_of_any_program_are_steps_of_the_system(seed: int, name: str) -> None:
    program = draw_program(Random(seed), DIALECTS[name], ACTIONS)
    assert simulate(program, DIALECTS[name]).wrong == ()


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
@pytest.mark.parametrize("name", CHECKED)
def test_steps_of_the_corpus_are_steps_of_the_system(file: Path, name: str) -> None:
    assert simulate(read_case(file).program, DIALECTS[name]).wrong == ()


def test_every_action_of_the_system_is_taken_by_the_model() -> None:
    taken = sum((s.taken for name in CHECKED for s in simulations(name)), Counter[str]())
    named = {action.name for action in actions(DEFERRED)}
    assert named - set(taken) == IMPORTS
    assert min(taken.values()) >= 3
    assert sum(taken.values()) > 5_000


def test_a_program_of_every_kind_of_action_is_followed() -> None:
    simulation = simulate(EVERY_KIND, DIALECTS["vllm-0.33.0"])
    assert simulation.wrong == ()
    assert simulation.steps == len(EVERY_KIND.actions)
    kinds = ("take_key", "adopt", "stop_reading")
    assert [simulation.taken[kind] for kind in kinds] == [3, 1, 2]


def test_the_state_that_a_run_leads_to_satisfies_the_invariant() -> None:
    """It must, by the proof; it is the state of the system, with all that snapshots do not show."""
    for name in ("charged", "vllm-0.31.0"):
        claimed = claims(policy_of(DIALECTS[name]))
        for simulation in simulations(name):
            assert list(violations(simulation.last, claimed)) == []


def test_the_step_at_which_eager_raises_is_the_one_that_breaks_capacity() -> None:
    simulation = simulate(read_case(CRASH).program, DIALECTS["eager"])
    assert simulation.raised
    assert simulation.wrong == ()
    assert simulation.last.counters["to_pop"] > simulation.last.counters["free"]
    assert not holds(capacity(EAGER), simulation.last)
    broken = [text.split()[0] for text in violations(simulation.last, claims(EAGER))]
    assert broken == ["capacity"]


def test_the_relations_that_are_not_compared_are_few_and_known() -> None:
    names = {relation.name for relation in STATE}
    assert set(NOT_COMPARED) | set(SEEN_PART) <= names
    assert not set(NOT_COMPARED) & set(SEEN_PART)
    assert len(names) - len(NOT_COMPARED) - len(SEEN_PART) == 19


# A faulty model takes steps that the system cannot.

TAKE, UNPIN, RELEASE, DETACH = Pool.take, Pool.unpin, Pool.release, release.detach_copies


def hands_out_the_tail(pool: Pool, count: int) -> list[int]:
    if 0 < count < len(pool.free):
        pool.free = pool.free[-count:] + pool.free[:-count]
    return TAKE(pool, count)


def keeps_keys(pool: Pool, count: int) -> list[int]:
    kept = {block: pool.keys[block] for block in pool.free[:count] if block in pool.keys}
    taken = TAKE(pool, count)
    for block, key in kept.items():
        pool.insert(key, block)
    return taken


def arms_no_watcher(pool: Pool, block: int) -> None:
    UNPIN(pool, block)
    pool.watched.discard(block)


def unpins_to_the_head(pool: Pool, block: int) -> None:
    UNPIN(pool, block)
    if pool.counts[block] == 0:
        pool.free.insert(0, pool.free.pop())


def forgets_a_block(pool: Pool, blocks: Sequence[int]) -> None:
    RELEASE(pool, blocks)
    if len(pool.free) > 5:
        pool.free.pop(2)


def queues_while_held(pool: Pool, blocks: Sequence[int]) -> None:
    pool.touch(blocks)
    pool.free.extend(block for block in dict.fromkeys(blocks) if block)


def head_first(state: State, holding: Holding) -> list[int]:
    return DETACH(state, holding)[::-1]


def stops_nobody(state: State, block: int) -> None:
    """A watched block is handed out, and its readers and its record stay."""


def admits_all(need: int, watermark: int, free: int) -> bool:
    return True


def takes_all_for_durable(holding: Holding) -> None:
    holding.ready = max(len(holding.host), 1)


@pytest.mark.parametrize(
    ("owner", "name", "fault", "seen_as"),
    [
        (Pool, "take", hands_out_the_tail, "its guard on ahead, queued fails"),
        (Pool, "take", keeps_keys, "the system has no keyed"),
        (Pool, "unpin", arms_no_watcher, "the model has no watched"),
        (Pool, "unpin", unpins_to_the_head, "the model has no ahead"),
        (Pool, "release", forgets_a_block, "the model has no queued"),
        (Pool, "release", queues_while_held, "the system has no queued"),
        (release, "detach_copies", head_first, "its guard on before, parting, pins fails"),
        (state_module, "stop_reading", stops_nobody, "the system has no copy"),
        (allocation, "admits", admits_all, "its guard on chosen_pops, chosen_touches, free fails"),
        (Holding, "advance_ready", takes_all_for_durable, "its guard on valid fails"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_of_the_model_is_no_step_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    fault: Callable[..., object],
    seen_as: str,
) -> None:
    dialect = DIALECTS["vllm-0.31.0"]
    programs = list(drawn(dialect, 4 * PROGRAMS))
    monkeypatch.setattr(owner, name, fault)
    found = (simulate(program, dialect).wrong for program in programs)
    assert any(seen_as in text for wrong in found for text in wrong)


# A model of another dialect takes steps that the policy does not have.


@pytest.mark.parametrize(
    ("dialect", "policy", "seen_as"),
    [
        (replace(DIALECTS["vllm-0.31.0"], adopt_at="commit"), DEFERRED, "adopt"),
        (replace(DIALECTS["vllm-0.33.0"], adopt_at="allocation"), END_OF_STEP, "adopt"),
        (replace(DIALECTS["vllm-0.31.0"], unpin_release_tail_first=False), DEFERRED, "part"),
        (DIALECTS["vllm-0.30.0"], CHARGED, "begin"),
    ],
    ids=lambda value: value.name if isinstance(value, Policy) else "",
)
def test_a_step_of_another_dialect_is_no_step_of_the_policy(
    dialect: Dialect, policy: Policy, seen_as: str
) -> None:
    allowed = actions(policy)
    programs = [read_case(CRASH).program, *drawn(dialect, 4 * PROGRAMS)]
    found = (simulate(program, dialect, allowed).wrong for program in programs)
    assert any(f": {seen_as}" in text for wrong in found for text in wrong)


# A system with a fault cannot do what the model does.

EFFECTS = (
    "touched_block_stays_queued", "readers_go_on", "copy_stays_recorded", "key_stays",
    "free_is_not_counted_down", "pop_is_not_counted", "adopts_without_holding",
    "watcher_is_not_armed", "reader_is_not_registered", "released_copy_is_not_watched",
    "copies_go_to_the_head", "released_head_first",
)  # fmt: skip
"""Mutants of the system that do something else; the others only allow more, or (a preempted write
that counts) differ where snapshots do not look."""


@pytest.mark.parametrize("name", EFFECTS)
def test_a_fault_of_the_system_is_not_what_the_model_does(name: str) -> None:
    (mutant,) = (each for each in mutants() if each.name == name)
    assert mutant.policy == DEFERRED
    allowed = [
        mutant.action if action.name == mutant.action.name else action
        for action in actions(DEFERRED)
    ]
    dialect = DIALECTS["vllm-0.31.0"]
    assert any(simulate(program, dialect, allowed).wrong for program in drawn(dialect, 100))


# Taking an action.


def test_an_action_whose_guard_fails_is_refused_and_says_where() -> None:
    pop = executable(next(action for action in actions(DEFERRED) if action.name == "pop"))
    state = simulations("deferred")[0].last
    why = refused(pop, chosen(pop, state, Witness((0, 0, "indexer", 0, 0), 1)))
    assert why is not None
    assert "touching" in why or "popping" in why


@pytest.mark.parametrize(
    "name", sorted({action.name for action in actions(DEFERRED)} - IMPORTS - {"forgo"})
)
def test_an_action_that_the_system_lacked_would_be_missed(name: str) -> None:
    """Twin of the count of actions: none is taken in vain."""
    allowed = [
        replace(action, guard=FALSE) if action.name == name else action
        for action in actions(DEFERRED)
    ]
    dialect = DIALECTS["vllm-0.31.0"]
    found = (simulate(program, dialect, allowed).wrong for program in drawn(dialect, 100))
    assert any(f": {name}" in text for wrong in found for text in wrong)
