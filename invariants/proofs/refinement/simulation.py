"""Run a program on the model and on the transition system, side by side.

After every action of the program the two must agree on every relation of the state. The relations
that are compared in part, or not at all, are in ``NOT_COMPARED``, each with its reason.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from invariants.proofs.refinement.log import Call, Recorder
from invariants.proofs.refinement.system import NotAStepError, System, start
from invariants.proofs.refinement.witnesses import follow
from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.system import actions
from invariants.proofs.transition_system.interpretation import Observer
from invariants.proofs.transition_system.policy import policy_of
from invariants.proofs.transition_system.structure import Row, Structure
from invariants.proofs.transition_system.vocabulary import COUNTERS, STATE
from model.dialect import Dialect
from model.manager.events import Response
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.snapshot import Snapshot

NOT_COMPARED = {
    "used": "the system never forgets a slot, a snapshot has only those of now",
    "parting": "a release is one step of the model, so nothing is ever seen half released",
    "left": "ghost of the order inside a release, which the system makes itself",
    "gone": "ghost, as ``left``",
}
"""Relations of the state that a snapshot does not have, and why."""

SEEN_PART = {
    "pins": "which slot of an ended or preempted request a deferred release holds is not shown: "
    "their number is compared, block by block",
    "fresh": "a snapshot does not say who last wrote a block that only a deferred release holds",
    "valid": "the host pages of a request that is gone are not shown",
    "leased": "shown for pending writes only",
    "offered": "shown for admitted requests only",
}
"""Relations of which a snapshot has the part of admitted requests and pending writes, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action of a program: what the allocator was asked, and what came of it."""

    calls: tuple[Call, ...]
    response: Response
    after: Snapshot


@dataclass(frozen=True, slots=True)
class Simulation:
    """What became of a program on the system."""

    steps: int
    """Actions of the program that were followed."""
    taken: Counter[str]
    """How often each action of the system was taken."""
    wrong: tuple[str, ...]
    """Where the model did what the system cannot do, or the states differ: at the first step."""
    raised: bool
    """Whether the program ended because the allocator raised."""
    last: Structure
    """The last state of the system."""


def simulate(
    program: ManagerProgram, dialect: Dialect, allowed: Sequence[Action] | None = None
) -> Simulation:
    """Follow a program. ``allowed`` are the actions of the dialect's policy, unless given."""
    configuration = program.configuration
    recorder = Recorder(ReferenceAllocator(configuration, dialect))
    session: Session[Any, Any] = Session(configuration, cast("ReferenceAllocator", recorder))
    first = session.snapshot()
    steps: list[Step] = []
    for action in program.actions:
        response = session.do(action)
        steps.append(Step(recorder.drain(), response, session.snapshot()))
        if session.dead:
            break
    calls = [call for step in steps for call in step.calls]
    rules = actions(policy_of(dialect)) if allowed is None else allowed
    system = start(configuration, first.gpu.free, calls, recorder.requests, rules)
    observer = Observer(configuration)
    observer.observe((), first)
    return _follow_all(system, observer, steps, session.dead)


def _follow_all(
    system: System, observer: Observer, steps: Sequence[Step], raised: bool
) -> Simulation:
    followed, wrong = 0, list[str]()
    for step in steps:
        try:
            for call in step.calls:
                follow(system, call)
        except NotAStepError as error:
            wrong.append(f"action {followed + 1}: {error}")
        followed += 1
        if not wrong and not (raised and step is steps[-1]):
            observed = observer.observe(step.response, step.after)
            differing = differences(system.structure, observed)
            wrong += [f"action {followed}: {difference}" for difference in differing]
        if wrong:
            break
    return Simulation(followed, system.taken, tuple(wrong), raised, system.structure)


# Two states, relation by relation.


def differences(system: Structure, observed: Structure) -> Iterator[str]:
    """Where a state of the system is not the state that the model shows."""
    for relation in STATE:
        name = relation.name
        if name in NOT_COMPARED:
            continue
        ours, theirs = (_shown(name, state, observed) for state in (system, observed))
        yield from (f"the system has no {name}{row}" for row in sorted(theirs - ours, key=str))
        yield from (f"the model has no {name}{row}" for row in sorted(ours - theirs, key=str))
    yield from _dead_pins(system, observed)
    for counter in COUNTERS:
        ours_count, theirs_count = (x.counters[counter.name] for x in (system, observed))
        if ours_count != theirs_count:
            yield f"{counter.name} is {ours_count} in the system, {theirs_count} in the model"


def _shown(name: str, state: Structure, observed: Structure) -> frozenset[Row]:
    rows = state.rows(name)
    if name not in SEEN_PART:
        return rows
    shown = {row[0] for relation in ("live", "transfer") for row in observed.rows(relation)}
    if name == "leased":
        shown = {row[0] for row in observed.rows("transfer")}
    elif name in ("offered", "valid"):
        shown = {row[0] for row in observed.rows("live")}
    return frozenset(row for row in rows if row[0] in shown)


def _dead_pins(system: Structure, observed: Structure) -> Iterator[str]:
    """References of requests that are gone, counted for each block."""
    counts: list[Counter[object]] = [
        Counter(row[1] for row in state.rows("pins") if (row[0],) not in state.rows("live"))
        for state in (system, observed)
    ]
    ours, theirs = counts
    for block in sorted({*ours, *theirs}, key=str):
        if ours[block] != theirs[block]:
            held = f"{ours[block]} in the system, {theirs[block]} in the model"
            yield f"references to block {block} of requests that are gone: {held}"
