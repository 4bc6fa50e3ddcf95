"""All obligations of the transition system, and what became of each.

Every id starts with ``system.``. A row that is expected to be refuted shows that something can go
wrong, and that the proof would see it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

from invariants.proofs.transition_system import tasks
from invariants.proofs.transition_system.actions.system import SHARED_ACTIONS
from invariants.proofs.transition_system.invariant.conjunct import ASSUMPTION, Conjunct
from invariants.proofs.transition_system.invariant.conjuncts import conjuncts
from invariants.proofs.transition_system.mutants import Mutant, mutants
from invariants.proofs.transition_system.policy import ANYWHERE, DEFERRED, EAGER, SOUND, Policy
from invariants.proofs.transition_system.result import Result, Verdict, impossible
from invariants.proofs.transition_system.tasks import (
    Broken,
    Death,
    Inductions,
    broken_by_all,
    death_of,
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a task comes to: plain data, so that another process may have found it."""

    results: tuple[Result, ...] = ()
    broken: Broken = field(default_factory=dict)
    deaths: tuple[Death, ...] = ()
    ms: float = 0.0


def consecution(policy: Policy) -> str:
    """The task that asks what the actions of a policy break."""
    return f"consecution of {policy.name}"


def _gather(ask: Callable[[Inductions], Iterator[Result]], inductions: Inductions) -> Found:
    return Found(results=tuple(ask(inductions)))


def _ask_actions(policy: Policy, inductions: Inductions) -> Found:
    started = perf_counter()
    broken = broken_by_all(policy, inductions)
    return Found(broken=broken, ms=(perf_counter() - started) * 1000)


def _ask_mutants(inductions: Inductions) -> Found:
    return Found(deaths=tuple(death_of(mutant, inductions) for mutant in mutants()))


TASKS: Mapping[str, Callable[[Inductions], Found]] = {
    "second solver": partial(_gather, tasks.second_opinion),
    "drop one": partial(_gather, tasks.drop_one),
    "mutants": _ask_mutants,
    **{consecution(each): partial(_ask_actions, each) for each in (*SOUND, EAGER, ANYWHERE)},
    "inferred": partial(_gather, tasks.inferred),
    "stratified": partial(_gather, tasks.stratified),
    "counters": partial(_gather, tasks.counters),
    "enabled": partial(_gather, tasks.enabled),
    "counterexample": partial(_gather, tasks.counterexamples),
    "initiation": partial(_gather, tasks.initiation),
    "properties": partial(_gather, tasks.properties),
    "occasions": partial(_gather, tasks.occasions),
    "adoption": partial(_gather, tasks.moments),
}
"""All that is asked, the longest tasks first. No task depends on another."""


def prove() -> tuple[Result, ...]:
    """All obligations, one task after the other. Rule I4 rests on ``ASSUMPTION``."""
    return assemble({task: decide(task) for task in TASKS})


def decide(task: str) -> Found:
    """Do one of ``TASKS``."""
    return TASKS[task](Inductions())


def assemble(found: Mapping[str, Found]) -> tuple[Result, ...]:
    """What all tasks found, as obligations in the order in which they are told."""
    deaths = found["mutants"].deaths
    twins = {
        mutant.dies_at: _at_its_fault(death, mutant)
        for mutant, death in zip(mutants(), deaths, strict=True)
    }
    return (
        *found["stratified"].results,
        *found["initiation"].results,
        *_consecution(found, twins),
        *found["properties"].results,
        *_counters(found["counters"].results, twins),
        *found["enabled"].results,
        *found["occasions"].results,
        *found["drop one"].results,
        *_killed(deaths),
        *_unsound(found),
        *found["counterexample"].results,
        *found["adoption"].results,
        *found["inferred"].results,
        *found["second solver"].results,
    )


def _consecution(found: Mapping[str, Found], twins: Mapping[str, Verdict]) -> Iterator[Result]:
    for policy in SOUND:
        invariant, asked = conjuncts(policy), found[consecution(policy)]
        others = len(SHARED_ACTIONS) + 4 - len(asked.broken)
        rest = f", and the other {others} are those of deferred" if others else ""
        for conjunct in invariant:
            answers = {name: kept_by[conjunct.name] for name, kept_by in asked.broken.items()}
            wrong = [name for name, answer in answers.items() if answer != "unsatisfiable"]
            good = f"kept by {len(answers)} actions{rest}"
            yield Result(
                f"system.{policy.name}.{conjunct.name}",
                conjunct.rule,
                impossible(*answers.values()),
                "proved",
                asked.ms / len(invariant),
                twins.get(conjunct.name),
                f"not kept by {', '.join(wrong)}" if wrong else good + _assuming(conjunct),
            )


def _assuming(conjunct: Conjunct) -> str:
    return f"; assuming that {ASSUMPTION}" if conjunct.name in ("capacity", "phases") else ""


def _counters(results: Sequence[Result], twins: Mapping[str, Verdict]) -> Iterator[Result]:
    """The twin of the count of free blocks is the hand-out that does not count down."""
    for result in results:
        counted = result.id == f"system.{DEFERRED.name}.counts.pop"
        yield replace(result, twin=twins["counter free"]) if counted else result


def _at_its_fault(death: Death, mutant: Mutant) -> Verdict:
    """The verdict at the obligation that must see the fault."""
    return impossible(death.at[mutant.dies_at])


def _killed(deaths: Sequence[Death]) -> Iterator[Result]:
    rules = {conjunct.name: conjunct.rule for conjunct in conjuncts(DEFERRED)}
    by_name = {mutant.name: mutant for mutant in mutants()}
    for death in deaths:
        mutant = by_name[death.mutant]
        dies_at = [where for where, answer in death.at.items() if answer == "satisfiable"]
        yield Result(
            f"system.mutant.{mutant.name}",
            rules.get(mutant.dies_at, "I4"),
            _at_its_fault(death, mutant),
            "refuted",
            death.ms,
            None,
            f"`{mutant.action.name}`, {mutant.fault}: dies at {', '.join(dies_at) or 'nothing'}",
        )


def _unsound(found: Mapping[str, Found]) -> Iterator[Result]:
    """Adoption before the pops, or between them: it breaks capacity, and nothing else."""
    for policy in (EAGER, ANYWHERE):
        wrong = {
            (action, name): answer
            for action, answers in found[consecution(policy)].broken.items()
            for name, answer in answers.items()
            if answer != "unsatisfiable"
        }
        yield Result(
            f"system.{policy.name}.capacity",
            "I4",
            impossible(*wrong.values()),
            "refuted",
            found[consecution(policy)].ms,
            None,
            "fails at " + " and ".join(f"`{action}`: {name}" for action, name in wrong),
        )
