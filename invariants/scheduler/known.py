"""Known defects at the scheduler level: which violation is which, in which releases.

A label is given only where everything that was seen fits the defect, so that a new defect is not
taken for an old one. ``specs/README.md`` describes each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from invariants.scheduler.run import Run
from invariants.violation import Violation
from model.bounds import least_blocks
from model.dialect import DIALECTS
from model.scheduler.configuration import configuration_of
from model.scheduler.ghost_worker import Misread

Applies = Callable[[Run, Violation, str], bool]
"""Whether a violation of a release is the defect."""

ALL = ("vllm-0.30.0", "vllm-0.31.0", "vllm-0.32.0", "vllm-0.33.0")


@dataclass(frozen=True, slots=True)
class KnownDefect:
    id: str
    rule: str
    releases: tuple[str, ...]
    applies: Applies


def labelled(run: Run, release: str) -> list[Violation]:
    """The violations of a run, those of known defects named."""
    return [
        replace(violation, known=known_defect(run, violation, release))
        for violation in run.violations
    ]


def known_defect(run: Run, violation: Violation, release: str) -> str | None:
    """The id of the defect of a release that a violation shows, if it is a known one."""
    for defect in KNOWN_DEFECTS:
        fits = defect.rule == violation.rule and release in defect.releases
        if fits and defect.applies(run, violation, release):
            return defect.id
    return None


# What each looks like


def _says(violation: Violation, *words: str) -> bool:
    return all(word in violation.evidence[0] for word in words)


def _out_of_blocks(violation: Violation) -> bool:
    return _says(violation, "free blocks from the pool")


def _pinned_before_popped(run: Run, violation: Violation, release: str) -> bool:
    return run.setup.hisparse and _out_of_blocks(violation)


def _preempted_before_it_wrote(run: Run, violation: Violation, release: str) -> bool:
    """Every page misread was given its hash by a request that was preempted in that very step."""
    return run.setup.policy == "priority" and bool(run.cancelled) and _all_cancelled(run, violation)


def _all_cancelled(run: Run, violation: Violation) -> bool:
    return bool(run.misread) and all(
        (misread.group, misread.expected) in run.cancelled for misread in run.misread
    )


def _import_too_large(run: Run, violation: Violation, release: str) -> bool:
    """A request waits with all blocks free, and the store has only a part of its prompt."""
    if not (run.setup.hisparse and run.setup.external_store and _says(violation, "nothing runs")):
        return False
    return any(
        life.arrive.asynchronous and 0 < life.stored < life.prompt and number in run.live
        for number, life in run.lives.items()
    )


def _findable_after_a_failed_load(run: Run, violation: Violation, release: str) -> bool:
    """A load within a step failed, and the pages that it was to fill are still found by their
    hashes: its request was aborted or preempted, or has not come to compute them anew."""
    return bool(run.misread) and all(_is_of_a_failed_load(run, m) for m in run.misread)


def _is_of_a_failed_load(run: Run, misread: Misread) -> bool:
    if run.worker.lost_by(misread.found) in run.failed_within_a_step:
        return True
    lives = (run.lives[number] for number in run.failed_within_a_step)
    pages = misread.page + 1
    return any(misread.expected in life.text.pages(misread.group, pages) for life in lives)


def _region_with_all_pages(run: Run, violation: Violation, release: str) -> bool:
    """HiSparse on a pool smaller than the least on which a lone request is proved to go on."""
    preempted = _says(violation, "runs alone") or _says(violation, "scheduled again and again")
    if not (run.setup.hisparse and preempted):
        return False
    return run.setup.num_blocks < least_blocks(configuration_of(run.setup), DIALECTS[release])


def _state_needs_a_second_block(run: Run, violation: Violation, release: str) -> bool:
    """Mamba: a load takes a block for the state, and the tokens after it another."""
    loaded = run.setup.cache == "mamba" and run.setup.external_store
    return loaded and (_out_of_blocks(violation) or _says(violation, "nothing runs"))


def _failed_beside_a_step(run: Run, violation: Violation, release: str) -> bool:
    """Two steps in flight, and a load within the first failed under ``recompute``."""
    setup = run.setup
    within = setup.async_scheduling and setup.load_failure == "recompute"
    return within and bool(run.failed_within_a_step)


def _window_edge(run: Run, violation: Violation, release: str) -> bool:
    """The last token of a prompt that was loaded whole needs the page before the window."""
    return run.setup.cache == "sliding" and bool(run.misread) and all(
        misread.found == 0
        and misread.group in run.worker.groups.sliding
        and run.lives[misread.request].arrive.asynchronous
        and run.lives[misread.request].stored >= run.lives[misread.request].prompt
        for misread in run.misread
    )  # fmt: skip


def _reserves_against_itself(run: Run, violation: Violation, release: str) -> bool:
    return (
        run.setup.load_failure == "recompute"
        and bool(run.failed_loads or run.failed_within_a_step)
        and _says(violation, "nothing runs")
    )


def _load_beside_a_step(run: Run, violation: Violation, release: str) -> bool:
    return run.setup.hisparse and run.setup.async_scheduling


def _head_of_the_queue(run: Run, violation: Violation, release: str) -> bool:
    """Requests whose loads are done hold blocks, behind one that needs some and holds none."""
    stuck = _says(violation, "nothing runs") or _says(violation, "scheduled again and again")
    return stuck and any(
        view.status.startswith("waiting") and view.computed > 0
        for view in run.engine.statuses().values()
    )


BEFORE_0_33 = ALL[:3]
KNOWN_DEFECTS = (
    KnownDefect("K1", "I4", ALL[:1], _pinned_before_popped),
    KnownDefect("K2", "I7", ALL, _preempted_before_it_wrote),
    KnownDefect("K9", "I16", ALL, _reserves_against_itself),
    KnownDefect("K3", "I16", ALL, _import_too_large),
    KnownDefect("K4", "I7", ALL, _findable_after_a_failed_load),
    KnownDefect("K5", "I16", ALL, _region_with_all_pages),
    KnownDefect("K6", "I4", ALL, _state_needs_a_second_block),
    KnownDefect("K6", "I16", ALL, _state_needs_a_second_block),
    KnownDefect("K7", "I7", ALL, _failed_beside_a_step),
    KnownDefect("K7", "I16", ALL, _failed_beside_a_step),
    KnownDefect("K8", "I7", ALL, _window_edge),
    KnownDefect("K10", "I15", BEFORE_0_33, _load_beside_a_step),
    KnownDefect("K11", "I16", ALL[:1], _head_of_the_queue),
    KnownDefect("K13", "I16", ALL[1:], _head_of_the_queue),
)
"""In this order: the first that fits is the label."""
