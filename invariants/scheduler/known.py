"""What a run shows of the known defects of the scheduler level, beside the causes of a violation.

The table that uses these is ``invariants/known.py``.
"""

from invariants.scheduler.run import Run
from model.bounds import least_blocks
from model.dialect import Dialect
from model.scheduler.configuration import configuration_of
from model.scheduler.ghost_worker import Misread


def pinned_before_popped(run: Run, dialect: Dialect) -> bool:
    return run.setup.hisparse


def preempted_before_it_wrote(run: Run, dialect: Dialect) -> bool:
    """Every page misread was given its hash by a request that was preempted in that very step."""
    return run.setup.policy == "priority" and bool(run.cancelled) and _all_cancelled(run)


def _all_cancelled(run: Run) -> bool:
    return bool(run.misread) and all(
        (misread.group, misread.expected) in run.cancelled for misread in run.misread
    )


def import_too_large(run: Run, dialect: Dialect) -> bool:
    """A request waits with all blocks free, and the store has only a part of its prompt."""
    if not (run.setup.hisparse and run.setup.external_store):
        return False
    return any(
        life.arrive.asynchronous and 0 < life.stored < life.prompt and number in run.live
        for number, life in run.lives.items()
    )


def findable_after_a_failed_load(run: Run, dialect: Dialect) -> bool:
    """A load within a step failed, and the pages that it was to fill are still found by their
    hashes: its request was aborted or preempted, or has not come to compute them anew."""
    return bool(run.misread) and all(_is_of_a_failed_load(run, m) for m in run.misread)


def _is_of_a_failed_load(run: Run, misread: Misread) -> bool:
    if run.worker.lost_by(misread.found) in run.failed_within_a_step:
        return True
    lives = (run.lives[number] for number in run.failed_within_a_step)
    pages = misread.page + 1
    return any(misread.expected in life.text.pages(misread.group, pages) for life in lives)


def region_with_all_pages(run: Run, dialect: Dialect) -> bool:
    """HiSparse on a pool smaller than the least on which a lone request is proved to go on."""
    if not run.setup.hisparse:
        return False
    return run.setup.num_blocks < least_blocks(configuration_of(run.setup), dialect)


def state_needs_a_second_block(run: Run, dialect: Dialect) -> bool:
    """Mamba: a load takes a block for the state, and the tokens after it another."""
    return run.setup.cache == "mamba" and run.setup.external_store


def failed_beside_a_step(run: Run, dialect: Dialect) -> bool:
    """Two steps in flight, and a load within the first failed under ``recompute``."""
    setup = run.setup
    within = setup.async_scheduling and setup.load_failure == "recompute"
    return within and bool(run.failed_within_a_step)


def window_edge(run: Run, dialect: Dialect) -> bool:
    """The last token of a prompt that was loaded whole needs the page before the window."""
    return run.setup.cache == "sliding" and bool(run.misread) and all(
        misread.found == 0
        and misread.group in run.worker.groups.sliding
        and run.lives[misread.request].arrive.asynchronous
        and run.lives[misread.request].stored >= run.lives[misread.request].prompt
        for misread in run.misread
    )  # fmt: skip


def reserves_against_itself(run: Run, dialect: Dialect) -> bool:
    failed = bool(run.failed_loads or run.failed_within_a_step)
    return run.setup.load_failure == "recompute" and failed


def load_beside_a_step(run: Run, dialect: Dialect) -> bool:
    return run.setup.hisparse and run.setup.async_scheduling


def head_of_the_queue(run: Run, dialect: Dialect) -> bool:
    """Requests whose loads are done hold blocks, behind one that needs some and holds none."""
    return any(
        view.status.startswith("waiting") and view.computed > 0
        for view in run.engine.statuses().values()
    )
