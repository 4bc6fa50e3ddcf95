"""The checkers of the scheduler level: what each must report, and a twin that is fine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from invariants.scheduler.audit import counters
from invariants.scheduler.contents import misreads, wrong_tokens
from invariants.scheduler.fences import writes_beside_steps
from invariants.scheduler.found import Found
from invariants.scheduler.preemption import preemptions
from invariants.violation import Cause
from model.contents import EMPTY, Contents
from model.scheduler.ghost_worker import Misread
from model.scheduler.happenings import Delivered, LoadStarted, PreemptionPlanned, StepExecuted
from model.scheduler.plan import Load, Output, PoolState, RequestView, StepPlan
from model.scheduler.session import InFlight

PLAN = StepPlan(5, (), (), (), (), (), ())
LOAD = Load(1, 0, 8, ((3, 4),), asynchronous=True)
WRITES = frozenset({("gpu", 3), ("gpu", 4)})
VIEW = RequestView(0, "preempted", 8, 8, 0, 0, 0, 1)


def causes(found: Any) -> list[tuple[str, Cause]]:
    return [(rule, cause) for rule, cause, *_ in found]


@pytest.mark.parametrize(
    ("cell", "broken"),
    [
        (("gpu", 4), [("I15", Cause.WRITES_BESIDE_STEP)]),
        (("gpu", 5), []),
        (("host", 4), []),
    ],
)
def test_a_load_writes_no_block_that_a_step_in_flight_uses(
    cell: tuple[str, int], broken: list[Found]
) -> None:
    step = InFlight(PLAN, frozenset(), {}, frozenset({cell}))
    assert causes(writes_beside_steps([step], LoadStarted(LOAD, WRITES))) == broken


@pytest.mark.parametrize(
    ("tokens", "tainted", "broken"),
    [
        ((7,), False, []),
        ((), True, []),
        ((7,), True, [("I7", Cause.TOKEN_OF_FAILED_LOAD)]),
        ((8,), False, [("I7", Cause.WRONG_TOKENS)]),
        ((8,), True, [("I7", Cause.TOKEN_OF_FAILED_LOAD), ("I7", Cause.WRONG_TOKENS)]),
    ],
)
def test_clients_get_the_tokens_that_come_next(
    tokens: tuple[int, ...], tainted: bool, broken: list[Found]
) -> None:
    delivered = Delivered(Output(0, tokens, None), (7,)[: len(tokens)], tainted)
    assert causes(wrong_tokens(delivered)) == broken


def test_what_one_request_misreads_is_one_finding_with_a_line_for_each_page() -> None:
    contents = Contents(4)
    pages = [Misread(0, 0, page, f"block {page}", EMPTY, 9) for page in (1, 2)]
    step = StepExecuted(PLAN, (tuple(pages), (replace(pages[0], request=2),)))
    first, second = misreads(contents, step)
    assert first == (
        "I7",
        Cause.MISREAD,
        "request 0 reads page 1 of group 0 from block 1, which holds nothing",
        "request 0 reads page 2 of group 0 from block 2, which holds nothing",
    )
    _, _, *lines = second
    assert len(lines) == 1
    assert lines[0].startswith("request 2 reads page 1")
    assert list(misreads(contents, StepExecuted(PLAN, ()))) == []


class Holding:
    """An engine in which one block has these holders."""

    def __init__(self, *holders: str) -> None:
        self.holders = holders

    def pool_states(self) -> tuple[PoolState, ...]:
        return (PoolState("gpu", (1, 1), (), 0, {1: self.holders}, {}, {}),)

    def statuses(self) -> dict[int, RequestView]:
        return {0: VIEW}


@pytest.mark.parametrize(
    ("holders", "alone", "broken"),
    [
        (("request 1",), True, []),
        ((), False, []),
        ((), True, [("I16", Cause.PREEMPTED_ALONE)]),
        (("request 0 (group 0)",), False, [("I17", Cause.HOLDS_AFTER_PREEMPTION)]),
    ],
)
def test_who_is_preempted_had_company_and_holds_nothing_any_more(
    holders: tuple[str, ...], alone: bool, broken: list[Found]
) -> None:
    engine: Any = Holding(*holders)
    planned = PreemptionPlanned(replace(PLAN, preempted=(0,)), alone)
    assert causes(preemptions(engine, planned)) == broken


@pytest.mark.parametrize("name", ["computed", "in_flight", "placeholders"])
def test_no_counter_is_below_zero(name: str) -> None:
    assert list(counters([VIEW])) == []
    wrong = replace(VIEW, **{name: -1})  # type: ignore[arg-type]
    assert causes(counters([wrong])) == [("I17", Cause.BELOW_ZERO)]
