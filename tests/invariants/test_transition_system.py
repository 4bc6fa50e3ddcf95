"""The transition system: inductive where it must be, broken where it must be, about the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from invariants.proofs.transition_system import obligations, second_solver, tasks
from invariants.proofs.transition_system.actions.system import actions
from invariants.proofs.transition_system.alternation import cycle
from invariants.proofs.transition_system.capacity import steps
from invariants.proofs.transition_system.consecution import kept
from invariants.proofs.transition_system.evaluate import holds
from invariants.proofs.transition_system.formula import every, exists, forall
from invariants.proofs.transition_system.interpretation import Observer, claims, violations
from invariants.proofs.transition_system.invariant.conjunct import ASSUMPTION, AXIOMS, COUNTING
from invariants.proofs.transition_system.invariant.conjuncts import conjuncts
from invariants.proofs.transition_system.mutants import mutants
from invariants.proofs.transition_system.policy import (
    CHARGED,
    DEFERRED,
    EAGER,
    SOUND,
    Policy,
    policy_of,
)
from invariants.proofs.transition_system.result import Result, impossible, possible
from invariants.proofs.transition_system.solver import Solver
from invariants.proofs.transition_system.spacer import infer
from invariants.proofs.transition_system.vocabulary import b, live, pins, s
from model import release
from model import state as state_module
from model.dialect import Dialect
from model.holding import Holding
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.pool import Pool
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.state import State
from specs.casefile import read_case
from specs.manager.generator import draw_program

PROGRAMS, ACTIONS = 8, 40
CRASH = (
    Path(__file__).parents[2]
    / "specs"
    / "corpus"
    / "manager"
    / "k1-adoption-before-allocation.json"
)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """All obligations, but those of the second solver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(second_solver, "available", lambda: False)
        return {result.id: result for result in obligations.prove()}


def with_prefix(results: dict[str, Result], prefix: str) -> list[Result]:
    return [result for name, result in results.items() if name.startswith(prefix)]


# The obligations.


def test_every_obligation_is_as_expected(results: dict[str, Result]) -> None:
    assert [result for result in results.values() if not result.as_expected] == []
    assert len(results) > 200


def test_every_conjunct_of_every_sound_policy_is_kept_by_every_action(
    results: dict[str, Result],
) -> None:
    for policy in SOUND:
        for conjunct in conjuncts(policy):
            assert results[f"system.{policy.name}.{conjunct.name}"].verdict == "proved"


def test_every_action_can_happen(results: dict[str, Result]) -> None:
    for action in actions(DEFERRED):
        assert results[f"system.deferred.enabled.{action.name}"].verdict == "proved"


def test_the_rules_of_the_issue_are_covered(results: dict[str, Result]) -> None:
    covered = {rule for result in results.values() for rule in result.rule.split()}
    assert {"I1", "I2", "I3", "I4", "I7", "I8", "I9", "I10", "I11"} <= covered


def test_every_mutant_dies_at_the_obligation_that_names_its_fault(
    results: dict[str, Result],
) -> None:
    killed = with_prefix(results, "system.mutant.")
    assert len(killed) == len(mutants()) >= 10
    assert [result.id for result in killed if result.verdict != "refuted"] == []


def test_a_conjunct_is_needed_unless_it_is_written_down_that_it_is_not(
    results: dict[str, Result],
) -> None:
    free_standing = {
        result.id.removeprefix("system.without.")
        for result in with_prefix(results, "system.without.")
        if result.verdict == "proved"
    }
    assert free_standing == set(tasks.NOT_LEANED_ON)


def test_the_assumption_stands_beside_every_capacity_theorem(results: dict[str, Result]) -> None:
    for policy in SOUND:
        assert ASSUMPTION in results[f"system.{policy.name}.capacity"].witness


def test_unknown_is_never_as_expected() -> None:
    assert impossible("unsatisfiable", "unknown") == "unknown"
    assert possible("unknown") == "unknown"
    result = Result("system.x", "I1", "unknown", "proved", 1.0)
    assert not result.as_expected


def test_a_query_that_runs_out_of_time_is_unknown() -> None:
    solver = Solver(limit_ms=1)
    invariant = [conjunct.formula for conjunct in conjuncts(DEFERRED)]
    solver.add(AXIOMS, COUNTING, *invariant)
    answers = {
        solver.check(action.guard, ~every(*(kept(action, formula) for formula in invariant)))
        for action in actions(DEFERRED)
    }
    assert "unknown" in answers
    assert "satisfiable" not in answers


def test_an_inference_that_runs_out_of_time_is_unknown() -> None:
    assert infer(steps(CHARGED), limit_ms=1).answer == "unknown"


@pytest.mark.skipif(not second_solver.available(), reason="cvc5 is not installed")
def test_a_query_to_cvc5_that_runs_out_of_time_is_unknown() -> None:
    solver = Solver()
    solver.add(AXIOMS, COUNTING, *(conjunct.formula for conjunct in conjuncts(DEFERRED)))
    pop = next(action for action in actions(DEFERRED) if action.name == "pop")
    goal = every(*(kept(pop, conjunct.formula) for conjunct in conjuncts(DEFERRED)))
    assert second_solver.check(solver.smtlib(pop.guard, ~goal), limit_ms=1) == "unknown"


# Stratification.


def test_quantifiers_alternate_from_blocks_to_slots_only(results: dict[str, Result]) -> None:
    assert results["system.stratified"].witness == "Block → Slot"


def test_a_circle_of_quantifiers_is_found_across_formulas() -> None:
    there, back = forall(b)(exists(s)(pins(s, b))), forall(s)(exists(b)(pins(s, b)))
    assert cycle([there]) is None
    assert cycle([there, back]) is not None
    assert cycle([~there, back]) is None


# Eager, and the moment of adoption.


def test_eager_fails_at_exactly_the_adopt_step(results: dict[str, Result]) -> None:
    assert results["system.eager.capacity"].witness == "fails at `adopt`: capacity"


def test_the_counterexample_of_eager_is_one_free_block_that_is_a_copy_and_promised() -> None:
    found = tasks.eager_counterexample()
    assert found is not None
    assert found.confirmed(conjuncts(EAGER))
    told = list(found.sentences())
    assert told[0] == (
        "Before: free blocks 1, still to touch 0, still to pop 1, free copies to pin 1."
    )
    assert "B1 is the recorded copy of P1." in told
    assert told[-2] == (
        "After: free blocks 0, still to touch 0, still to pop 1, free copies to pin 0."
    )
    assert told[-1].startswith("Broken: capacity (I4).")


def test_adoption_is_safe_exactly_when_nothing_is_promised(results: dict[str, Result]) -> None:
    claims_ = with_prefix(results, "system.adoption.")
    assert [result.verdict for result in claims_] == ["proved"] * 4
    assert [result.twin for result in claims_] == ["refuted"] * 3 + [None]


@pytest.mark.parametrize("policy", SOUND, ids=lambda policy: policy.name)
def test_spacer_infers_a_capacity_invariant_that_three_queries_confirm(policy: Policy) -> None:
    found = infer(steps(policy))
    assert found.proved
    assert found.rechecked == ("unsatisfiable",) * 3
    assert "to_pop" in found.invariant


def test_spacer_finds_that_eager_raises() -> None:
    assert infer(steps(EAGER)).answer == "satisfiable"


# Other readings of the same formulas.


def test_direct_evaluation_agrees_with_the_solver_on_a_step_of_every_action() -> None:
    solver = Solver()
    invariant = [conjunct.formula for conjunct in conjuncts(DEFERRED)]
    solver.add(AXIOMS, COUNTING, *invariant)
    for action in actions(DEFERRED):
        state = solver.find(action.guard)
        assert state is not None
        for formula in (AXIOMS, COUNTING, action.guard, *invariant):
            assert holds(formula, state)
            assert holds(kept(action, formula), state) or formula in (COUNTING, action.guard)


def test_direct_evaluation_sees_what_fails() -> None:
    solver = Solver()
    state = solver.find(exists(s)(live(s)), forall(s, b)(~pins(s, b)))
    assert state is not None
    assert not holds(forall(s)(~live(s)), state)
    assert not holds(forall(s)(exists(b)(pins(s, b))), state)


@pytest.mark.skipif(not second_solver.available(), reason="cvc5 is not installed")
def test_cvc5_agrees() -> None:
    for policy, wrong, models in ((DEFERRED, "unsatisfiable", False), (EAGER, "satisfiable", True)):
        invariant = [conjunct.formula for conjunct in conjuncts(policy)]
        solver = Solver()
        solver.add(AXIOMS, COUNTING, *invariant)
        adopt = next(action for action in actions(policy) if action.name == "adopt")
        goal = every(*(kept(adopt, formula) for formula in invariant))
        assert second_solver.check(solver.smtlib(adopt.guard, ~goal), models) == wrong


# The running model in the proof's vocabulary.


def run(program: ManagerProgram, dialect: Dialect) -> Iterator[list[str]]:
    """What each state of a program breaks, up to a crash."""
    session = Session(program.configuration, ReferenceAllocator(program.configuration, dialect))
    observer, claimed = Observer(program.configuration), claims(policy_of(dialect))
    for action in program.actions:
        response = session.do(action)
        if session.dead:
            return
        state = observer.observe(response, session.snapshot())
        yield list(violations(state, claimed))


@pytest.mark.parametrize("name", ["deferred", "charged", "vllm-0.31.0", "vllm-0.33.0"])
def test_every_reachable_state_of_the_model_satisfies_the_invariant(name: str) -> None:
    dialect = DIALECTS[name]
    for seed in range(PROGRAMS):
        program = draw_program(Random(seed), dialect, ACTIONS)
        found = list(run(program, dialect))
        assert len(found) == ACTIONS
        assert [broken for broken in found if broken] == []


def test_the_states_of_eager_satisfy_it_up_to_the_crash() -> None:
    trace = read_case(CRASH)
    found = list(run(trace.program, DIALECTS["eager"]))
    assert len(found) < len(trace.program.actions)
    assert [broken for broken in found if broken] == []


TAKE, UNPIN, DETACH = Pool.take, Pool.unpin, release.detach_copies


def arms_no_watcher(pool: Pool, block: int) -> None:
    UNPIN(pool, block)
    pool.watched.discard(block)


def keeps_keys(pool: Pool, count: int) -> list[int]:
    kept_keys = {block: pool.keys[block] for block in pool.free[:count] if block in pool.keys}
    taken = TAKE(pool, count)
    for block, key in kept_keys.items():
        pool.insert(key, block)
    return taken


def head_first(state: State, holding: Holding) -> list[int]:
    return DETACH(state, holding)[::-1]


def queues_while_held(pool: Pool, blocks: Sequence[int]) -> None:
    pool.touch(blocks)
    pool.free.extend(block for block in dict.fromkeys(blocks) if block)


def stops_nobody(state: State, block: int) -> None:
    """A watched block is handed out, and its readers and its record stay."""


@pytest.mark.parametrize(
    ("owner", "name", "fault", "conjunct"),
    [
        (Pool, "unpin", arms_no_watcher, "watcher_armed"),
        (Pool, "take", keeps_keys, "fresh_has_no_key"),
        (release, "detach_copies", head_first, "left_tail_ahead"),
        (Pool, "release", queues_while_held, "queued_iff_unheld"),
        (state_module, "stop_reading", stops_nobody, "fresh_is_no"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_of_the_model_breaks_the_conjunct_about_it(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    name: str,
    fault: Callable[..., object],
    conjunct: str,
) -> None:
    dialect = DIALECTS["vllm-0.31.0"]
    programs = [draw_program(Random(seed), dialect, ACTIONS) for seed in range(4 * PROGRAMS)]
    monkeypatch.setattr(owner, name, fault)
    assert any(
        broken.startswith(conjunct)
        for program in programs
        for state in run(program, dialect)
        for broken in state
    )
