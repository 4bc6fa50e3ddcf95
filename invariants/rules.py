"""The catalogue: every rule, its sentence at each level, and what judges it there.

At the manager level a rule is a predicate over one step; at the scheduler level it is judged where
the run is watched, in the file that is named.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from invariants.manager.admission import (
    completeness,
    never_raises,
    progress_alone,
    refusal_changes_nothing,
    soundness,
)
from invariants.manager.contents import reads
from invariants.manager.host import durability, host_block_for_each_page
from invariants.manager.order import eviction_order
from invariants.manager.pools import (
    accounting,
    conservation,
    equal_keys,
    hash_map,
    null_block,
    quiescence,
)
from invariants.manager.sharing import no_sharing, reuse
from invariants.manager.transition import Transition
from invariants.violation import Seen
from model.program import Level

Predicate = Callable[[Transition], Iterator[Seen]]
"""Yields what it saw for each way in which a step breaks the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    sentence: str
    predicates: tuple[Predicate, ...] = ()
    """That judge it at the manager level; none where it is not judged there."""
    of_state: bool = False
    """Whether it depends on the state alone, so that an unchanged state need not be judged."""
    scheduler: str = ""
    """The file that judges it in programs of whole steps; none where it is not judged there."""
    own: Mapping[Level, str] = field(default_factory=dict)
    """Its sentence at a level where it says more than that."""

    def sentence_at(self, level: Level) -> str:
        return self.own.get(level, self.sentence)


AUDIT = "invariants/scheduler/audit.py"
CONTENTS = "invariants/scheduler/contents.py"
FENCES = "invariants/scheduler/fences.py"
PREEMPTION = "invariants/scheduler/preemption.py"
PROGRESS = "invariants/scheduler/progress.py"
RAISED = "kvproof/engines/vllm/inside/scheduler_worker.py"

CATALOGUE: tuple[Rule, ...] = (
    Rule("I1", "Every block is free, once in the queue and unreferenced, or held.",
         (conservation,), of_state=True, scheduler=AUDIT),
    Rule("I2", "Every reference count equals the holders, recomputed.",
         (accounting,), of_state=True, scheduler=AUDIT),
    Rule("I3", "No block is at once a copy or page of one content and anything else.",
         (no_sharing,)),
    Rule("I4", "An allocation takes at most what the predictor promised, and never raises.",
         (soundness,), scheduler=RAISED),
    Rule("I5", "A refused allocation changes nothing.", (refusal_changes_nothing,)),
    Rule("I6", "A request whose measured peak need fits is admitted.", (completeness,)),
    Rule("I7", "A scheduled request reads what its own prefix wrote.", (reads,),
         scheduler=CONTENTS),
    Rule("I8", "A page is unpinned and published only when its host copy is complete, and then "
         "it can be found.", (durability,)),
    Rule("I9", "When a watched block is handed out, all reading of it has stopped.", (reuse,)),
    Rule("I10", "The hash map and the blocks' keys agree; equal keys mean equal prefixes.",
         (hash_map, equal_keys), of_state=True, scheduler=AUDIT),
    Rule("I11", "Blocks are reused in eviction order; copies leave tail first.",
         (eviction_order,)),
    Rule("I12", "When everything has ended, everything is free.", (quiescence,), of_state=True,
         scheduler=AUDIT),
    Rule("I13", "The null block is never free, found or handed out.", (null_block,),
         scheduler=AUDIT),
    Rule("I14", "Every page has a host block.", (host_block_for_each_page,), of_state=True),
    Rule("I15", "Who writes a block is ordered after every step in flight that uses it.",
         scheduler=FENCES),
    Rule("I16", "A request that was admitted and is alone is not refused its next tokens.",
         (progress_alone,), scheduler=PROGRESS, own={"scheduler": "With finite work every request "
         "ends, and one that is alone is never preempted."}),
    Rule("I17", "A preemption leaves no debt and frees blocks, or is not done.",
         scheduler=PREEMPTION),
    Rule("I18", "The bookkeeping of a step is proportional to its new work."),
    Rule("I19", "No call of the allocator raises.", (never_raises,), scheduler=RAISED,
         own={"scheduler": "No step of the scheduler raises."}),
)  # fmt: skip
"""I18 compares the effort of two steps, without a program: ``invariants/scheduler/effort.py``."""

ENDINGS = (
    Rule("lockstep", "Both sides answer and move alike at every step."),
    Rule("crash", "The engine's process survives every program."),
    Rule("hang", "The engine answers every program in time."),
)
"""What a program can come to besides a broken rule."""

RULES = tuple(rule for rule in CATALOGUE if rule.predicates)
"""Those that are judged at the manager level, by their predicates."""
RULE_BY_ID = {rule.id: rule for rule in CATALOGUE}
SENTENCED = RULE_BY_ID | {ending.id: ending for ending in ENDINGS}
"""All that can be reported, by id."""

ENDINGS_OF: dict[Level, tuple[str, ...]] = {
    "manager": tuple(ending.id for ending in ENDINGS),
    "scheduler": tuple(ending.id for ending in ENDINGS if ending.id != "lockstep"),
}
RULES_OF: dict[Level, tuple[str, ...]] = {
    "manager": (*(rule.id for rule in RULES), *ENDINGS_OF["manager"]),
    "scheduler": (*(rule.id for rule in CATALOGUE if rule.scheduler), *ENDINGS_OF["scheduler"]),
}
"""All that a program can be reported for at a level."""


def sentence_of(rule: str, level: Level = "manager") -> str:
    return SENTENCED[rule].sentence_at(level)
