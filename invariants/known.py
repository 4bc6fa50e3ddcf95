"""Known defects of vLLM: one table for both levels, by which a violation gets its label.

A label is given only where everything that was seen fits the defect, so that a new defect is not
taken for an old one. Which release has which is said in its row of ``model/releases.py``;
``specs/README.md`` describes each.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from invariants.scheduler import known as seen
from invariants.scheduler.judge import Judge
from invariants.violation import Cause, Violation
from model.dialect import Dialect
from model.program import Level

Fits = Callable[[Any, Dialect], bool]
"""Whether what was seen beside the causes is the defect: by the judge of a run at the scheduler
level, of nothing more than the dialect at the manager level."""


def _always(_run: object, _dialect: Dialect) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """How a defect shows at a level: which rule it breaks, and in which ways."""

    id: str
    level: Level
    rule: str
    causes: frozenset[Cause]
    fits: Fits = _always


def known_defect(
    level: Level, rule: str, causes: Set[Cause], dialect: Dialect, judge: Judge | None = None
) -> str | None:
    """The id of the defect of a dialect that a violation shows, if it is a known one.

    ``causes`` are those of all that was seen.
    """
    for defect in KNOWN_DEFECTS:
        shows = (defect.level, defect.rule) == (level, rule) and causes <= defect.causes
        if shows and defect.id in dialect.known_defects and defect.fits(judge, dialect):
            return defect.id
    return None


def labelled(judge: Judge, dialect: Dialect) -> list[Violation]:
    """The violations of a run, those of known defects named."""
    return [
        replace(v, known=known_defect("scheduler", v.rule, {v.cause}, dialect, judge))
        for v in judge.violations
    ]


def defects_of(level: Level) -> tuple[str, ...]:
    """The ids of the defects that can be named at a level, each once."""
    return tuple(dict.fromkeys(defect.id for defect in KNOWN_DEFECTS if defect.level == level))


def _startup_is_too_small(_run: object, dialect: Dialect) -> bool:
    """Where the start-up check asks for the longest request's pages, it is proved to be enough."""
    return not dialect.startup_full_length


_OUT_OF_BLOCKS = frozenset({Cause.OUT_OF_BLOCKS})
_OF_CONTENTS = frozenset({Cause.MISREAD, Cause.TOKEN_OF_FAILED_LOAD, Cause.WRONG_TOKENS})
_PREEMPTED = frozenset({Cause.PREEMPTED_ALONE, Cause.NO_TOKEN})
_STUCK = frozenset({Cause.NOTHING_RUNS})
_NO_PROGRESS = frozenset({Cause.NOTHING_RUNS, Cause.NO_TOKEN})
_OF_PROGRESS = _PREEMPTED | _NO_PROGRESS

KNOWN_DEFECTS = (
    KnownDefect("K2", "manager", "I7", frozenset({Cause.NEVER_WRITTEN})),
    KnownDefect("K12", "manager", "I16", frozenset({Cause.REFUSED_FOR_OWN_WRITES})),
    KnownDefect("K5", "manager", "I16",
                frozenset({Cause.REFUSED_ALONE, Cause.REFUSED_FOR_OWN_WRITES}),
                _startup_is_too_small),
    KnownDefect("K1", "scheduler", "I4", _OUT_OF_BLOCKS, seen.pinned_before_popped),
    KnownDefect("K2", "scheduler", "I7", _OF_CONTENTS, seen.preempted_before_it_wrote),
    KnownDefect("K9", "scheduler", "I16", _STUCK, seen.reserves_against_itself),
    KnownDefect("K3", "scheduler", "I16", _STUCK, seen.import_too_large),
    KnownDefect("K4", "scheduler", "I7", _OF_CONTENTS, seen.findable_after_a_failed_load),
    KnownDefect("K5", "scheduler", "I16", _PREEMPTED, seen.region_with_all_pages),
    KnownDefect("K6", "scheduler", "I4", _OUT_OF_BLOCKS, seen.state_needs_a_second_block),
    KnownDefect("K6", "scheduler", "I16", _STUCK, seen.state_needs_a_second_block),
    KnownDefect("K7", "scheduler", "I7", _OF_CONTENTS, seen.failed_beside_a_step),
    KnownDefect("K7", "scheduler", "I16", _OF_PROGRESS, seen.failed_beside_a_step),
    KnownDefect("K8", "scheduler", "I7", _OF_CONTENTS, seen.window_edge),
    KnownDefect("K10", "scheduler", "I15", frozenset({Cause.WRITES_BESIDE_STEP}),
                seen.load_beside_a_step),
    KnownDefect("K11", "scheduler", "I16", _NO_PROGRESS, seen.head_of_the_queue),
    KnownDefect("K13", "scheduler", "I16", _NO_PROGRESS, seen.head_of_the_queue),
)  # fmt: skip
"""In this order: the first that fits is the label."""
