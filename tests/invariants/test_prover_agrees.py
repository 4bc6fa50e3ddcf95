"""The prover's verdict on an allocation with given numbers is what the running model does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import pytest
from prover_instance import (
    Instance,
    Order,
    Verdict,
    hit_instance,
    running_instance,
)

from invariants.proofs.mutants import MUTANTS, Mutant, formulas_of
from invariants.proofs.obligation import THE_MODELS, Formulas
from invariants.proofs.predicted import look_up
from invariants.proofs.scenes import hit_scene
from model.dialect import Dialect
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    Extend,
    Finish,
    Hold,
)
from model.manager.configuration import Configuration
from model.manager.events import Allocated, Raised, Refused, Response
from model.manager.session import Session
from model.pool import NULL
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.snapshot import Snapshot

ORDERS: dict[str, Order] = {
    "eager": "eager",
    "charged": "charged",
    "deferred": "deferred",
    "vllm-0.33.0": "deferred",
}
"""In which order a dialect pins the copies of a hit."""
AMPLE = 96


@dataclass(frozen=True, slots=True)
class Case:
    """A producer of ``produced`` pages has ended; then ``tokens`` come that begin with them."""

    block_size: int
    groups: int
    region: int
    produced: int
    tokens: int
    watermark: int

    @property
    def configuration(self) -> Configuration:
        return Configuration(
            block_size=self.block_size,
            num_blocks=AMPLE,
            num_host_blocks=AMPLE,
            num_resident_groups=self.groups,
            hot_blocks=self.region,
            max_model_len=8 * self.block_size,
            max_num_batched_tokens=8 * self.block_size,
            watermark_blocks=self.watermark,
            full_sequence_must_fit=False,
        )

    def prepared(self, dialect: Dialect, free: int) -> Session[Any, Any]:
        """The state before the request asks, with ``free`` blocks left."""
        c = self.configuration
        session: Session[Any, Any] = Session(c, ReferenceAllocator(c, dialect))
        shared = self.produced * self.block_size
        actions: list[Action] = [
            Arrive(0, shared, shared), Admit(0, shared), EndStep(), CompleteTransfers(0, 99),
            Finish(0), Arrive(1, 0, 1), Admit(0, 1), EndStep(), Hold(free),
            Arrive(0, shared, self.tokens),
        ]  # fmt: skip
        for action in actions:
            session.do(action)
        return session


SIZES = ((1, 1, 0), (3, 0, 0), (3, 1, 0), (3, 1, 2), (2, 2, 0))
"""(pages of the producer, pages more, watermark). With no page more, the hit ends a page before
what the producer left, whose last block then lies behind the copies."""


def cases() -> Iterator[Case]:
    for size, groups, region in product((1, 3), (1, 2), (1, 2)):
        for produced, more, watermark in SIZES:
            yield Case(size, groups, region, produced, (produced + more) * size, watermark)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the running model did."""

    verdict: Verdict
    taken: int
    adopted: int
    """Copies that the request pinned."""
    before: Snapshot
    response: Response


def seen(session: Session[Any, Any], action: Action) -> Seen:
    """Take the action, and end the step so that a late adoption shows."""
    before = session.snapshot()
    response = session.do(action)
    if session.dead:
        assert response == (Raised("OutOfBlocks"),)
        return Seen("crash", 0, 0, before, response)
    event = response[-1]
    if isinstance(event, Refused):
        return Seen("refused", 0, 0, before, response)
    assert isinstance(event, Allocated)
    session.do(EndStep())
    after = next(r for r in session.snapshot().requests if r.id == event.request)
    fresh = {block for row in event.blocks[1:] for block in row}  # The first row is the host's.
    rows = [block for row in after.resident for block in row if block not in (NULL, *fresh)]
    return Seen("granted", event.taken, len(rows), before, response)


@cache
def admissions(name: str) -> tuple[tuple[Case, Seen], ...]:
    """Each case over the counts of free blocks at which verdicts change, and one on each side."""
    dialect, found = DIALECTS[name], []
    for case in cases():
        ample = case.prepared(dialect, AMPLE)
        state = ample.snapshot()
        copies = look_up(case.configuration, state, state.requests[-1]).copies
        need = seen(ample, Admit(0, case.tokens)).taken + case.watermark
        for free in range(need - 1, need + copies + 2):
            found.append((case, seen(case.prepared(dialect, free), Admit(0, case.tokens))))
    return tuple(found)


def at(case: Case, seen_: Seen, formulas: Formulas = THE_MODELS) -> Instance:
    """The same numbers in the scene of the theorems on a waiting request."""
    request = seen_.before.requests[-1]
    return hit_instance(
        case.configuration, seen_.before, request, case.tokens, case.watermark, formulas
    )


def behind(case: Case, seen_: Seen) -> int | None:
    """Blocks queued behind the copies, those of the hit left out; None if copies lie apart."""
    before = seen_.before
    hit = look_up(case.configuration, before, before.requests[-1])
    contents = before.requests[-1].contents[: len(hit.indexer)]
    copies = {
        block for content, *blocks in before.copies for block in blocks if content in contents
    }
    queue = [block for block in before.gpu.free if block not in hit.indexer]
    places = [n for n, block in enumerate(queue) if block in copies]
    together = places == list(range(places[0], places[-1] + 1)) if places else False
    return len(queue) - 1 - places[-1] if together and len(places) == hit.copies else None


# Admission.


@pytest.mark.parametrize("name", ORDERS)
def test_the_prover_says_of_an_admission_what_the_model_does(name: str) -> None:
    verdicts: Counter[Verdict] = Counter()
    for case, seen_ in admissions(name):
        instance = at(case, seen_)
        assert instance.legal
        assert instance.verdict(ORDERS[name]) == seen_.verdict, (case, instance.numbers)
        assert seen_.verdict != "granted" or instance.takes(seen_.taken)
        verdicts[seen_.verdict] += 1
    assert min(verdicts["granted"], verdicts["refused"]) >= 40
    assert (verdicts["crash"] > 50) == (ORDERS[name] == "eager")


def test_eager_crashes_and_charged_refuses_where_deferred_admits() -> None:
    """At the same numbers, by the prover and by the model: the window of ``crash-window``."""
    window = [(case, seen_) for case, seen_ in admissions("eager") if seen_.verdict == "crash"]
    for case, crashed in window:
        free = len(crashed.before.gpu.free)
        instance = at(case, crashed)
        told: dict[str, Verdict] = {}
        for name in ("eager", "charged", "deferred"):
            told[name] = seen(case.prepared(DIALECTS[name], free), Admit(0, case.tokens)).verdict
            assert instance.verdict(ORDERS[name]) == told[name]
        assert told == {"eager": "crash", "charged": "refused", "deferred": "granted"}
    assert len(window) > 50


@pytest.mark.parametrize("name", ["deferred", "vllm-0.33.0"])
def test_the_prover_counts_the_copies_that_the_model_adopts(name: str) -> None:
    """Of one resident group: with more, a page is adopted only if all its copies survived."""
    kept: Counter[int] = Counter()
    for case, seen_ in admissions(name):
        others = behind(case, seen_)
        if case.groups == 1 and others is not None and seen_.verdict == "granted":
            assert at(case, seen_).keeps(seen_.adopted, others)
            kept[seen_.adopted] += 1
    assert {0, 1, 2, 3} == set(kept)


# A running request.


@cache
def extensions(name: str) -> tuple[tuple[Case, int, Seen], ...]:
    """The same requests, admitted with plenty, and then asking for a page with few blocks left."""
    dialect, found = DIALECTS[name], []
    for case in cases():
        if case.watermark:
            continue
        for free, chunk in product(range(2 * case.groups * case.region + 3), (1, case.block_size)):
            session = case.prepared(dialect, AMPLE)
            for action in (Admit(0, chunk), EndStep(), Hold(free)):
                session.do(action)
            request = session.snapshot().requests[-1]
            tokens = min(case.tokens - request.computed, 2 * case.block_size)
            if tokens > 0:
                upto = request.computed + tokens
                found.append((case, upto, seen(session, Extend(1, tokens))))
    return tuple(found)


@pytest.mark.parametrize("name", ["eager", "deferred", "vllm-0.33.0"])
def test_the_prover_says_of_an_extension_what_the_model_does(name: str) -> None:
    verdicts: Counter[Verdict] = Counter()
    for case, tokens, seen_ in extensions(name):
        request = seen_.before.requests[-1]
        instance = running_instance(case.configuration, seen_.before, request, tokens)
        assert instance.legal
        assert instance.verdict("deferred") == seen_.verdict, (case, instance.numbers)
        assert seen_.verdict != "granted" or instance.takes(seen_.taken)
        verdicts[seen_.verdict] += 1
    assert min(verdicts["granted"], verdicts["refused"]) > 20


# What must be seen to disagree.


@pytest.mark.parametrize(
    "mutant",
    [m for m in MUTANTS if m.refuted_at in {
        "hits-pay", "deferred-optimal-in-tokens", "charged-begins", "margin-saves",
        "deferred-optimal", "deferred-begins", "groups-add-up",
    }],
    ids=lambda mutant: mutant.fault,
)  # fmt: skip
def test_a_wrong_formula_disagrees_with_the_model(mutant: Mutant) -> None:
    formulas = formulas_of(mutant)
    assert any(
        at(case, seen_, formulas).verdict(ORDERS[name]) != seen_.verdict
        for name in ("eager", "charged", "deferred")
        for case, seen_ in admissions(name)
    )


def test_a_wrong_count_of_copies_disagrees_with_the_model() -> None:
    (mutant,) = (each for each in MUTANTS if each.refuted_at == "kept-behind")
    formulas = formulas_of(mutant)
    assert any(
        not at(case, seen_, formulas).keeps(seen_.adopted, others)
        for case, seen_ in admissions("deferred")
        if case.groups == 1 and seen_.verdict == "granted" and (others := behind(case, seen_))
    )


def test_a_model_of_another_order_disagrees_with_the_prover() -> None:
    assert any(
        at(case, seen_).verdict("eager") != seen_.verdict for case, seen_ in admissions("deferred")
    )


def test_an_instance_that_leaves_a_number_open_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknowns"):
        Instance(hit_scene(THE_MODELS), {"F": 1})


def test_an_instance_that_no_call_makes_is_not_legal() -> None:
    case, seen_ = admissions("deferred")[0]
    instance = at(case, seen_)
    wrong = replace(instance, numbers={**instance.numbers, "e": instance.numbers["hit pages"] + 1})
    assert not wrong.legal
