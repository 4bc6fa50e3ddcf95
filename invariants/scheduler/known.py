"""What a run shows of the known defects of the scheduler level, beside the causes of a violation.

The table that uses these is ``invariants/known.py``.
"""

from invariants.scheduler.judge import Judge
from model.bounds import least_blocks
from model.contents import EMPTY
from model.dialect import Dialect
from model.scheduler.configuration import configuration_of
from model.scheduler.ghost_worker import Misread


def pinned_before_popped(judge: Judge, dialect: Dialect) -> bool:
    return judge.setup.hisparse


def preempted_before_it_wrote(judge: Judge, dialect: Dialect) -> bool:
    """Every page misread was given its hash by a request that was preempted in that very step."""
    return judge.setup.policy == "priority" and bool(judge.never_written) and _all_cancelled(judge)


def _all_cancelled(judge: Judge) -> bool:
    return bool(judge.misread) and all(
        (misread.group, misread.expected) in judge.never_written for misread in judge.misread
    )


def import_too_large(judge: Judge, dialect: Dialect) -> bool:
    """A request waits with all blocks free, and the store has only a part of its prompt."""
    if not (judge.setup.hisparse and judge.setup.external_store):
        return False
    return any(
        life.arrive.asynchronous and 0 < life.stored < life.prompt and number in judge.session.live
        for number, life in judge.session.lives.items()
    )


def findable_after_a_failed_load(judge: Judge, dialect: Dialect) -> bool:
    """A load within a step failed, and the pages that it was to fill are still found by their
    hashes: its request was aborted or preempted, or has not come to compute them anew."""
    return bool(judge.misread) and all(_is_of_a_failed_load(judge, m) for m in judge.misread)


def _is_of_a_failed_load(judge: Judge, misread: Misread) -> bool:
    if judge.session.worker.lost_by(misread.found) in judge.session.store.failed_within:
        return True
    lives = (judge.session.lives[number] for number in judge.session.store.failed_within)
    pages = misread.page + 1
    return any(misread.expected in life.text.pages(misread.group, pages) for life in lives)


def region_with_all_pages(judge: Judge, dialect: Dialect) -> bool:
    """HiSparse on a pool smaller than the least on which a lone request is proved to go on."""
    if not judge.setup.hisparse:
        return False
    return judge.setup.num_blocks < least_blocks(configuration_of(judge.setup), dialect)


def state_needs_a_second_block(judge: Judge, dialect: Dialect) -> bool:
    """Mamba: a load takes a block for the state, and the tokens after it another."""
    return judge.setup.cache == "mamba" and judge.setup.external_store


def failed_beside_a_step(judge: Judge, dialect: Dialect) -> bool:
    """Two steps in flight, and a load within the first failed under ``recompute``."""
    setup = judge.setup
    within = setup.async_scheduling and setup.load_failure == "recompute"
    return within and bool(judge.session.store.failed_within)


def window_edge(judge: Judge, dialect: Dialect) -> bool:
    """The last token of a prompt that was loaded whole needs the page before the window."""
    sliding = judge.setup.cache == "sliding" and bool(judge.misread)
    return sliding and all(_is_before_the_window(judge, misread) for misread in judge.misread)


def _is_before_the_window(judge: Judge, misread: Misread) -> bool:
    life = judge.session.lives[misread.request]
    loaded_whole = life.arrive.asynchronous and life.stored >= life.prompt
    in_window = misread.group in judge.session.worker.groups.sliding
    return loaded_whole and in_window and misread.found == EMPTY


def reserves_against_itself(judge: Judge, dialect: Dialect) -> bool:
    failed = bool(judge.session.store.failed_beside or judge.session.store.failed_within)
    return judge.setup.load_failure == "recompute" and failed


def load_beside_a_step(judge: Judge, dialect: Dialect) -> bool:
    return judge.setup.hisparse and judge.setup.async_scheduling


def head_of_the_queue(judge: Judge, dialect: Dialect) -> bool:
    """Requests whose loads are done hold blocks, behind one that needs some and holds none."""
    return any(
        view.status.startswith("waiting") and view.computed > 0
        for view in judge.engine.statuses().values()
    )
