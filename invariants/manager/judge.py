"""The judge: walks along one trace and reports every rule that a step breaks."""

from collections.abc import Sequence

from invariants.known import known_defect
from invariants.manager.ghost import Ghost
from invariants.manager.transition import Transition
from invariants.rules import RULES, Rule
from invariants.violation import Seen, Violation
from model.dialect import Dialect
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.events import Response
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.snapshot import Snapshot


class Judge:
    """Judges the steps of one program, in order.

    A rule that the dialect breaks by design is not judged; ``waived`` names it with the reason.
    """

    def __init__(
        self, configuration: Configuration, dialect: Dialect, rules: Sequence[Rule] = RULES
    ) -> None:
        waived = dialect.waived("manager")
        self.waived = {rule.id: waived[rule.id] for rule in rules if rule.id in waived}
        self._rules = [rule for rule in rules if rule.id not in waived]
        self._configuration = configuration
        self._dialect = dialect
        self.ghost = Ghost(configuration.block_size, configuration.hisparse)
        self._before = initial_snapshot(configuration, dialect)
        self._index = 0

    def judge(self, action: Action, response: Response, after: Snapshot) -> list[Violation]:
        """The violations of the next step."""
        self.ghost.advance(self._before, action, response, after)
        transition = Transition(
            self._configuration, self._dialect, self._before, action, response, after, self.ghost
        )
        violations: list[Violation] = []
        for rule in self._rules:
            if rule.of_state and not transition.changed:
                continue
            seen = [each for check in rule.predicates for each in check(transition)]
            if seen:
                violations.append(self._violation(rule.id, seen))
        self._before = after
        self._index += 1
        return violations

    def _violation(self, rule: str, seen: Sequence[Seen]) -> Violation:
        causes = frozenset(each.cause for each in seen)
        known = known_defect("manager", rule, causes, self._dialect)
        return Violation(rule, self._index, seen[0].cause, tuple(s.text for s in seen), known)


def initial_snapshot(configuration: Configuration, dialect: Dialect) -> Snapshot:
    """The state before the first action: all blocks free, nothing known."""
    return Session(configuration, ReferenceAllocator(configuration, dialect)).snapshot()
