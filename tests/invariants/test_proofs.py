"""Theorems on admission and progress: as expected, needed, tight, and about the running model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from lone_requests import (
    Steps,
    blocks_missing,
    finishes,
    hardest_steps,
    least_blocks_for,
    lone_program,
    simulate,
    whole_budget_steps,
)

from invariants.manager.judge import Judge
from invariants.proofs.arithmetic import Symbols, decide
from invariants.proofs.catalogue import OBLIGATIONS
from invariants.proofs.mutants import MUTANTS, Mutant, formulas_of
from invariants.proofs.obligation import Claim, Formulas, Obligation, Result, prove, prove_all
from invariants.proofs.predicted import charge_programs, mismatches, shapes
from kvproof.gate.table import EXPECTED, FREE_BLOCKS
from kvproof.subjects.names import open_subject
from model.admission import INTEGERS, Number, kept_copies
from model.bounds import is_reached, least_blocks
from model.dialect import Dialect
from model.manager.actions import Admit, Arrive, CompleteTransfers, EndStep, Extend, Hold
from model.manager.configuration import Configuration
from model.manager.events import Refused
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Program
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.startup import minimum_blocks
from model.trace import Trace
from specs.manager.generator import draw_program

SECONDS = 15
WITNESSES = {
    "eager-unsound": {"F": 1, "e": 0, "n": 1, "k": 1},
    "eager-unsound-in-code": {"F": 4, "e": 1, "k": 1, "groups": 1, "region": 1, "tokens": 2},
    "eager-unsound-shared": {"F": 3, "e": 0, "k": 1},
    "eager-least": {"F": 1},
    "eager-least-in-code": {"F": 4},
    "eager-bound": {"F": 1, "e": 0, "n": 1, "k": 1},
    "crash-window": {"F": 1, "e": 0, "n": 1, "k": 1, "w": 0, "r": 0},
    "margin-exact": {"F": 1, "e": 0, "n": 1, "k": 1, "w": 0, "r": 0},
    "kept-behind": {"F": 1, "k": 1, "z": 1},
    "gates-cold": {"hit pages": 1, "cap": 1},
    "startup-0.31.0": {"groups": 1, "region": 1, "block size": 1, "budget": 1, "longest": 4},
}


@pytest.fixture(scope="module")
def proved() -> tuple[dict[str, Result], float]:
    started = time.perf_counter()
    results = {result.id: result for result in prove_all(OBLIGATIONS)}
    return results, time.perf_counter() - started


# The theorems


@pytest.mark.parametrize("obligation", OBLIGATIONS, ids=lambda obligation: obligation.id)
def test_an_obligation_comes_out_as_expected(
    obligation: Obligation, proved: tuple[dict[str, Result], float]
) -> None:
    result = proved[0][obligation.id]
    assert result.verdict == obligation.expected
    assert result.twin == "refuted"
    assert result.reached


def test_nothing_is_unknown_and_all_is_quick(proved: tuple[dict[str, Result], float]) -> None:
    results, seconds = proved
    assert len(results) == len(OBLIGATIONS)
    assert not [result.id for result in results.values() if result.undecided]
    assert seconds < SECONDS


@pytest.mark.parametrize("name", WITNESSES)
def test_the_witness_is_the_least(name: str, proved: tuple[dict[str, Result], float]) -> None:
    witness = proved[0][name].witness
    assert {key: witness[key] for key in WITNESSES[name]} == WITNESSES[name]


def test_the_least_crash_of_the_code_pops_three_blocks(
    proved: tuple[dict[str, Result], float],
) -> None:
    witness = proved[0]["eager-unsound-in-code"].witness
    new_pages = INTEGERS.ceil_div(witness["tokens"], witness["block size"]) - witness["hit pages"]
    assert new_pages + witness["groups"] * (new_pages + witness["region"]) == 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_mutant_is_refuted_where_its_fault_is_named(mutant: Mutant) -> None:
    (obligation,) = [o for o in OBLIGATIONS if o.id == mutant.refuted_at]
    assert obligation.expected == "proved"
    assert prove(obligation, formulas_of(mutant)).verdict == "refuted"


def test_a_mutant_whose_line_is_gone_is_an_error() -> None:
    with pytest.raises(ValueError, match="not exactly once"):
        formulas_of(Mutant("a fault", "no such line", "another", "hits-pay"))


# The prover itself


def claim_of(given: Callable[[Number], bool], goal: Callable[[Number], bool]) -> Obligation:
    def claim(_: Formulas) -> Claim:
        s = Symbols()
        number = s.number("x")
        return Claim(s, given(number), goal(number))

    return Obligation("canary", "a canary", ("I4",), claim)


@pytest.mark.parametrize(
    "canary",
    [
        claim_of(lambda x: x >= 1, lambda x: x >= 2),  # wrong
        claim_of(lambda x: x >= 1, lambda x: x >= 0),  # its guard is not needed
        claim_of(lambda x: x < 0, lambda x: x >= 2),  # of nothing
    ],
)
def test_what_is_no_theorem_is_not_taken_for_one(canary: Obligation) -> None:
    assert not prove(canary).as_expected


def test_a_query_that_takes_too_long_is_unknown_and_neither_proved_nor_refuted() -> None:
    def claim(_: Formulas) -> Claim:
        s = Symbols()
        x, y, z = s.number("x", 1), s.number("y", 1), s.number("z", 1)
        return Claim(s, x * x * x + y * y * y == z * z * z, x * y * z == 0)

    result = prove(Obligation("cubes", "Fermat", ("I4",), claim), limit_ms=50)
    assert result.undecided
    assert not result.as_expected
    assert result.verdict == "unknown"


@pytest.mark.parametrize(("number", "divisor"), list(product(range(9), range(1, 5))))
def test_the_solvers_quotient_is_that_of_integers(number: int, divisor: int) -> None:
    s = Symbols()
    unknown, by = s.number("number"), s.number("divisor", 1)
    quotient = s.arithmetic.ceil_div(unknown, by)
    expected = INTEGERS.ceil_div(number, divisor)
    given = [unknown == number, by == divisor]
    assert decide([*given, quotient == expected], s).satisfiable is True
    assert decide([*given, quotient != expected], s).satisfiable is False


# The arithmetic and the allocators


@pytest.mark.parametrize("name", [f"reference:{name}" for name in DIALECTS])
def test_the_arithmetic_predicts_the_reference(name: str) -> None:
    predicted, wrong, shapes_run = predict_all(name)
    assert wrong == []
    assert shapes_run >= 1_000
    assert predicted >= 2 * shapes_run


@pytest.mark.parametrize("name", ["vllm==0.30.0", "vllm==0.33.0"])
def test_the_arithmetic_predicts_a_release(name: str) -> None:
    _, wrong, shapes_run = predict_all(name)
    assert wrong == []
    assert shapes_run >= 1_000


def test_a_wrong_prediction_is_seen() -> None:
    """The release that pins before it pops, held against one that does not."""
    wrong: list[str] = []
    with open_subject("reference:vllm-0.30.0") as subject:
        for shape in list(shapes())[:40]:
            for program in charge_programs(DIALECTS["vllm-0.30.0"], shape):
                trace = subject.run(program, "all")
                wrong += mismatches(trace, DIALECTS["deferred"])[1]
    assert wrong


@pytest.mark.parametrize("name", DIALECTS)
def test_the_arithmetic_predicts_drawn_programs(name: str) -> None:
    predicted = 0
    with open_subject(f"reference:{name}") as subject:
        for seed in range(30):
            program = draw_program(Random(seed), DIALECTS[name], 60)
            count, wrong = mismatches(subject.run(program, "all"), DIALECTS[name])
            predicted += count
            assert wrong == []
    assert predicted > 200


def predict_all(name: str) -> tuple[int, list[str], int]:
    """Predictions, mismatches, and pool shapes (each with its count of free blocks)."""
    predicted, wrong, shapes_run = 0, list[str](), 0
    with open_subject(name) as subject:
        assert subject.dialect is not None
        dialect = subject.dialect
        programs = (p for shape in shapes() for p in charge_programs(dialect, shape))
        for trace in subject.run_many(programs, "all"):
            count, found = mismatches(trace, dialect)
            predicted, wrong, shapes_run = predicted + count, wrong + found, shapes_run + 1
    return predicted, wrong, shapes_run


@pytest.mark.parametrize("subject_name", ["reference:vllm-0.30.0", "vllm==0.30.0"])
@pytest.mark.parametrize(("free", "ending"), [(2, "ended"), (3, "raised"), (4, "ended")])
def test_the_least_crash_beside_a_running_producer_is_met_by_0_30_0(
    subject_name: str, free: int, ending: str
) -> None:
    """``eager-unsound-shared``: F = 3, e = 0, k = 1. One less is refused, one more is enough."""
    configuration = Configuration(num_blocks=64, max_model_len=24)  # low pool: 6 blocks
    producer = (Arrive(0, 12, 9), Admit(0, 9), EndStep(), CompleteTransfers(0, 9), Hold(free))
    # It asks for its region as the pool is low, gets it, and unpins its first page.
    region = (Extend(0, 1), EndStep(), Extend(0, 1), EndStep())
    hit = (Arrive(0, 4, 5), Admit(0, 5))
    with open_subject(subject_name) as subject:
        trace = subject.run(Program(configuration, (*producer, *region, *hit)), "all")
    before = trace.steps[len(producer) + len(region) - 1].snapshot
    assert before is not None
    assert len(before.gpu.free) == free
    assert trace.ending == ending
    assert mismatches(trace, DIALECTS["vllm-0.30.0"])[1] == []


@pytest.mark.parametrize(("column", "behind"), [("deferred", 1), ("deferred-ordered", 0)])
def test_copies_kept_are_those_of_the_seeds_table(column: str, behind: int) -> None:
    """The hit touches 3 blocks and pops 4; in one order an indexer block lies behind its copies."""
    for free, cell in zip(FREE_BLOCKS, EXPECTED[column], strict=True):
        if cell != "rejected":
            assert f"{kept_copies(free, 3 + 4, 3, behind)}/3" == cell


# A request that is alone


def engines(dialect: Dialect, *lengths: int) -> Iterator[Configuration]:
    """Engines of all shapes; the last are far from any round number."""
    sizes = product((1, 2, 3), lengths, (1, 2, 3, 5, 8, 20), (1, 2), (1, 3), (False, True))
    for size, longest, budget, groups, region, asynchronous in sizes:
        yield Configuration(
            block_size=size,
            num_host_blocks=longest + 4,
            max_model_len=longest,
            max_num_batched_tokens=budget,
            num_resident_groups=groups,
            hot_blocks=region,
            async_scheduling=asynchronous,
        )


def with_blocks(configuration: Configuration, blocks: int) -> Configuration:
    return replace(configuration, num_blocks=blocks)


def drawn_steps(configuration: Configuration, random: Random) -> Steps:
    steps, done, last = list[int](), 0, configuration.max_model_len - 1
    while done < last:
        done = min(done + random.randint(1, configuration.max_num_batched_tokens), last)
        steps.append(done)
    return tuple(steps)


@pytest.mark.parametrize("name", DIALECTS)
def test_on_the_least_pool_every_lone_request_finishes(name: str) -> None:
    dialect, random = DIALECTS[name], Random(1)
    for engine in engines(dialect, 3, 4, 8, 17):
        least = least_blocks(engine, dialect)
        prompts = sorted({1, engine.max_model_len // 2, engine.max_model_len - 1})
        ways = [(steps, steps[-1]) for steps in hardest_steps(engine)]
        ways += [(whole_budget_steps(engine, prompt), prompt) for prompt in prompts]
        ways.append((drawn_steps(engine, random), engine.max_model_len - 1))
        for steps, prompt in ways:
            for late in (False, True):
                pool = with_blocks(engine, least + random.choice((0, 0, 1, 4)))
                assert simulate(pool, dialect, steps, prompt, writes_late=late), (pool, steps)


@pytest.mark.parametrize("name", DIALECTS)
def test_one_block_less_and_a_lone_request_stalls(name: str) -> None:
    dialect, reached = DIALECTS[name], 0
    for engine in engines(dialect, 4, 8, 17):
        pool = with_blocks(engine, least_blocks(engine, dialect) - 1)
        if is_reached(engine, dialect):
            reached += 1
            assert not all(simulate(pool, dialect, steps) for steps in hardest_steps(engine))
    assert reached > 90


@pytest.mark.parametrize("name", DIALECTS)
def test_step_by_step_the_arithmetic_of_a_lone_request_is_exact(name: str) -> None:
    dialect, random, stalls = DIALECTS[name], Random(2), 0
    for engine in engines(dialect, 5, 12):
        prompt = random.randint(1, engine.max_model_len - 1)
        steps = whole_budget_steps(engine, prompt)
        if random.random() < 0.5:
            steps = drawn_steps(engine, random)
            prompt = steps[-1]
        top = least_blocks(engine, dialect)
        for blocks in range(max(top - 6, 2), top + 1):
            pool = with_blocks(engine, blocks)
            expected = simulate(pool, dialect, steps, prompt, writes_late=random.random() < 0.5)
            assert finishes(pool, dialect, steps, prompt) == expected, (pool, steps, prompt)
            stalls += not expected
    assert stalls > 100


@pytest.mark.parametrize("name", ["vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0"])
def test_since_0_31_0_the_start_up_check_accepts_pools_on_which_a_lone_request_stalls(
    name: str,
) -> None:
    """K5: in all shapes where blocks are missing and the bound is reached."""
    dialect, missing = DIALECTS[name], 0
    for engine in engines(dialect, 4, 8, 17):
        if blocks_missing(engine, dialect):
            missing += 1
            pool = with_blocks(engine, minimum_blocks(engine, dialect))
            assert not all(simulate(pool, dialect, steps) for steps in hardest_steps(engine))
    assert missing > 100


@pytest.mark.parametrize("name", ["vllm-0.30.0", "eager", "charged", "deferred"])
def test_the_start_up_check_of_0_30_0_is_enough(name: str) -> None:
    dialect = DIALECTS[name]
    assert not any(blocks_missing(engine, dialect) for engine in engines(dialect, 4, 8, 17))


K5 = Configuration(
    block_size=16,
    num_host_blocks=6,
    hot_blocks=1,
    max_model_len=64,
    max_num_batched_tokens=32,
)
"""The engine of ``specs/corpus/manager/k5-alone-and-refused.json``."""


def k5_program(blocks: int) -> ManagerProgram:
    actions = (
        Arrive(prompt=63),
        Admit(0, 32),
        EndStep(),
        CompleteTransfers(0, 9),
        Extend(0, 31),
        EndStep(),
    )
    return Program(with_blocks(K5, blocks), actions)


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0", "0.33.0"])
def test_a_release_stalls_with_one_block_less_than_the_least_pool_only(version: str) -> None:
    dialect = DIALECTS[f"vllm-{version}"]
    assert (minimum_blocks(K5, dialect), least_blocks(K5, dialect)) == (8, 10)
    assert least_blocks_for(K5, dialect, whole_budget_steps(K5, 63)) == 10
    with open_subject(f"vllm=={version}") as engine:
        answers = {blocks: engine.run(k5_program(blocks), "none") for blocks in (8, 9, 10)}
    words = {blocks: trace.steps[4].response[-1].word for blocks, trace in answers.items()}
    assert words == {8: "refused", 9: "refused", 10: "extended"}


@pytest.mark.parametrize("version", ["0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_the_least_pool_is_that_of_the_release(version: str) -> None:
    """No chunk is refused on it, and where it is reached, some chunk with one block less."""
    dialect, reached = DIALECTS[f"vllm-{version}"], 0
    with open_subject(f"vllm=={version}") as subject:
        for engine in engines(dialect, 8, 17):
            least = least_blocks(engine, dialect)
            if engine.async_scheduling or not is_reached(engine, dialect):
                continue
            reached += 1
            for blocks, stalls in ((least, False), (least - 1, True)):
                pool = with_blocks(engine, blocks)
                programs = [lone_program(pool, steps) for steps in hardest_steps(engine)]
                traces = list(subject.run_many(programs, "none"))
                assert any(_was_refused(trace) for trace in traces) == stalls, pool
    assert reached > 20


def _was_refused(trace: Trace) -> bool:
    return any(isinstance(step.response[-1], Refused) for step in trace.steps)


@pytest.mark.parametrize(("blocks", "breaks"), [(9, True), (10, False)])
def test_the_stall_is_what_rule_i16_sees(blocks: int, breaks: bool) -> None:
    """``invariants.manager.admission.progress_alone`` and the least pool agree."""
    dialect, program = DIALECTS["vllm-0.33.0"], k5_program(blocks)
    session = Session(program.configuration, ReferenceAllocator(program.configuration, dialect))
    judge = Judge(program.configuration, dialect)
    broken: set[str] = set()
    for action in program.actions:
        response = session.do(action)
        broken |= {b.rule for b in judge.judge(action, response, session.snapshot())}
    assert ("I16" in broken) == breaks
