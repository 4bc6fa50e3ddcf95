"""Contracts of the arithmetic of admission, for CrossHair: the functions as they run, on integers.

Each function takes integers, states by its first assertion which of them are legal, calls what the
model calls, and asserts a theorem. ``crosshair check --analysis_kind asserts`` must confirm it over
all paths; those that end in ``_is_wrong`` must be refuted. Z3 proves more of the same functions
(``invariants.proofs.catalogue``), but through an ``Arithmetic`` of its own: here it is that of the
running model.
"""

from model.admission import (
    INTEGERS,
    Demand,
    admits,
    full_attention_need,
    gpu_need,
    host_shortage,
    hot_need,
    kept_copies,
    resident_need,
)
from model.bounds import waiting


def pops_of_a_hit(pages: int, hit_pages: int, groups: int, region: int) -> int:
    """What every row must be lengthened by, with a hot region for a request that reads the host."""
    new = pages - hit_pages
    return new + groups * new + (groups * region if hit_pages else 0)


# Numbers


def ceil_div_is_the_least_multiple(number: int, divisor: int) -> None:
    assert divisor >= 1
    quotient = INTEGERS.ceil_div(number, divisor)
    assert (quotient - 1) * divisor < number <= quotient * divisor


def the_larger_and_the_smaller_are_chosen(one: int, two: int, condition: bool) -> None:
    assert isinstance(condition, bool)  # all integers are legal
    larger, smaller = INTEGERS.maximum(one, two), INTEGERS.minimum(one, two)
    assert larger in (one, two)
    assert smaller <= larger
    assert larger + smaller == one + two
    assert INTEGERS.choose(condition, one, two) == (one if condition else two)


# Needs


def full_attention_takes_pages_and_free_hit_blocks(
    pages: int, hit_pages: int, held: int, hit_free: int
) -> None:
    assert 0 <= hit_free <= hit_pages
    assert held >= 0
    need = full_attention_need(pages, hit_pages, held, hit_free)
    assert need >= hit_free
    assert need - hit_free + hit_pages + held >= pages
    assert need == hit_free or need - hit_free + hit_pages + held == pages


def resident_takes_what_is_neither_held_nor_computed(pages: int, computed: int, held: int) -> None:
    assert computed >= 0
    assert held >= 0
    need = resident_need(pages, computed, held)
    assert need >= 0
    assert need + held >= pages or need + computed >= pages
    assert need == 0 or (need + held <= pages and need + computed <= pages)


def hot_region_is_taken_whole_or_not_at_all(wants: bool, region: int, held: int) -> None:
    assert 0 <= held <= region
    need = hot_need(wants, region, held)
    assert need == (region - held if wants else 0)


def no_need_is_negative(
    pages: int, hit_pages: int, hit_free: int, copies: int, groups: int, region: int, cap: int
) -> None:
    assert 0 <= hit_free <= hit_pages
    assert copies >= 0
    assert groups >= 1
    assert region >= 1
    demand = waiting(pages, hit_pages, hit_free, copies)
    for charge in (False, True):
        assert gpu_need(demand, groups, region, cap, charge) >= 0
        assert gpu_need(demand, groups, region, None, charge) >= 0


def a_window_never_asks_for_more(
    pages: int, hit_pages: int, groups: int, region: int, cap: int
) -> None:
    assert 0 <= hit_pages < pages
    assert groups >= 1
    assert region >= 1
    demand = waiting(pages, hit_pages, 0)
    whole = gpu_need(demand, groups, region, None, False)
    assert gpu_need(demand, groups, region, cap, False) <= whole


# Admission


def deferred_is_sound(
    free: int, pages: int, hit_pages: int, hit_free: int, groups: int, region: int, margin: int
) -> None:
    """What is admitted fits, whatever is adopted at the end (#59282)."""
    assert 0 <= hit_free <= hit_pages < pages
    assert groups >= 1
    assert region >= 1
    assert margin >= 0
    need = gpu_need(waiting(pages, hit_pages, hit_free), groups, region, None, False)
    popped = pops_of_a_hit(pages, hit_pages, groups, region)
    assert not admits(need, margin, free) or popped <= free - hit_free


def charged_is_sound(
    free: int, pages: int, hit_pages: int, copies: int, groups: int, region: int, margin: int
) -> None:
    """What is admitted fits though the copies are pinned first (#57457)."""
    assert 0 <= hit_pages < pages
    assert copies >= 0
    assert groups >= 1
    assert region >= 1
    assert margin >= 0
    demand = waiting(pages, hit_pages, hit_pages, copies)
    need = gpu_need(demand, groups, region, None, True)
    popped = pops_of_a_hit(pages, hit_pages, groups, region)
    assert not admits(need, margin, free) or popped <= free - hit_pages - copies


def deferred_refuses_nothing_that_fits(
    free: int, pages: int, hit_pages: int, hit_free: int, groups: int, region: int
) -> None:
    assert 0 <= hit_free <= hit_pages < pages
    assert groups >= 1
    assert region >= 1
    need = gpu_need(waiting(pages, hit_pages, hit_free), groups, region, None, False)
    popped = pops_of_a_hit(pages, hit_pages, groups, region)
    assert admits(need, 0, free) or popped > free - hit_free


def admission_leaves_its_watermark(
    free: int, pages: int, hit_pages: int, hit_free: int, groups: int, region: int, watermark: int
) -> None:
    assert 0 <= hit_free <= hit_pages < pages
    assert groups >= 1
    assert region >= 1
    assert watermark >= 0
    need = gpu_need(waiting(pages, hit_pages, hit_free), groups, region, None, False)
    taken = hit_free + pops_of_a_hit(pages, hit_pages, groups, region)
    assert admits(need, watermark, free) == (free - taken >= watermark)


def eager_is_sound_is_wrong(free: int, hit_free: int, popped: int, copies: int) -> None:
    """The defect of ``eager``: copies are pinned first and not charged. Must be refuted."""
    assert hit_free >= 0
    assert popped >= 0
    assert copies >= 0
    assert hit_free + copies <= free
    need = gpu_need(waiting(popped, 0, hit_free, copies), 0, 0, None, False)
    assert not admits(need, 0, free) or popped <= free - hit_free - copies


# The host


def a_host_shortage_is_refused(
    pages: int, hit_pages: int, host_hit_free: int, host_free: int, blocks: int, free: int
) -> None:
    """And only a shortage: whatever is free of the ``blocks`` of the GPU pool."""
    assert 0 <= host_hit_free <= hit_pages < pages
    assert 0 <= free < blocks
    demand = Demand(pages, hit_pages, hit_pages, 0, host_hit_free, 0, 0, 0, 0, 0, hit_pages > 0)
    shortage = host_shortage(demand, host_free, blocks)
    fits = pages - hit_pages + host_hit_free <= host_free
    assert admits(shortage, 0, free) == fits
    assert shortage == 0 or not fits


# Copies


def copies_kept_are_a_count(free: int, taken: int, copies: int, behind: int) -> None:
    assert copies >= 0
    kept = kept_copies(free, taken, copies, behind)
    assert 0 <= kept <= copies
    assert kept == 0 or kept + behind <= free - taken


def a_block_more_keeps_a_copy_more_at_most(free: int, taken: int, copies: int, behind: int) -> None:
    assert copies >= 0
    kept = kept_copies(free, taken, copies, behind)
    assert kept <= kept_copies(free + 1, taken, copies, behind) <= kept + 1


def all_copies_are_kept_where_charged_admits(
    free: int, hit_free: int, popped: int, copies: int
) -> None:
    assert hit_free >= 0
    assert popped >= 0
    assert copies >= 0
    taken = hit_free + popped
    charged = gpu_need(waiting(popped, 0, hit_free, copies), 0, 0, None, True)
    all_kept = kept_copies(free, taken, copies, 0) == copies
    assert all_kept == (admits(charged, 0, free) or copies == 0)
