"""Z3's Spacer on the projected counters: it infers an invariant, which three queries re-check."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from invariants.proofs.transition_system.capacity import FLAGS, RAISES, START, Step
from invariants.proofs.transition_system.formula import Formula
from invariants.proofs.transition_system.solver import ANSWERS, LIMIT_MS, Answer, Translation, z3
from invariants.proofs.transition_system.vocabulary import COUNTERS


@dataclass(frozen=True, slots=True)
class Inference:
    answer: Answer
    """Whether the bad state can be reached: ``unsatisfiable`` is no."""
    invariant: str
    rechecked: tuple[Answer, ...]
    """Can it fail at the start, be broken by a step, hold in a bad state? By plain queries."""

    @property
    def proved(self) -> bool:
        return self.answer == "unsatisfiable" and set(self.rechecked) == {"unsatisfiable"}


def infer(
    steps: Sequence[Step],
    start: Formula = START,
    bad: Formula = RAISES,
    limit_ms: int = LIMIT_MS,
) -> Inference:
    translation = Translation()
    state = [translation.integer(counter) for counter in COUNTERS]
    state += [translation.symbol(flag) for flag in FLAGS]
    invariant = z3.Function("invariant", *(each.sort() for each in state), z3.BoolSort())
    engine = z3.Fixedpoint()
    engine.set(engine="spacer", timeout=limit_ms)
    engine.register_relation(invariant)
    moves = [(translation.formula(step.guard), _after(step, translation)) for step in steps]
    for variable in {*state, *(x for guard, then in moves for x in _constants([guard, *then]))}:
        engine.declare_var(variable)
    engine.rule(invariant(*state), translation.formula(start))
    for guard, then in moves:
        engine.rule(invariant(*then), [invariant(*state), guard])
    reachable = z3.And(invariant(*state), translation.formula(bad))
    answer = _asked(engine, reachable)
    if answer != "unsatisfiable":
        return Inference(answer, "", ())
    found = z3.substitute_vars(engine.get_cover_delta(-1, invariant), *state)
    rechecked = (
        _check(translation.formula(start), z3.Not(found)),
        _check(
            found,
            z3.Or(
                [
                    z3.And(guard, z3.Not(z3.substitute(found, *zip(state, then, strict=True))))
                    for guard, then in moves
                ]
            ),
        ),
        _check(found, translation.formula(bad)),
    )
    return Inference(answer, " ".join(str(z3.simplify(found)).split()), rechecked)


def _asked(engine: Any, reachable: Any) -> Answer:
    """Out of time, the engine raises where it does not answer unknown."""
    try:
        return ANSWERS[str(engine.query(reachable))]
    except z3.Z3Exception as error:
        if "canceled" not in str(error):
            raise
        return "unknown"


def _after(step: Step, translation: Translation) -> list[Any]:
    counters = [translation.integer(step.counters[counter.name]) for counter in COUNTERS]
    return counters + [translation.formula(step.flags[flag.name]) for flag in FLAGS]


def _constants(terms: list[Any]) -> set[Any]:
    """The constants that terms mention."""
    found: set[Any] = set()
    todo = list(terms)
    while todo:
        term = todo.pop()
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found.add(term)
        todo.extend(term.children())
    return found


def _check(*terms: Any) -> Answer:
    solver = z3.SimpleSolver()
    solver.set("timeout", LIMIT_MS)
    solver.add(*terms)
    return ANSWERS[str(solver.check())]
