"""What judging a trace comes to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Cause(StrEnum):
    """In what way a rule was broken: set by the predicate that saw it.

    What is decided about a violation is decided by this, never by the words of its evidence.
    """

    # I1, conservation
    WRONG_COUNTER = "wrong-counter"
    QUEUED_TWICE = "queued-twice"
    FREE_AND_HELD = "free-and-held"
    LOST = "lost"
    # I2, accounting
    EXCESS = "excess"
    DEFICIT = "deficit"
    # I3, sharing
    TWO_USES = "two-uses"
    COPY_IN_USE = "copy-in-use"
    COPY_HANDED_OUT = "copy-handed-out"
    # I4 and I19, what is raised and promised
    OUT_OF_BLOCKS = "out-of-blocks"
    RAISED = "raised"
    MORE_THAN_PROMISED = "more-than-promised"
    # I5 and I6, refusals
    REFUSAL_CHANGED = "refusal-changed"
    FITS_AND_REFUSED = "fits-and-refused"
    # I7, contents
    MISREAD = "misread"
    NEVER_WRITTEN = "never-written"
    """What is misread was to be written by a request that was preempted before."""
    NO_HOT_REGION = "no-hot-region"
    TOKEN_OF_FAILED_LOAD = "token-of-failed-load"
    WRONG_TOKENS = "wrong-tokens"
    # I8, durability
    UNPINNED_EARLY = "unpinned-early"
    PUBLISHED_EARLY = "published-early"
    PUBLISHED_TOO_MANY = "published-too-many"
    PUBLISHED_TOO_FEW = "published-too-few"
    READY_NOT_VALID = "ready-not-valid"
    NO_LEASE = "no-lease"
    LEASE_NOT_PUBLISHED = "lease-not-published"
    # I9, reuse
    STILL_READ = "still-read"
    WATCHER_SILENT = "watcher-silent"
    # I10, the hash map
    KEY_NOT_FOUND = "key-not-found"
    FOUND_WITHOUT_KEY = "found-without-key"
    KEYS_DIFFER = "keys-differ"
    ONE_HASH_TWO_PREFIXES = "one-hash-two-prefixes"
    ONE_PREFIX_TWO_HASHES = "one-prefix-two-hashes"
    # I11, eviction order
    NOT_FROM_THE_HEAD = "not-from-the-head"
    FREED_TO_WRONG_END = "freed-to-wrong-end"
    HEAD_FIRST = "head-first"
    # I12, quiescence
    NOT_FREE = "not-free"
    LEFT_OVER = "left-over"
    # I13, the null block
    NULL_FREE = "null-free"
    NULL_KEYED = "null-keyed"
    NULL_HANDED_OUT = "null-handed-out"
    # I14 and I15
    NO_HOST_BLOCK = "no-host-block"
    WRITES_BESIDE_STEP = "writes-beside-step"
    # I16, progress
    REFUSED_ALONE = "refused-alone"
    REFUSED_FOR_OWN_WRITES = "refused-for-own-writes"
    PREEMPTED_ALONE = "preempted-alone"
    NOTHING_RUNS = "nothing-runs"
    NO_TOKEN = "no-token"
    """Requests are scheduled again and again, and none gets a token."""
    # I17, preemption
    BELOW_ZERO = "below-zero"
    HOLDS_AFTER_PREEMPTION = "holds-after-preemption"
    # What a program can come to besides
    DIFFERS = "differs"
    CRASHED = "crashed"
    HUNG = "hung"


class Seen(NamedTuple):
    """One way in which a rule was seen to be broken."""

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a trace broke."""

    rule: str
    """Id of the rule, or ``lockstep``, ``crash`` or ``hang``."""
    step: int
    """Index of the action after which it showed, from 0."""
    cause: Cause
    """Of what was seen first, where several things were."""
    evidence: tuple[str, ...]
    """What was seen, a line each."""
    known: str | None = None
    """Id of the known defect that this is, if it is one."""
