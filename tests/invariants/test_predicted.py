"""Predicted against real: the arithmetic that is proved, held against every subject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from invariants.proofs.mutants import MUTANTS, Mutant, formulas_of
from invariants.proofs.predicted import (
    LEAST_SHAPES,
    Agreement,
    Shape,
    charge_programs,
    mismatches,
    shapes,
    sweep,
)
from kvproof.subjects.names import open_subject
from model.dialect import Dialect
from model.manager.actions import Admit
from model.manager.program import ManagerProgram
from model.releases import DIALECTS, VERSIONS
from model.startup import minimum_host_blocks
from model.trace import Trace

RELEASES = tuple(f"vllm=={version}" for version in VERSIONS)


def swept(name: str, dialect: Dialect | None = None) -> Agreement:
    with open_subject(name) as subject:
        assert subject.dialect is not None
        return sweep(lambda programs: subject.run_many(programs, "all"), dialect or subject.dialect)


@pytest.mark.parametrize("name", [*RELEASES, *(f"reference:{name}" for name in DIALECTS)])
def test_the_arithmetic_predicts_each_subject_on_a_thousand_shapes(name: str) -> None:
    agreement = swept(name)
    assert agreement.mismatches == ()
    assert agreement.shapes >= LEAST_SHAPES
    assert agreement.calls >= 2 * agreement.shapes
    assert agreement.twin_seen


def test_the_arithmetic_of_another_dialect_does_not_predict_a_release() -> None:
    agreement = swept("vllm==0.30.0", DIALECTS["deferred"])
    assert any("crash" in line for line in agreement.mismatches)


@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if m.refuted_at != "kept-behind"], ids=lambda m: m.fault
)
def test_each_fault_in_the_arithmetic_mispredicts_some_shape(mutant: Mutant) -> None:
    """All but that of the copies kept, which are adopted after admission."""
    formulas = formulas_of(mutant)
    name = "charged" if mutant.refuted_at == "charged-begins" else "vllm-0.33.0"
    dialect = DIALECTS[name]
    with open_subject(f"reference:{name}") as subject:
        programs = (p for shape in shapes() for p in charge_programs(dialect, shape))
        traces = subject.run_many(programs, "all")
        assert any(mismatches(trace, dialect, formulas)[1] for trace in traces)


def test_a_sweep_of_nothing_is_seen() -> None:
    def run_none(_: Iterable[ManagerProgram]) -> Iterator[Trace]:
        return iter(())

    agreement = sweep(run_none, DIALECTS["vllm-0.33.0"])
    assert agreement == Agreement(0, 0, (), False)


def test_the_shapes_have_all_that_admission_depends_on() -> None:
    drawn = list(shapes())
    assert {shape.groups for shape in drawn} == {0, 1, 2, 3}
    assert {shape.full_gate for shape in drawn} == {False, True}
    assert {shape.chunk < shape.tokens for shape in drawn} == {False, True}
    assert {shape.watermark for shape in drawn} == {0, 2}
    assert {shape.tokens > shape.produced * shape.block_size for shape in drawn} == {False, True}


@pytest.mark.parametrize("name", DIALECTS)
def test_the_host_pools_are_those_that_an_engine_starts_with(name: str) -> None:
    for shape in shapes():
        c = shape.configuration
        assert c.num_host_blocks >= minimum_host_blocks(c, DIALECTS[name])


def newcomer(trace: Trace) -> tuple[int, str]:
    """Free blocks that the newcomer finds, and what becomes of it."""
    last = max(n for n, action in enumerate(trace.program.actions) if isinstance(action, Admit))
    before = trace.steps[last - 1].snapshot
    assert before is not None
    return len(before.gpu.free), trace.steps[last].response[-1].word


def newcomers(dialect: Dialect, shape: Shape) -> dict[int, str]:
    with open_subject(f"reference:{dialect.name}") as subject:
        traces = list(subject.run_many(charge_programs(dialect, shape), "all"))
    return dict(newcomer(trace) for trace in traces)


def test_free_blocks_are_swept_from_one_less_than_the_need_to_the_copies_beyond() -> None:
    """A hit of 2 pages, both free, needs 2 + 1 + 1 and a region of 1; it has 2 copies."""
    shape = Shape(1, 1, 1, 3, 3, 3, True)
    assert newcomers(DIALECTS["vllm-0.30.0"], shape) == {
        4: "refused", 5: "raised", 6: "raised", 7: "admitted",
    }  # fmt: skip
    assert newcomers(DIALECTS["charged"], shape) == {
        4: "refused", 5: "refused", 6: "refused", 7: "admitted",
    }  # fmt: skip
    assert list(newcomers(DIALECTS["vllm-0.33.0"], replace(shape, groups=2)).items()) == [
        (6, "refused"), (7, "admitted"), (8, "admitted"), (9, "admitted"), (10, "admitted"),
        (11, "admitted"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["vllm-0.30.0", "charged", "vllm-0.33.0"])
def test_each_sweep_has_a_refusal_below_the_need_and_an_admission_above_it(name: str) -> None:
    dialect = DIALECTS[name]
    for shape in shapes():
        outcomes = list(newcomers(dialect, shape).values())
        short_host = 0 < shape.host_blocks < shape.tokens // shape.block_size + shape.beside + 1
        assert outcomes[0] == "refused", shape
        if not short_host or dialect.host_best_effort:
            assert outcomes[-1] == "admitted", shape
        else:
            assert set(outcomes) == {"refused"}, shape
