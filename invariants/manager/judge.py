"""The judge: walks along one trace and reports every rule that a step breaks."""

from collections.abc import Sequence

from invariants.manager.admission import ALONE, OWN_WRITES
from invariants.manager.ghost import Ghost
from invariants.manager.transition import Transition
from invariants.rules import RULES, Rule
from invariants.violation import Violation
from model.dialect import Dialect
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.session import Response, Session
from model.reference import ReferenceAllocator
from model.snapshot import Snapshot

KNOWN_DEFECTS = (
    ("K2", "I7", "was preempted before it wrote it"),
    ("K5", "I16", ALONE),
    ("K12", "I16", OWN_WRITES),
)
"""(defect, the rule that it breaks, what all of its evidence says): see ``specs/README.md``."""


class Judge:
    """Judges the steps of one program, in order.

    A rule that the dialect breaks by design is not judged; ``waived`` names it with the reason.
    """

    def __init__(
        self, configuration: Configuration, dialect: Dialect, rules: Sequence[Rule] = RULES
    ) -> None:
        waived = dict(dialect.by_design)
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
            evidence = tuple(line for check in rule.predicates for line in check(transition))
            if evidence:
                violations.append(
                    Violation(rule.id, self._index, evidence, self._known(rule.id, evidence))
                )
        self._before = after
        self._index += 1
        return violations

    def _known(self, rule: str, evidence: tuple[str, ...]) -> str | None:
        for defect, broken, marker in KNOWN_DEFECTS:
            seen = broken == rule and all(marker in line for line in evidence)
            if seen and defect in self._dialect.known_defects:
                return defect
        return None


def initial_snapshot(configuration: Configuration, dialect: Dialect) -> Snapshot:
    """The state before the first action: all blocks free, nothing known."""
    return Session(configuration, ReferenceAllocator(configuration, dialect)).snapshot()
