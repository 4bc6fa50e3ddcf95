"""The catalogue: every rule that is checked at the manager level, one predicate each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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

Predicate = Callable[[Transition], Iterator[str]]
"""Yields a line of evidence for each way in which a step breaks the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    id: str
    sentence: str
    predicates: tuple[Predicate, ...]
    of_state: bool = False
    """Whether it depends on the state alone, so that an unchanged state need not be judged."""


RULES: tuple[Rule, ...] = (
    Rule("I1", "Every block is free, once in the queue and unreferenced, or held.",
         (conservation,), of_state=True),
    Rule("I2", "Every reference count equals the holders, recomputed.",
         (accounting,), of_state=True),
    Rule("I3", "No block is at once a copy or page of one content and anything else.",
         (no_sharing,)),
    Rule("I4", "An allocation takes at most what the predictor promised, and never raises.",
         (soundness,)),
    Rule("I5", "A refused allocation changes nothing.", (refusal_changes_nothing,)),
    Rule("I6", "A request whose measured peak need fits is admitted.", (completeness,)),
    Rule("I7", "A scheduled request reads what its own prefix wrote.", (reads,)),
    Rule("I8", "A page is unpinned and published only when its host copy is complete, and then "
         "it can be found.", (durability,)),
    Rule("I9", "When a watched block is handed out, all reading of it has stopped.", (reuse,)),
    Rule("I10", "The hash map and the blocks' keys agree; equal keys mean equal prefixes.",
         (hash_map, equal_keys), of_state=True),
    Rule("I11", "Blocks are reused in eviction order; copies leave tail first.",
         (eviction_order,)),
    Rule("I12", "When everything has ended, everything is free.", (quiescence,), of_state=True),
    Rule("I13", "The null block is never free, found or handed out.", (null_block,)),
    Rule("I14", "Every page has a host block.", (host_block_for_each_page,), of_state=True),
    Rule("I16", "A request that was admitted and is alone is not refused its next tokens.",
         (progress_alone,)),
    Rule("I19", "No call of the allocator raises.", (never_raises,)),
)  # fmt: skip

RULE_BY_ID = {rule.id: rule for rule in RULES}
