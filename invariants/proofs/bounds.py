"""The numbers of a deployment: what admits a request, where it crashes, what it keeps; with proofs.

Each function of ``model.bounds`` is a number that ``kvproof bounds`` prints. The theorems say what
it means in the functions of ``model.admission``, which the model runs, and ``model.startup``.
Sources: the two gates and the watermark are vLLM's; adoption before the pops is ``eager``, after
them #59282.
"""

from dataclasses import replace

from invariants.proofs.admission.gates import first_chunk
from invariants.proofs.alone_claims import (
    ASKS_WHEN_FULL,
    ASKS_WHEN_LOW,
    LOW,
    Engine,
    any_engine,
    any_step,
    on_least_pool,
    within,
)
from invariants.proofs.arithmetic import every, implies, same
from invariants.proofs.obligation import Claim, Formulas, Obligation
from invariants.proofs.scenes import Scene, hit_scene, plain_scene
from model.admission import Demand, Number, Truth
from model.bounds import crash_end, least_free, least_free_keeping_all, pages_kept


def both_gates(scene: Scene, full_need: Number, watermark: Number) -> Truth:
    f, step = scene.formulas, scene.need()
    return every(f.admits(step, watermark, scene.free), f.admits(full_need, watermark, scene.free))


def least_free_is_least(f: Formulas) -> Claim:
    """Of any waiting request, with a first chunk of any size, for any window; charged or not."""
    scene = hit_scene(f)
    s, a = scene.symbols, scene.symbols.arithmetic
    cap, watermark, chunk = s.number("cap"), s.number("watermark"), s.number("chunk pages", 1)
    goals = []
    for charge in (False, True):
        step, full = first_chunk(scene, chunk).need(charge), scene.need(charge, cap)
        at_step, at_full = (f.admits(need, scene.margin, scene.free) for need in (step, full))
        goals += [
            same(at_step, scene.free >= least_free(step, 0, watermark, a)),
            same(at_full, scene.free >= least_free(0, full, watermark, a)),
            same(every(at_step, at_full), scene.free >= least_free(step, full, watermark, a)),
        ]
    step, full = first_chunk(scene, chunk).need(), scene.need(cap=cap)
    one_less = scene.free == least_free(step, full, watermark, a) - 1
    return Claim(s, same(watermark, scene.margin), every(*goals), scene.legal, (one_less,))


def can_crash(scene: Scene, full_need: Number, copies: Number) -> Truth:
    """Admitted by both gates, with ``copies`` among the free blocks, and out of blocks."""
    d = scene.demand
    possible = every(copies >= 0, d.hit_free + copies <= scene.free)
    short = scene.popped > scene.free - d.hit_free - copies
    return every(both_gates(scene, full_need, scene.margin), possible, short)


def crash_window_of_both_gates(f: Formulas) -> Claim:
    """Crashes with at most k free copies: with any number of them, and with as many as fit.

    A hit pops a block at least (``last-token``); without, its copies leave enough.
    """
    scene = plain_scene(f)
    s, a, copies = scene.symbols, scene.symbols.arithmetic, scene.demand.copies_free
    full, some = s.number("full need"), s.number("some copies")
    least, end = least_free(scene.need(), full, scene.margin, a), crash_end(scene.need(), copies)
    inside = every(least <= scene.free, scene.free < end)
    most = a.minimum(copies, scene.free - scene.demand.hit_free)
    goal = every(
        implies(every(some <= copies, can_crash(scene, full, some)), inside),
        implies(inside, can_crash(scene, full, most)),
    )
    tight = (can_crash(scene, full, copies), scene.free == end - 1)
    return Claim(s, scene.demand.pages >= 1, goal, tight=tight)


def keeping_all_is_least(f: Formulas) -> Claim:
    """Admitted by both gates, and every copy kept: with none to keep it would be admission."""
    scene = plain_scene(f)
    s, a, copies = scene.symbols, scene.symbols.arithmetic, scene.demand.copies_free
    full, behind = s.number("full need"), s.number("z")
    taken = scene.demand.hit_free + scene.demand.pages
    least = least_free_keeping_all(
        least_free(scene.need(), full, scene.margin, a), taken, copies, behind, a
    )
    kept = same(f.kept_copies(scene.free, taken, copies, behind, a), copies)
    admitted = both_gates(scene, full, scene.margin)
    goal = same(every(admitted, kept), scene.free >= least)
    return Claim(s, copies >= 1, goal, tight=(scene.free == least, behind >= 1))


def a_lost_copy_costs_a_page(f: Formulas) -> Claim:
    """Until no page is left."""
    scene = plain_scene(f)
    s, a, copies = scene.symbols, scene.symbols.arithmetic, scene.demand.copies_free
    pages, groups, behind = s.number("pages"), s.number("groups", 1), s.number("z")
    taken = scene.demand.hit_free + scene.demand.pages
    lost = copies - f.kept_copies(scene.free, taken, copies, behind, a)
    kept = pages_kept(scene.free, taken, pages, groups, behind, a, f.kept_copies)
    goal = same(kept, a.maximum(pages - lost, 0))
    return Claim(s, copies == groups * pages, goal, tight=(lost == 1, kept == 1, groups >= 2))


def longest_with_its_region(engine: Engine, wants: Truth) -> Demand:
    return Demand(engine.max_pages, 0, 0, 0, 0, 0, 0, 0, 0, 0, wants)


def startup_is_a_need(f: Formulas) -> Claim:
    """What the start-up check asks for, in the predictor's terms: within the window of resident
    pages, or without, as the dialect says."""
    engine = any_engine()
    s = engine.symbols
    wants = s.truth("has its hot region")
    demand = longest_with_its_region(engine, wants)
    size = (engine.num_resident_groups, engine.hot_blocks)
    within = f.gpu_need(demand, *size, engine.resident_cap, False, s.arithmetic)
    whole = f.gpu_need(demand, *size, None, False, s.arithmetic)
    goal = every(
        same(engine.startup(ASKS_WHEN_FULL), within + 1),
        same(engine.startup(ASKS_WHEN_LOW), whole + 1),
    )
    return Claim(s, wants, goal)


def lone_request_finishes(f: Formulas) -> Claim:
    """Every step of a lone cold request: its admission, a chunk before its region, the chunk that
    brings it, a chunk after it."""
    step = any_step(f)
    e, sizes = step.engine, step.engine.sizes
    earlier = e.symbols.number("row two chunks ago")
    a_chunk = step.pages <= step.row + sizes.chunk_pages
    brings = every(earlier < sizes.window, step.pages <= earlier + sizes.two_chunks_pages)
    without, bringing = (step.granted(wants, 0, step.all_pinned) for wants in (False, True))
    later = step.granted(True, e.hot_blocks, step.with_region)
    goal = every(
        replace(step, row=0).admitted(),
        implies(every(a_chunk, step.row < sizes.window), without),
        implies(brings, bringing),
        implies(a_chunk, later),
    )
    given = (within(step), sizes.chunk_pages <= sizes.two_chunks_pages)
    return Claim(e.symbols, on_least_pool(step, ASKS_WHEN_FULL), goal, given)


def lone_request_that_asks_when_low(f: Formulas) -> Claim:
    """Its admission, and any step, whenever it asks for its region."""
    step = any_step(f)
    e = step.engine
    regions = e.num_resident_groups * e.hot_blocks
    goal = every(
        replace(step, row=0).admitted(),
        *(step.granted(wants, 0, step.all_pinned) for wants in (False, True)),
        step.granted(True, e.hot_blocks, step.all_pinned + regions),
    )
    return Claim(e.symbols, on_least_pool(step, ASKS_WHEN_LOW), goal, (within(step),))


OBLIGATIONS: tuple[Obligation, ...] = (
    Obligation("least-free", "A waiting request is admitted exactly from its least free blocks on: "
               "the larger need of its two gates, and the watermark.",
               ("I4", "I6"), least_free_is_least),
    Obligation("crash-window-both-gates", "eager: a hit with up to k free copies can crash exactly "
               "from its least free blocks up to e + n + k.", ("I4",), crash_window_of_both_gates),
    Obligation("kept-all-admitted", "A hit is admitted and keeps all its copies exactly from the "
               "larger of its least free blocks and e + n + k + z on.",
               ("I11",), keeping_all_is_least),
    Obligation("pages-kept", "Each copy that a hit loses costs it one page, until none is left.",
               ("I11",), a_lost_copy_costs_a_page),
    Obligation("startup-need", "The start-up minimum is the null block and the need of the longest "
               "request with its hot region.", ("I16",), startup_is_a_need),
    Obligation("alone-finishes", "On the least pool every step of a lone request is granted.",
               ("I6", "I16"), lone_request_finishes),
    Obligation(f"alone-finishes-{LOW.version}", f"On the least pool of {LOW.version} every step of "
               "a lone request is granted.", ("I6", "I16"), lone_request_that_asks_when_low),
)  # fmt: skip
