"""Which conjuncts an action keeps, and whether the counters move exactly with their sets."""

from dataclasses import dataclass, field

from invariants.proofs.transition_system.actions.action import Action
from invariants.proofs.transition_system.actions.system import initial
from invariants.proofs.transition_system.formula import (
    FALSE,
    Counter,
    Equal,
    Formula,
    Relation,
    after,
    every,
    forall,
    iff,
    implies,
    integer_after,
    mentioned,
    some,
)
from invariants.proofs.transition_system.invariant.conjunct import AXIOMS, COUNTING, Conjunct
from invariants.proofs.transition_system.invariant.conjuncts import conjuncts
from invariants.proofs.transition_system.policy import Policy
from invariants.proofs.transition_system.solver import Answer, Solver, Translation
from invariants.proofs.transition_system.vocabulary import (
    BLOCK_TAKEN,
    SLOT_TAKEN,
    b,
    copy,
    due,
    free,
    fresh,
    hit,
    keyed,
    p,
    pins,
    queued,
    reads,
    s,
    to_pin,
    to_pop,
    to_touch,
    transfer,
)


def kept(action: Action, formula: Formula) -> Formula:
    """What must hold before the action for the formula to hold after it."""
    return after(formula, action.relations, action.counters)


@dataclass(slots=True)
class Induction:
    """One invariant, ready to be asked about initial states and actions."""

    policy: Policy
    translation: Translation = field(default_factory=Translation)
    invariant: tuple[Conjunct, ...] = ()
    _about: dict[str, frozenset[str]] = field(default_factory=dict)
    _start: Solver = field(init=False)
    _before: Solver = field(init=False)
    _tracking: Solver = field(init=False)

    def __post_init__(self) -> None:
        self.invariant = conjuncts(self.policy)
        self._about = {each.name: mentioned(each.formula) for each in self.invariant}
        self._start, self._before, self._tracking = (
            Solver(translation=self.translation) for _ in range(3)
        )
        self._start.add(AXIOMS, initial())
        self._before.add(AXIOMS, COUNTING, *(each.formula for each in self.invariant))
        self._tracking.add(AXIOMS, COUNTING)
        for conjunct in self.invariant:
            self._tracking.track(conjunct.name, conjunct.formula)

    def can(self, *formulas: Formula) -> Answer:
        """Whether some state of the invariant satisfies the formulas."""
        return self._before.check(*formulas)

    def initially_broken(self, conjunct: Conjunct) -> Answer:
        """Whether some initial state breaks the conjunct."""
        return self._start.check(~conjunct.formula)

    def broken_by(self, action: Action) -> dict[str, Answer]:
        """For each conjunct: can the action break it? If it changes nothing in it, it cannot."""
        self._before.push()
        self._before.add(action.guard)
        answers: dict[str, Answer] = {
            conjunct.name: self.can(~kept(action, conjunct.formula))
            if self.touches(action, conjunct)
            else "unsatisfiable"
            for conjunct in self.invariant
        }
        self._before.pop()
        return answers

    def touches(self, action: Action, conjunct: Conjunct) -> bool:
        """Whether the conjunct is about anything that the action changes."""
        return not self._about[conjunct.name].isdisjoint((*action.relations, *action.counters))

    def leaning(self, action: Action) -> dict[str, frozenset[str]]:
        """For each conjunct that the action keeps though it changes something in it: conjuncts that
        suffice for that."""
        self._tracking.push()
        self._tracking.add(action.guard)
        cores = {
            conjunct.name: self._tracking.lean(~kept(action, conjunct.formula))[1]
            for conjunct in self.invariant
            if self.touches(action, conjunct)
        }
        self._tracking.pop()
        return cores


def counter_obligations(action: Action) -> dict[str, Formula]:
    """For each counter: the action moves it exactly with its set.

    ``begin`` chooses the sets of the new allocation and their sizes, which is what the predictor
    does by definition: only the free counter and the pops are asked about there.
    """
    found = {
        "free": moves_with(action, free, queued, every()),
        "to_pop": pops_are_counted(action),
    }
    if action.name != "begin":
        found["to_touch"] = moves_with(action, to_touch, hit, queued(b))
        found["to_pin"] = moves_with(action, to_pin, due, every())
    return found


def moves_with(action: Action, counter: Counter, members: Relation, where: Formula) -> Formula:
    """The counter goes up (down) by one exactly when one block joins (leaves) the set."""
    then = integer_after(counter, action.relations, action.counters)
    inside = members(b) & where
    inside_after = kept(action, inside)
    taken = Equal(b, BLOCK_TAKEN)
    others_stay = forall(b)(implies(~taken, iff(inside, inside_after)))
    joins = forall(b)(implies(taken, ~inside & inside_after))
    leaves = forall(b)(implies(taken, inside & ~inside_after))
    return some(
        then.equals(counter) & forall(b)(iff(inside, inside_after)),
        every(then.equals(counter + 1), joins, others_stay),
        every(then.equals(counter - 1), leaves, others_stay),
        then.equals(0) & forall(b)(implies(inside_after, FALSE)),
    )


def pops_are_counted(action: Action) -> Formula:
    """One pop less is to come exactly when one slot got one fresh block."""
    then = integer_after(to_pop, action.relations, action.counters)
    fresh_after = kept(action, fresh(s, b))
    got = every(Equal(s, SLOT_TAKEN), Equal(b, BLOCK_TAKEN))
    nothing_new = forall(s, b)(implies(fresh_after, fresh(s, b)))
    if action.name == "begin":
        return nothing_new
    return some(
        then.equals(to_pop) & nothing_new,
        every(
            then.equals(to_pop - 1),
            forall(s, b)(iff(fresh_after, fresh(s, b) | got)),
            forall(s, b)(implies(got, ~fresh(s, b))),
        ),
    )


def fresh_after_pop() -> Formula:
    """Only the new holder has to do with the block at hand, which is no copy and has no key."""
    taken, other = Equal(b, BLOCK_TAKEN), ~Equal(s, SLOT_TAKEN)
    uses = some(pins(s, b), transfer(s, b), fresh(s, b), reads(s, b))
    return forall(s, b)(implies(taken & other, ~uses)) & forall(b, p)(
        implies(taken, ~some(copy(b, p), keyed(b, p)))
    )
