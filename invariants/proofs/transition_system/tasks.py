"""What the solvers are asked, in tasks that do not depend on each other.

A task is plain functions from ``Inductions`` to results, so that each may run in a process of its
own: solver terms stay where they are made.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

from invariants.proofs.transition_system import capacity, counterexample, second_solver
from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.system import (
    SHARED_ACTIONS,
    actions,
    policy_actions,
)
from invariants.proofs.transition_system.adoption import BETWEEN_POPS, MOMENTS
from invariants.proofs.transition_system.alternation import cycle, edges
from invariants.proofs.transition_system.consecution import (
    Induction,
    counter_obligations,
    fresh_after_pop,
    kept,
)
from invariants.proofs.transition_system.formula import Formula, every, exists, forall
from invariants.proofs.transition_system.invariant.conjunct import AXIOMS, COUNTING, Conjunct
from invariants.proofs.transition_system.invariant.conjuncts import conjuncts
from invariants.proofs.transition_system.invariant.properties import PROPERTIES
from invariants.proofs.transition_system.mutants import Mutant, mutants
from invariants.proofs.transition_system.occasions import OCCASIONS, Occasion
from invariants.proofs.transition_system.policy import (
    ANYWHERE,
    CHARGED,
    DEFERRED,
    EAGER,
    END_OF_STEP,
    SOUND,
    Policy,
)
from invariants.proofs.transition_system.result import Result, Verdict, impossible, possible
from invariants.proofs.transition_system.solver import Answer, Solver, Translation
from invariants.proofs.transition_system.spacer import infer
from invariants.proofs.transition_system.vocabulary import b, pins, s

NOT_LEANED_ON = (
    "one_writer",
    "writer_holds_alone",
    "valid_is_durable",
    "cut_is_never_published",
    "due_is_queued",
    "due_is_complete",
    "phases",
    "capacity",
    "survivors_are_the_head",
)
"""Conjuncts of ``deferred`` without which all others are still inductive: they carry a rule of
their own (or, for ``one_writer`` and the two about what is due, what ``charged`` needs)."""

Broken = Mapping[str, Mapping[str, Answer]]
"""By action and conjunct: can the one break the other?"""


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    witness: str = ""
    twin: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """Where a mutant is refuted."""

    mutant: str
    at: Mapping[str, Answer]
    """Answer at each obligation: satisfiable where the mutant dies."""
    ms: float


class Inductions:
    """The invariants that a task is about, each made once, over shared terms."""

    def __init__(self) -> None:
        self._translation = Translation()
        self._made: dict[str, Induction] = {}

    def of(self, policy: Policy) -> Induction:
        """Policies with equal invariants share one."""
        owner = DEFERRED if policy in (END_OF_STEP, ANYWHERE) else policy
        if owner.name not in self._made:
            self._made[owner.name] = Induction(owner, self._translation)
        induction = self._made[owner.name]
        if conjuncts(policy) != induction.invariant:
            raise ValueError(f"{policy.name} has another invariant than {owner.name}")
        return induction


def _timed(id_: str, rule: str, expected: Verdict, decide: Callable[[], Outcome]) -> Result:
    started = perf_counter()
    outcome = decide()
    ms = (perf_counter() - started) * 1000
    return Result(id_, rule, outcome.verdict, expected, ms, outcome.twin, outcome.witness)


# Stratification, initiation, consecution.


def asserted() -> Iterator[tuple[str, list[Formula]]]:
    """Per action of any policy, every formula that its queries assume."""
    for policy in (DEFERRED, CHARGED, END_OF_STEP, EAGER, ANYWHERE):
        invariant = [conjunct.formula for conjunct in conjuncts(policy)]
        for action in actions(policy) if policy is DEFERRED else policy_actions(policy):
            goals = [*invariant, *counter_obligations(action).values()]
            negated = [~kept(action, goal) for goal in goals]
            yield action.name, [AXIOMS, COUNTING, *invariant, action.guard, *negated]


def stratified(_: Inductions) -> Iterator[Result]:
    yield _timed("system.stratified", "all", "proved", _alternation)


def _alternation() -> Outcome:
    found: set[tuple[str, str]] = set()
    for name, formulas in asserted():
        circle = cycle(formulas)
        if circle:
            return Outcome("refuted", f"{name}: {' → '.join(sort.name for sort in circle)}")
        found |= {(x.name, y.name) for formula in formulas for x, y in edges(formula)}
    circular = [forall(b)(exists(s)(pins(s, b))), forall(s)(exists(b)(pins(s, b)))]
    arrows = ", ".join(f"{x} → {y}" for x, y in sorted(found))
    return Outcome("proved", arrows, "refuted" if cycle(circular) else "proved")


def initiation(inductions: Inductions) -> Iterator[Result]:
    for policy in SOUND:
        induction = inductions.of(policy)

        def decide(induction: Induction = induction) -> Outcome:
            answers = [induction.initially_broken(each) for each in induction.invariant]
            return Outcome(impossible(*answers), f"{len(answers)} conjuncts")

        yield _timed(f"system.{policy.name}.initiation", "all", "proved", decide)


def broken_by_all(policy: Policy, inductions: Inductions) -> Broken:
    """Of policies with the invariant of ``deferred``, only their own actions are asked about."""
    induction = inductions.of(policy)
    shared = SHARED_ACTIONS if policy is induction.policy else ()
    return {each.name: induction.broken_by(each) for each in (*policy_actions(policy), *shared)}


def properties(inductions: Inductions) -> Iterator[Result]:
    induction = inductions.of(DEFERRED)
    for each in PROPERTIES:

        def decide(formula: Formula = each.formula) -> Outcome:
            alone = Solver()
            alone.add(AXIOMS)
            return Outcome(
                impossible(induction.can(~formula)),
                "follows from the invariant",
                impossible(alone.check(~formula)),
            )

        yield _timed(f"system.property.{each.name}", each.rule, "proved", decide)
    pop = next(action for action in SHARED_ACTIONS if action.name == "pop")
    careless = next(m.action for m in mutants() if m.name == "readers_go_on")

    def decide_reuse() -> Outcome:
        right, wrong = (
            impossible(induction.can(action.guard, ~kept(action, fresh_after_pop())))
            for action in (pop, careless)
        )
        return Outcome(right, "after a hand-out only the new holder is left", wrong)

    yield _timed("system.property.reuse_stops_readers", "I9", "proved", decide_reuse)


# Counters, non-vacuity, drop-one.


def counters(inductions: Inductions) -> Iterator[Result]:
    for policy in SOUND:
        induction = inductions.of(policy)
        own = policy_actions(policy)
        for action in (*own, *SHARED_ACTIONS) if policy is DEFERRED else own:

            def decide(action: Action = action, induction: Induction = induction) -> Outcome:
                goals = counter_obligations(action)
                answers = [induction.can(action.guard, ~goal) for goal in goals.values()]
                names = ", ".join(goals)
                return Outcome(impossible(*answers), f"{names} move exactly with their sets")

            yield _timed(f"system.{policy.name}.counts.{action.name}", "I1 I4", "proved", decide)


def enabled(inductions: Inductions) -> Iterator[Result]:
    for policy in SOUND:
        induction = inductions.of(policy)
        own = policy_actions(policy)
        for action in (*own, *SHARED_ACTIONS) if policy is DEFERRED else own:

            def decide(action: Action = action, induction: Induction = induction) -> Outcome:
                return Outcome(
                    possible(induction.can(action.guard)), "happens in a state of the invariant"
                )

            yield _timed(f"system.{policy.name}.enabled.{action.name}", "all", "proved", decide)


def occasions(inductions: Inductions) -> Iterator[Result]:
    induction = inductions.of(DEFERRED)
    for name, occasion in OCCASIONS.items():

        def decide(occasion: Occasion = occasion) -> Outcome:
            answer = induction.can(occasion.action.guard, occasion.condition)
            return Outcome(possible(answer), occasion.sentence)

        yield _timed(f"system.occasion.{name}", occasion.rule, "proved", decide)


def drop_one(inductions: Inductions) -> Iterator[Result]:
    """Is the rest inductive without this conjunct? It is refuted for one that is needed.

    Only obligations whose proof leaned on the conjunct are asked about again.
    """
    induction = inductions.of(DEFERRED)
    cores = {action.name: induction.leaning(action) for action in actions(DEFERRED)}
    by_name = {action.name: action for action in actions(DEFERRED)}
    invariant = {conjunct.name: conjunct for conjunct in conjuncts(DEFERRED)}
    for conjunct in invariant.values():
        leaning = [
            (action, other)
            for action, found in cores.items()
            for other, core in found.items()
            if other != conjunct.name and conjunct.name in core
        ]

        def decide(
            conjunct: Conjunct = conjunct, leaning: list[tuple[str, str]] = leaning
        ) -> Outcome:
            rest = [x.formula for x in invariant.values() if x is not conjunct]
            solver = Solver(translation=induction.translation)
            solver.add(AXIOMS, COUNTING, *rest)
            answers: list[Answer] = []
            for action, other in leaning:
                goal = kept(by_name[action], invariant[other].formula)
                answers.append(solver.check(by_name[action].guard, ~goal))
                if answers[-1] == "satisfiable":
                    return Outcome("refuted", f"without it `{action}` breaks {other}")
            implied = solver.check(~conjunct.formula) == "unsatisfiable"
            why = "the others imply it" if implied else "the others stand without it"
            return Outcome(impossible(*answers), why)

        expected: Verdict = "proved" if conjunct.name in NOT_LEANED_ON else "refuted"
        yield _timed(f"system.without.{conjunct.name}", conjunct.rule, expected, decide)


# Mutants, and the policy that is one.


def death_of(mutant: Mutant, inductions: Inductions) -> Death:
    started = perf_counter()
    induction = inductions.of(mutant.policy)
    answers = induction.broken_by(mutant.action)
    for name, goal in counter_obligations(mutant.action).items():
        answers[f"counter {name}"] = induction.can(mutant.action.guard, ~goal)
    return Death(mutant.name, answers, (perf_counter() - started) * 1000)


def eager_counterexample() -> counterexample.Counterexample | None:
    """The state from which adoption at the commit takes a block that was promised."""
    invariant = conjuncts(EAGER)
    adopting = next(action for action in policy_actions(EAGER) if action.name == "adopt")
    broken = next(conjunct for conjunct in invariant if conjunct.name == "capacity")
    return counterexample.find(adopting, broken, invariant, Solver())


def counterexamples(_: Inductions) -> Iterator[Result]:
    """Adoption at the commit: the state before, the step, and what it breaks."""

    def decide() -> Outcome:
        found = eager_counterexample()
        if found is None:
            return Outcome("unknown")
        confirmed = found.confirmed(conjuncts(EAGER))
        return Outcome("refuted" if confirmed else "unknown", " ".join(found.sentences()))

    yield _timed("system.eager.counterexample", "I4", "refuted", decide)


# The moment of adoption, inference, the second solver.


def moments(inductions: Inductions) -> Iterator[Result]:
    induction = inductions.of(DEFERRED)
    for moment in MOMENTS:

        def decide(never: Formula = moment.never, twin: Formula = moment.twin) -> Outcome:
            return Outcome(impossible(induction.can(never)), "", impossible(induction.can(twin)))

        result = _timed(f"system.adoption.{moment.name}", "I4", "proved", decide)
        yield Result(
            result.id, "I4", result.verdict, "proved", result.ms, result.twin, moment.sentence
        )

    def decide_reachable() -> Outcome:
        return Outcome(possible(induction.can(BETWEEN_POPS)), "the invariant allows that moment")

    yield _timed("system.adoption.such_a_moment_exists", "I4", "proved", decide_reachable)


def inferred(_: Inductions) -> Iterator[Result]:
    for policy in (*SOUND, EAGER):

        def decide(policy: Policy = policy) -> Outcome:
            found = infer(capacity.steps(policy))
            verdict = impossible(found.answer, *found.rechecked)
            if found.answer == "satisfiable":
                return Outcome(verdict, "an admitted allocation pops from an empty queue")
            return Outcome(verdict, f"inferred and re-checked: {found.invariant}")

        expected: Verdict = "refuted" if policy is EAGER else "proved"
        yield _timed(f"system.{policy.name}.inferred_capacity", "I4", expected, decide)


def second_opinion(inductions: Inductions) -> Iterator[Result]:
    """One query for each action of ``deferred``, all conjuncts at once; and eager's failure."""
    if not second_solver.available():
        return
    eager_adopts = [action for action in policy_actions(EAGER) if action.name == "adopt"]
    for policy, asked in ((DEFERRED, actions(DEFERRED)), (EAGER, eager_adopts)):
        induction = inductions.of(policy)
        solver = Solver(translation=induction.translation)
        solver.add(AXIOMS, COUNTING, *(each.formula for each in induction.invariant))
        for action in asked:

            def decide(
                action: Action = action,
                solver: Solver = solver,
                induction: Induction = induction,
                models: bool = policy is EAGER,
            ) -> Outcome:
                touched = [x for x in induction.invariant if induction.touches(action, x)]
                goal = every(*(kept(action, conjunct.formula) for conjunct in touched))
                answer = second_solver.check(solver.smtlib(action.guard, ~goal), models)
                return Outcome(
                    impossible(answer), f"cvc5 on {len(touched)} conjuncts that the action touches"
                )

            expected: Verdict = "refuted" if policy is EAGER else "proved"
            yield _timed(f"system.cvc5.{policy.name}.{action.name}", "all", expected, decide)
