"""Exhaustive search sees every state, finds shortest ways, and its reductions lose nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from invariants.rules import RULES
from kvproof.cli import run
from kvproof.levels.manager import ManagerExaminer
from kvproof.subjects.reference import reference_subject
from model.dialect import Dialect
from model.manager.actions import Admit, Arrive, EndStep, Extend, Finish
from model.manager.events import Allocated, Refused
from model.releases import DIALECTS
from model.startup import below_minimum, minimum_blocks
from specs.casefile import read_case
from specs.exhaustive import normal_form as forms
from specs.exhaustive.abstract import Machine, Phase, State, Step
from specs.exhaustive.abstract_space import AbstractSpace
from specs.exhaustive.breadth import Exploration, Limits, breadth_first
from specs.exhaustive.checkpoint import Checkpoints, Played
from specs.exhaustive.engine_space import EngineSpace
from specs.exhaustive.instance import Instance, instance_of
from specs.exhaustive.symmetry import normal_form
from specs.manager.generator import draw_program

EAGER, CHARGED, DEFERRED = (DIALECTS[name] for name in ("eager", "charged", "deferred"))
OLDEST, NEWEST = DIALECTS["vllm-0.30.0"], DIALECTS["vllm-0.33.0"]
POLICIES = (EAGER, CHARGED, DEFERRED, NEWEST)
"""One dialect for each policy of the abstract machine."""
SHORTEST = 15
"""Actions of the shortest crash of the abstract machine at 6/3/2/1."""
NO_LIMITS = Limits()

# The search itself, on a graph that is plain to see


@dataclass(frozen=True, slots=True)
class Counting:
    """From 1, add one or double, modulo 100. ``bad`` is a violation."""

    bad: int

    def initial(self) -> int:
        return 1

    def expand(self, kept: int) -> Iterator[tuple[str, int]]:
        yield "add", (kept + 1) % 100
        yield "double", kept * 2 % 100

    def key(self, live: int) -> int:
        return live

    def keep(self, live: int) -> int:
        return live

    def violation(self, live: int, new: bool) -> str | None:
        return f"reached {live}" if live == self.bad else None


def test_every_state_is_seen_once() -> None:
    seen = breadth_first(Counting(bad=-1), NO_LIMITS)
    assert seen.complete
    assert (seen.states, seen.transitions) == (100, 200)


def test_the_way_to_a_violation_is_a_shortest_one() -> None:
    seen = breadth_first(Counting(bad=33), NO_LIMITS)
    assert not seen.complete
    assert seen.violation == "reached 33"
    assert seen.way == ("add", *("double",) * 4, "add")


def test_a_violation_of_the_initial_state_needs_no_step() -> None:
    assert breadth_first(Counting(bad=1), NO_LIMITS).way == ()


@pytest.mark.parametrize(
    ("limits", "stopped"),
    [(Limits(states=7), "7 states"), (Limits(depth=3), "3 steps"), (Limits(seconds=0), "0 s")],
)
def test_a_limit_ends_the_search_and_is_named(limits: Limits, stopped: str) -> None:
    seen = breadth_first(Counting(bad=-1), limits)
    assert not seen.complete
    assert seen.stopped == stopped
    assert seen.violation is None


# The abstract machine


def abstract(
    sizes: tuple[int, int, int, int], dialect: Dialect, reduce: bool = True, stop: bool = True
) -> Exploration[Step, str]:
    return breadth_first(AbstractSpace(Machine(*sizes, dialect), reduce, stop), NO_LIMITS)


def test_the_deferred_policy_is_clean_at_8_blocks_within_30_seconds() -> None:
    started = time.process_time()
    seen = abstract((8, 3, 2, 1), DEFERRED)
    assert seen.complete
    assert seen.states > 1_000
    assert time.process_time() - started < 30


def test_the_shortest_crash_of_the_eager_policy_is_found_within_2_seconds() -> None:
    started = time.process_time()
    seen = abstract((6, 3, 2, 1), EAGER)
    assert seen.way is not None
    assert len(seen.way) == SHORTEST
    assert time.process_time() - started < 2


def test_the_shortest_crash_is_a_way_of_the_machine() -> None:
    machine = Machine(6, 3, 2, 1, EAGER)
    way = abstract((6, 3, 2, 1), EAGER).way
    assert way is not None
    state = machine.initial()
    for step in way:
        assert not machine.crashed(state)
        state = dict(machine.steps(state))[step]
    assert machine.crashed(state)
    assert not list(machine.steps(state))


@pytest.mark.parametrize("dialect", POLICIES[1:], ids=lambda d: d.name)
def test_every_other_policy_is_clean_where_eager_crashes(dialect: Dialect) -> None:
    assert abstract((6, 3, 2, 1), dialect).complete


def test_without_its_charge_the_charged_policy_crashes() -> None:
    uncharged = replace(CHARGED, charge_copies=False)
    assert abstract((6, 3, 2, 1), uncharged).violation is not None


def test_without_its_delay_the_deferred_policy_crashes() -> None:
    hasty = replace(DEFERRED, adopt_at="commit")
    assert abstract((6, 3, 2, 1), hasty).violation is not None


def all_states(machine: Machine) -> set[State]:
    seen, todo = {machine.initial()}, [machine.initial()]
    while todo:
        for _, after in machine.steps(todo.pop()):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


@pytest.mark.parametrize("dialect", POLICIES, ids=lambda d: d.name)
def test_renaming_leaves_out_no_state_of_the_abstract_machine(dialect: Dialect) -> None:
    everything = all_states(Machine(5, 2, 2, 1, dialect))
    reduced = abstract((5, 2, 2, 1), dialect, stop=False)
    assert len({normal_form(state) for state in everything}) == reduced.states < len(everything)


def test_a_normal_form_that_mixes_states_up_is_noticed() -> None:
    """Twin: forget which blocks are being written, and fewer classes are left."""
    everything = all_states(Machine(5, 2, 2, 1, DEFERRED))
    mixed = {normal_form(state._replace(writing=())) for state in everything}
    assert len(mixed) < abstract((5, 2, 2, 1), DEFERRED, stop=False).states


@pytest.mark.parametrize("dialect", POLICIES, ids=lambda d: d.name)
def test_the_shortest_crash_does_not_depend_on_the_reduction(dialect: Dialect) -> None:
    reduced = abstract((4, 2, 2, 1), dialect).way
    plain = abstract((4, 2, 2, 1), dialect, reduce=False).way
    assert (None if reduced is None else len(reduced)) == (None if plain is None else len(plain))


def test_a_block_of_the_abstract_machine_has_one_holder_or_readers_of_one_page() -> None:
    for state in all_states(Machine(5, 2, 2, 1, DEFERRED)):
        uses: dict[int, set[object]] = {}
        for r, request in enumerate(state.requests):
            for page, block in enumerate(request.row):
                own = (r, page) if page == len(request.row) - 1 else page
                uses.setdefault(block, set()).add(("page", own))
            for place, block in enumerate(request.hot):
                uses.setdefault(block, set()).add(("hot", r, place))
        uses.pop(0)
        assert all(len(found) == 1 for found in uses.values())
        assert sum(r.phase == Phase.POPPING for r in state.requests) <= 1


# Checkpoints


@pytest.mark.parametrize("name", ["vllm-0.30.0", "vllm-0.31.0", "vllm-0.33.0"])
def test_a_restored_session_goes_on_as_the_one_that_was_saved(name: str) -> None:
    """Whatever was drawn: asynchronous, several groups and workers, watched blocks handed out."""
    dialect, watched = DIALECTS[name], 0
    for number in range(25):
        program = draw_program(Random(number), dialect, 40)
        checkpoints = Checkpoints(program.configuration, dialect)
        straight, broken_off = checkpoints.start(RULES), checkpoints.start(RULES)
        for action in program.actions:
            watched += bool(straight.session.snapshot().gpu.watched)
            straight.take(action)
            broken_off = checkpoints.restore(checkpoints.save(broken_off))
            broken_off.take(action)
            assert broken_off.response == straight.response
            assert broken_off.session.snapshot() == straight.session.snapshot()
            assert broken_off.violations == straight.violations
    assert watched > 50


def test_steps_after_a_checkpoint_do_not_change_it() -> None:
    instance = smallest(NEWEST, pages=1)
    checkpoints = Checkpoints(instance.configuration, NEWEST)
    start = checkpoints.start(RULES)
    start.take(Arrive(0, 4, 3))
    saved = checkpoints.save(start)
    checkpoints.restore(saved).take(Admit(0, 2))
    assert len(checkpoints.restore(saved).session.waiting) == 1


# The model as a space


def smallest(dialect: Dialect, pages: int, requests: int = 2, spare: int = 0) -> Instance:
    """The instance with the smallest pool with which the engine would start."""
    draft = instance_of(dialect, 99, requests, pages, hot=1)
    blocks = minimum_blocks(draft.configuration, dialect) + spare
    return instance_of(dialect, blocks, requests, pages, hot=1)


@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("name", ["vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0"])
def test_two_requests_at_the_start_up_minimum_are_searched_completely(
    name: str, pages: int
) -> None:
    started = time.process_time()
    space = EngineSpace(smallest(DIALECTS[name], pages))
    seen = breadth_first(space, NO_LIMITS)
    assert seen.complete
    assert seen.states > 100
    assert space.known["K5"] > 0
    assert space.taken["hit"] > 0
    assert time.process_time() - started < 120


def test_a_defect_that_is_not_known_to_be_in_a_dialect_is_a_violation() -> None:
    unaware = replace(NEWEST, known_defects=())
    seen = breadth_first(EngineSpace(smallest(unaware, pages=1)), NO_LIMITS)
    assert seen.violation is not None
    assert seen.violation.rule == "I16"


def test_the_shortest_crash_of_the_oldest_release_takes_six_calls_and_two_arrivals() -> None:
    instance = smallest(OLDEST, pages=2)
    assert below_minimum(instance.configuration, OLDEST) is None
    seen = breadth_first(EngineSpace(instance), NO_LIMITS)
    assert seen.violation is not None
    assert seen.way is not None
    assert seen.violation.rule == "I4"
    assert sum(isinstance(action, Arrive) for action in seen.way) == 2
    assert len(seen.way) == 8


@pytest.mark.parametrize("name", ["charged", "deferred", "vllm-0.33.0"])
def test_no_other_policy_crashes_where_the_oldest_release_does(name: str) -> None:
    """At the same sizes, judged by the rule of the crash."""
    soundness = [rule for rule in RULES if rule.id == "I4"]
    instance = replace(smallest(OLDEST, pages=2), dialect=DIALECTS[name])
    seen = breadth_first(EngineSpace(instance, soundness), NO_LIMITS)
    assert seen.complete


def raw_key(played: Played) -> object:
    """Everything that a session and its judge know, under their own names."""
    ghost = forms.ghost_of(played)
    return (
        played.session.fingerprint(),
        repr(played.session.allocator.state.copies),  # type: ignore[attr-defined]
        repr(sorted(ghost.gpu.items())),
        repr(sorted(ghost.host.items())),
        repr(ghost.writes),
    )


def raw_states(space: EngineSpace, most: int) -> list[bytes]:
    """Reachable states without any reduction, nearest first."""
    start = space.initial()
    kept, seen = [space.keep(start)], {raw_key(start)}
    for state in kept:
        if len(kept) >= most:
            break
        for _, after in space.expand(state):
            if raw_key(after) not in seen:
                seen.add(raw_key(after))
                kept.append(space.keep(after))
    return kept


def answer(played: Played) -> tuple[object, ...]:
    """What was answered, apart from the names of requests and blocks."""
    told = ("tokens", "promised", "taken", "hit", "pending")
    return tuple(
        (event.word, *(getattr(event, name) for name in told if hasattr(event, name)))
        if isinstance(event, Allocated | Refused)
        else event.word
        for event in played.response
    )


def futures(space: EngineSpace, kept: bytes) -> frozenset[tuple[object, ...]]:
    """What each action leads to, answers and breaks; the request's index of ``Finish`` left out."""
    return frozenset(
        (
            Finish if isinstance(action, Finish) else action,
            space.key(after),
            answer(after),
            frozenset(violation.rule for violation in after.violations),
        )
        for action, after in space.expand(kept)
    )


def ambiguous(instance: Instance, most: int) -> tuple[int, int, int]:
    """(states, normal forms, normal forms whose states have different futures)."""
    space = EngineSpace(instance)
    known: dict[bytes, set[object]] = {}
    states = raw_states(space, most)
    for kept in states:
        key = space.key(Checkpoints(instance.configuration, instance.dialect).restore(kept))
        known.setdefault(key, set()).add(futures(space, kept))
    return len(states), len(known), sum(len(found) > 1 for found in known.values())


@pytest.mark.parametrize("name", ["vllm-0.30.0", "vllm-0.31.0", "vllm-0.33.0"])
def test_states_of_one_normal_form_have_the_same_futures(name: str) -> None:
    dialect = DIALECTS[name]
    states, found, different = ambiguous(smallest(dialect, pages=2, spare=1), most=500)
    assert states >= 250
    assert found < states
    assert different == 0


REQUESTS, SCHEDULER, COPIES, GPU_POOL, HOST_POOL = (0,), (1,), 3, 5, 6
POOLS = (COPIES, GPU_POOL, HOST_POOL)


def blind_to(parts: tuple[int, ...]) -> Callable[[Played], tuple[object, ...]]:
    """A normal form without some of its parts."""
    whole = forms.normal_form

    def without(played: Played) -> tuple[object, ...]:
        return tuple(part for place, part in enumerate(whole(played)) if place not in parts)

    return without


@pytest.mark.parametrize("parts", [REQUESTS, SCHEDULER, POOLS])
def test_a_normal_form_that_forgets_too_much_is_noticed(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[int, ...]
) -> None:
    monkeypatch.setattr(forms, "normal_form", blind_to(parts))
    _, _, different = ambiguous(smallest(NEWEST, pages=2, spare=1), most=500)
    assert different > 0


def test_a_step_goes_to_running_requests_first() -> None:
    instance = smallest(NEWEST, pages=2, spare=4)
    space = EngineSpace(instance)
    state = space.keep(space.initial())
    arrive = Arrive(0, instance.configuration.max_model_len, instance.prompt)
    for wanted in (arrive, arrive, Admit(0, 2), EndStep()):
        state = space.keep(dict(space.expand(state))[wanted])
    offered = {type(action) for action, _ in space.expand(state)}
    assert Extend in offered
    assert Admit not in offered


# The command

KEYS = {"complete", "states", "transitions", "depth", "seconds", "violation"}


def explore(
    capsys: pytest.CaptureFixture[str], sizes: tuple[int, ...], *more: str
) -> tuple[int, dict[str, object]]:
    names = ("--blocks", "--requests", "--pages", "--hot")
    options = [part for pair in zip(names, map(str, sizes), strict=True) for part in pair]
    code = run(["explore", *options, *more, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_explore_is_0_when_all_is_seen_and_clean(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, seen = explore(capsys, (5, 2, 1, 1), "--dialect", "vllm-0.33.0", "--out", str(tmp_path))
    assert code == 0
    assert seen.keys() >= KEYS
    assert seen["complete"] is True
    assert seen["violation"] is None
    assert not list(tmp_path.iterdir())


def test_explore_is_1_at_a_violation_and_leaves_a_trace_that_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, seen = explore(capsys, (8, 2, 2, 1), "--dialect", "vllm-0.30.0", "--out", str(tmp_path))
    assert code == 1
    assert seen["complete"] is False
    violation = seen["violation"]
    assert isinstance(violation, dict)
    assert violation.keys() >= {"rule", "actions", "trace"}
    assert violation["rule"] == "I4"
    program = read_case(Path(violation["trace"])).program
    assert len(program.actions) == len(violation["actions"]) == 8
    for dialect, broken in ((OLDEST, {"I4"}), (DEFERRED, set[str]())):
        examiner = ManagerExaminer(reference_subject(dialect), dialect, RULES, watch_goals=False)
        assert examiner.examine(program).rules_broken == broken


def test_explore_is_2_when_the_time_or_the_states_are_used_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--dialect", "vllm-0.33.0", "--max-states", "20")
    code, seen = explore(capsys, (7, 2, 2, 1), *more)
    assert code == 2
    assert seen["complete"] is False
    assert seen["violation"] is None


def test_explore_names_a_pool_below_the_start_up_minimum(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, seen = explore(capsys, (4, 2, 1, 1), "--dialect", "vllm-0.33.0")
    assert code == 2
    assert "below the start-up minimum 5" in str(seen["error"])
    code, seen = explore(capsys, (4, 2, 1, 1), "--dialect", "vllm-0.33.0", "--below-minimum")
    assert seen["below_minimum"] == "num_blocks 4 is below the start-up minimum 5"
    assert code == 0


def test_explore_of_the_abstract_machine_knows_no_start_up_minimum(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("--mode", "abstract", "--dialect")
    code, seen = explore(capsys, (4, 2, 2, 1), *more, "deferred")
    assert (code, seen["complete"]) == (0, True)
    code, seen = explore(capsys, (4, 2, 2, 1), *more, "eager")
    assert code == 1


def test_a_search_in_which_nothing_could_happen_is_not_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, seen = explore(capsys, (3, 2, 2, 1), "--mode", "abstract", "--dialect", "deferred")
    assert code == 2
    assert seen["complete"] is False
    assert "no request was ever admitted" in str(seen["stopped"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--dialect", "none"), "there is no dialect 'none'"),
        (("--dialect", "eager", "--rule", "I99"), "there is no rule 'I99'"),
        (("--dialect", "eager", "--rule", "I8"), "I8 is not judged"),
        (("--dialect", "eager", "--no-reduction"), "--no-reduction is for --mode abstract only"),
        (("--dialect", "eager", "--mode", "abstract", "--batch", "4"), "--batch is for --mode"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    code, seen = explore(capsys, (8, 2, 2, 1), *more)
    assert code == 2
    assert message in str(seen["error"])
