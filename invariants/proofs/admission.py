"""Theorems on admission: over the functions of ``model.admission``, for all integers.

Sources: ``eager`` is vLLM 0.30.0, ``charged`` is #57457, ``deferred`` is #59282 and every release
from 0.31.0. F are free blocks, e free blocks of the hit (touched first), n blocks to be popped,
k free GPU copies of the hit's host pages, w the watermark, r reserved blocks.
"""

from dataclasses import replace

from invariants.proofs.arithmetic import Symbols, either, every, implies, opposite, same
from invariants.proofs.obligation import Claim, Formulas, Obligation
from invariants.proofs.scenes import Scene, hit_scene, no_margin, plain_scene, running_scene
from model.admission import Demand, Number, Truth

# Soundness: what is admitted fits.


def hits_pay_for_their_pops(f: Formulas) -> Claim:
    """The charge of a waiting request equals what it touches and pops, in tokens.

    What is computed before the step must be the hit, no more and no less.
    """
    scene = hit_scene(f)
    computed = scene.symbols.number("computed pages")
    scene = replace(scene, demand=replace(scene.demand, computed_pages=computed))
    taken = scene.demand.hit_free + scene.popped
    guard = same(computed, scene.demand.hit_pages)
    return Claim(scene.symbols, guard, same(scene.need(), taken), scene.legal)


def running_requests_pay_for_their_pops(f: Formulas) -> Claim:
    """The charge of a running request equals its pops, if its rows cover what is computed."""
    scene = running_scene(f)
    covered, hot = scene.legal
    return Claim(scene.symbols, covered, same(scene.need(), scene.popped), (hot,))


def charges_add_up(f: Formulas) -> Claim:
    """One more resident group adds its own pops: so the charge is right for any number."""
    scene = running_scene(f)
    s, d, a = scene.symbols, scene.demand, scene.symbols.arithmetic
    row = s.number("row of the new group")
    more = Scene(f, s, d, scene.groups + 1, scene.region, scene.free, scene.margin)
    pops = a.maximum(d.pages - row, 0) + f.hot_need(d.wants_hot, scene.region, d.held_hot, a)
    guard = same(row, d.held_resident)
    return Claim(s, guard, same(more.need(), scene.need() + pops), scene.legal)


def every_pop_fits(f: Formulas) -> Claim:
    """The inductive step: while free ≥ remaining, the next pop fits and leaves free ≥ remaining.

    With ``deferred-begins`` and ``charged-begins`` this is soundness for any number of pops.
    """
    s = Symbols()
    free, remaining, pop = s.any_number("free"), s.number("remaining"), s.number("pop")
    goal = every(pop <= free, remaining - pop <= free - pop)
    return Claim(s, free >= remaining, goal, (pop <= remaining,))


def deferred_begins(f: Formulas) -> Claim:
    """After the hit is touched, the queue holds all that the groups will pop (#59282)."""
    scene = plain_scene(f)
    return Claim(scene.symbols, scene.admitted(), scene.fits)


def charged_begins(f: Formulas) -> Claim:
    """After the hit is touched and its copies are pinned, what is to be popped is left (#57457)."""
    scene = plain_scene(f)
    return Claim(scene.symbols, scene.admitted(charge_copies=True), scene.fits_after_copies)


def deferred_is_sound(f: Formulas) -> Claim:
    scene = hit_scene(f)
    return Claim(scene.symbols, scene.admitted(), scene.fits, scene.legal)


def charged_is_sound(f: Formulas) -> Claim:
    scene = hit_scene(f)
    guard = scene.admitted(charge_copies=True)
    return Claim(scene.symbols, guard, scene.fits_after_copies, scene.legal)


def running_is_sound(f: Formulas) -> Claim:
    scene = running_scene(f)
    return Claim(scene.symbols, scene.admitted(), scene.fits, scene.legal)


# The defect of 0.30.0: copies are pinned before the blocks are popped, and not charged.


def copies_are_free(scene: Scene) -> Truth:
    """Copies and free hit blocks are different blocks of the free queue."""
    return scene.demand.hit_free + scene.demand.copies_free <= scene.free


def producer_ended(scene: Scene) -> Truth:
    """Nobody else holds the hit's blocks."""
    return every(scene.demand.hit_pages > 0, same(scene.demand.hit_free, scene.demand.hit_pages))


def eager_is_sound(f: Formulas) -> Claim:
    scene = plain_scene(f)
    return Claim(
        scene.symbols, scene.admitted(), scene.fits_after_copies, (copies_are_free(scene),)
    )


def eager_is_sound_in_the_code(f: Formulas) -> Claim:
    scene = hit_scene(f)
    given = (*scene.legal, copies_are_free(scene), producer_ended(scene))
    return Claim(scene.symbols, scene.admitted(), scene.fits_after_copies, given)


def eager_is_sound_beside_the_producer(f: Formulas) -> Claim:
    """The producer still runs and holds its indexer blocks; its clean pages are free copies."""
    scene = hit_scene(f)
    given = (*scene.legal, copies_are_free(scene), same(scene.demand.hit_free, 0))
    return Claim(scene.symbols, scene.admitted(), scene.fits_after_copies, given)


def no_smaller_crash(f: Formulas) -> Claim:
    scene = plain_scene(f)
    goal = implies(scene.admitted(), scene.fits_after_copies)
    return Claim(scene.symbols, scene.free < 1, goal, (copies_are_free(scene),))


def no_smaller_crash_in_the_code(f: Formulas) -> Claim:
    scene = hit_scene(f)
    goal = implies(scene.admitted(), scene.fits_after_copies)
    given = (*scene.legal, copies_are_free(scene), producer_ended(scene))
    return Claim(scene.symbols, scene.free < 4, goal, given)


# The exact bounds of the eager order.


def numbers(scene: Scene) -> tuple[Number, Number, Number, Number]:
    """F, e, n, k."""
    n = scene.symbols.numbers
    return n["F"], n["e"], n["n"], n["k"]


def eager_bound(f: Formulas) -> Claim:
    """Admission gives F ≥ e + n; an admitted hit is safe exactly if F ≥ e + n + k."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    safe = same(scene.fits_after_copies, free >= hit_free + popped + copies)
    one_less = free == hit_free + popped + copies - 1
    tight = (one_less, copies_are_free(scene), opposite(scene.fits_after_copies))
    return Claim(scene.symbols, scene.admitted(), every(scene.fits, safe), tight=tight)


def crash_window(f: Formulas) -> Claim:
    """Without margin: admitted and crashing exactly while e + n ≤ F < e + n + k."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    crashes = every(scene.admitted(), opposite(scene.fits_after_copies))
    window = every(hit_free + popped <= free, free < hit_free + popped + copies)
    return Claim(
        scene.symbols,
        no_margin(scene),
        same(crashes, window),
        tight=(crashes, copies_are_free(scene), free == hit_free + popped + copies - 1),
    )


def window_has_k_values(f: Formulas) -> Claim:
    """Each i from 0 to k - 1, and no other, crashes at F = e + n + i."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    at = scene.symbols.any_number("i")
    crashes = every(scene.admitted(), opposite(scene.fits_after_copies))
    goal = same(crashes, every(at >= 0, at < copies))
    return Claim(scene.symbols, no_margin(scene), goal, (free == hit_free + popped + at,))


def window_in_a_pool(f: Formulas) -> Claim:
    """The copies are free blocks themselves (e + k ≤ F): then min(n, k) counts crash.

    F = max(e + n, e + k) + i, for i from 0 to min(n, k) - 1.
    """
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    a, at = scene.symbols.arithmetic, scene.symbols.any_number("i")
    crashes = every(scene.admitted(), opposite(scene.fits_after_copies))
    possible = every(copies_are_free(scene), crashes)
    goal = same(possible, every(at >= 0, at < a.minimum(popped, copies)))
    given = (free == hit_free + a.maximum(popped, copies) + at,)
    return Claim(scene.symbols, no_margin(scene), goal, given)


def margin_saves(f: Formulas) -> Claim:
    """Never a crash while k ≤ w + r."""
    scene = plain_scene(f)
    guard = scene.demand.copies_free <= scene.margin
    return Claim(scene.symbols, guard, scene.fits_after_copies, (scene.admitted(),))


def margin_saves_one_more(f: Formulas) -> Claim:
    """With k = w + r + 1 it can crash: the margin's bound is exact."""
    scene = plain_scene(f)
    guard = scene.demand.copies_free == scene.margin + 1
    given = (scene.admitted(), copies_are_free(scene))
    return Claim(scene.symbols, guard, scene.fits_after_copies, given)


# What the proposals admit.


def charged_is_weakest(f: Formulas) -> Claim:
    """Charging all k copies is the weakest precondition of the eager order (#57457)."""
    scene = plain_scene(f)
    goal = same(scene.admitted(charge_copies=True), scene.fits_after_copies)
    return Claim(scene.symbols, no_margin(scene), goal)


def charging_less_crashes(f: Formulas) -> Claim:
    """Charging any d < k: at F = e + n + d it is admitted, and crashes."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    less = scene.symbols.number("d")
    admitted = f.admits(scene.need() + less, scene.margin, free)
    goal = every(admitted, opposite(scene.fits_after_copies))
    given = (no_margin(scene), free == hit_free + popped + less)
    return Claim(scene.symbols, less < copies, goal, given)


def deferred_is_optimal(f: Formulas) -> Claim:
    """Whatever fits in any order needs F ≥ e + n, and that is admitted (#59282)."""
    scene = plain_scene(f)
    return Claim(scene.symbols, no_margin(scene), implies(scene.fits, scene.admitted()))


def deferred_is_optimal_in_tokens(f: Formulas) -> Claim:
    """The same for a local hit, in tokens of any block size."""
    scene = hit_scene(f)
    goal = implies(scene.fits, scene.admitted())
    return Claim(scene.symbols, same(scene.margin, 0), goal, scene.legal)


def deferred_admits_what_charged_does(f: Formulas) -> Claim:
    """With any margin. That it is strictly more is ``deferred-admits-more``."""
    scene = plain_scene(f)
    return Claim(scene.symbols, scene.admitted(charge_copies=True), scene.admitted())


def deferred_admits_more(f: Formulas) -> Claim:
    """With a free copy there is a count of free blocks that only ``deferred`` admits."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    goal = every(scene.admitted(), opposite(scene.admitted(charge_copies=True)))
    given = (free == hit_free + popped + scene.margin,)
    return Claim(scene.symbols, copies >= 1, goal, given)


# Copies kept: the end of a deferred allocation adopts those that no pop took.


def kept(scene: Scene, behind: Number, more: Number = 0) -> Number:
    """Copies that survive ``n + more`` pops, with ``behind`` blocks queued behind them."""
    free, hit_free, popped, copies = numbers(scene)
    a = scene.symbols.arithmetic
    return scene.formulas.kept_copies(free, hit_free + popped + more, copies, behind, a)


def in_the_queue(scene: Scene, behind: Number) -> Truth:
    """The copies and the blocks behind them are in the queue that is left after the touch."""
    free, hit_free, _, copies = numbers(scene)
    return copies + behind <= free - hit_free


def queued_before(scene: Scene, behind: Number) -> Number:
    free, hit_free, _, copies = numbers(scene)
    return free - hit_free - copies - behind


def all_kept_first(f: Formulas) -> Claim:
    """Before any pop, all k copies are there."""
    scene = plain_scene(f)
    behind = scene.symbols.number("z")
    given = (scene.demand.pages == 0,)
    goal = same(kept(scene, behind), scene.demand.copies_free)
    return Claim(scene.symbols, in_the_queue(scene, behind), goal, given)


def a_pop_spares_the_copies(f: Formulas) -> Claim:
    """The inductive step, while other blocks are queued before the copies, or none is left."""
    scene = plain_scene(f)
    behind = scene.symbols.number("z")
    others_first = scene.demand.pages < queued_before(scene, behind)
    guard = either(others_first, same(kept(scene, behind), 0))
    goal = same(kept(scene, behind, 1), kept(scene, behind))
    return Claim(scene.symbols, guard, goal, (in_the_queue(scene, behind),))


def a_pop_takes_a_copy(f: Formulas) -> Claim:
    """The inductive step, when a copy is at the head: one copy less."""
    scene = plain_scene(f)
    behind = scene.symbols.number("z")
    left = kept(scene, behind)
    guard = every(scene.demand.pages >= queued_before(scene, behind), left > 0)
    goal = same(kept(scene, behind, 1), left - 1)
    return Claim(scene.symbols, guard, goal, (in_the_queue(scene, behind),))


def all_kept_if_charged_admits(f: Formulas) -> Claim:
    """Copies last in the queue (#59283): all are kept exactly where ``charged`` would admit."""
    scene = plain_scene(f)
    behind = scene.symbols.number("z")
    all_kept = same(kept(scene, behind), scene.demand.copies_free)
    goal = same(all_kept, scene.admitted(charge_copies=True))
    given = (no_margin(scene), scene.admitted())
    return Claim(scene.symbols, behind == 0, goal, given)


def blocks_behind_cost_copies(f: Formulas) -> Claim:
    """With z blocks behind the copies, keeping all takes F ≥ e + n + k + z."""
    scene = plain_scene(f)
    free, hit_free, popped, copies = numbers(scene)
    behind = scene.symbols.number("z")
    all_kept = same(kept(scene, behind), copies)
    goal = same(all_kept, free >= hit_free + popped + copies + behind)
    fewer = (no_margin(scene), scene.admitted(charge_copies=True), opposite(all_kept))
    return Claim(scene.symbols, copies >= 1, goal, tight=fewer)


def kept_is_a_count(f: Formulas) -> Claim:
    """Never more than k, never negative."""
    scene = plain_scene(f)
    behind, copies = scene.symbols.number("z"), scene.symbols.any_number("copies")
    free, hit_free, popped, _ = numbers(scene)
    count = f.kept_copies(free, hit_free + popped, copies, behind, scene.symbols.arithmetic)
    return Claim(scene.symbols, copies >= 0, every(count >= 0, count <= copies))


def more_behind_keeps_no_more(f: Formulas) -> Claim:
    scene = plain_scene(f)
    behind, more = scene.symbols.number("z"), scene.symbols.number("more")
    return Claim(scene.symbols, more >= behind, kept(scene, more) <= kept(scene, behind))


# Tokens, the host, and the two gates.


def a_hit_leaves_a_page(f: Formulas) -> Claim:
    """The last token is computed anew, so the largest hit pops a block in every group."""
    scene = hit_scene(f)
    free_in_hit, copies, hit_ends = scene.legal
    goal = scene.need() >= scene.demand.hit_free + 1 + scene.groups
    return Claim(scene.symbols, hit_ends, goal, (free_in_hit, copies))


def host_demand(s: Symbols) -> Demand:
    pages, hit_pages, held = s.number("pages"), s.number("hit pages"), s.number("held")
    hit_free = s.number("free host hit")
    return Demand(
        pages=pages,
        computed_pages=s.number("computed pages"),
        hit_pages=hit_pages,
        hit_free=s.number("e"),
        host_hit_free=hit_free,
        copies_free=s.number("k"),
        held_host=held,
        held_indexer=s.number("indexer row"),
        held_resident=s.number("resident row"),
        held_hot=s.number("hot row"),
        wants_hot=s.truth("wants its hot region"),
    )


def host_taken(s: Symbols, demand: Demand) -> Number:
    """Host blocks that an allocation touches and pops."""
    pops = s.arithmetic.maximum(demand.pages - (demand.hit_pages + demand.held_host), 0)
    return pops + demand.host_hit_free


def sentinel_refuses(f: Formulas) -> Claim:
    """A host shortage is refused by every GPU pool, however free, at both gates, whatever is
    charged (0.31.0)."""
    s = Symbols()
    demand, host_free, blocks = host_demand(s), s.number("host free"), s.number("blocks", 1)
    free, margin, cap = s.number("F"), s.number("margin"), s.number("cap")
    groups, region = s.number("groups"), s.number("region")
    shortage = f.host_shortage(demand, host_free, blocks, s.arithmetic)
    needs = [
        f.gpu_need(demand, groups, region, window, charge, s.arithmetic)
        for window in (None, cap)
        for charge in (False, True)
    ]
    refused = every(*(opposite(f.admits(need + shortage, margin, free)) for need in needs))
    guard = host_taken(s, demand) > host_free
    return Claim(s, guard, refused, (free <= blocks - 1,))


def no_shortage_costs_nothing(f: Formulas) -> Claim:
    s = Symbols()
    demand, host_free, blocks = host_demand(s), s.number("host free"), s.number("blocks", 1)
    shortage = f.host_shortage(demand, host_free, blocks, s.arithmetic)
    return Claim(s, host_taken(s, demand) <= host_free, same(shortage, 0))


def the_host_fits(f: Formulas) -> Claim:
    """Where the sentinel is silent, every host pop fits (0.31.0)."""
    s = Symbols()
    demand, host_free, blocks = host_demand(s), s.number("host free"), s.number("blocks", 1)
    shortage = f.host_shortage(demand, host_free, blocks, s.arithmetic)
    return Claim(s, same(shortage, 0), host_taken(s, demand) <= host_free)


def larger_windows_need_more(f: Formulas) -> Claim:
    """The full-sequence gate is monotone in its window, and never asks for more than no window."""
    scene = hit_scene(f)
    cap, larger = scene.symbols.number("cap"), scene.symbols.number("larger cap")
    goal = every(
        scene.need(cap=cap) <= scene.need(cap=larger), scene.need(cap=larger) <= scene.need()
    )
    return Claim(scene.symbols, cap <= larger, goal, scene.legal)


def first_chunk(scene: Scene, chunk_pages: Number) -> Scene:
    """The same request at the gate of its first step, of ``chunk_pages`` pages with its hit."""
    d = scene.demand
    chunk = Demand(
        chunk_pages, d.computed_pages, d.hit_pages, d.hit_free, 0, d.copies_free, 0, 0, 0, 0,
        d.wants_hot,
    )  # fmt: skip
    return Scene(
        scene.formulas, scene.symbols, chunk, scene.groups, scene.region, scene.free, scene.margin
    )


def full_gate_covers_a_cold_step(f: Formulas) -> Claim:
    """A cold request that passes the full-sequence gate passes the gate of its first step.

    A hit beyond the window does not: the window is counted from the start of the sequence.
    """
    scene = hit_scene(f)
    s, d = scene.symbols, scene.demand
    cap, chunk_pages = s.number("cap"), s.number("chunk pages", 1)
    step = first_chunk(scene, chunk_pages)
    given = (
        *scene.legal, d.hit_pages < chunk_pages, chunk_pages <= d.pages,
        chunk_pages - d.hit_pages <= cap,
    )  # fmt: skip
    goal = implies(scene.admitted(cap=cap), step.admitted())
    return Claim(s, same(d.hit_pages, 0), goal, given)


def gates_agree_within_the_window(f: Formulas) -> Claim:
    """A sequence that fits the window is asked the same at both gates."""
    scene = hit_scene(f)
    cap = scene.symbols.number("cap")
    goal = same(scene.admitted(cap=cap), scene.admitted())
    return Claim(scene.symbols, cap >= scene.demand.pages, goal, scene.legal)


OBLIGATIONS: tuple[Obligation, ...] = (
    Obligation("hits-pay", "A waiting request is charged exactly what it touches and pops.",
               ("I4", "I6"), hits_pay_for_their_pops),
    Obligation("running-pays", "A running request is charged exactly what it pops.",
               ("I4", "I6"), running_requests_pay_for_their_pops),
    Obligation("groups-add-up", "One more resident group adds exactly its own pops.",
               ("I4",), charges_add_up),
    Obligation("pops-fit", "While free ≥ remaining, the next pop fits and keeps free ≥ remaining.",
               ("I4",), every_pop_fits),
    Obligation("deferred-begins", "deferred: an admitted hit begins its pops with enough free.",
               ("I4",), deferred_begins),
    Obligation("charged-begins", "charged: an admitted hit begins its pops with enough free.",
               ("I4",), charged_begins),
    Obligation("deferred-sound", "deferred: admitted implies that all pops fit, in tokens of any "
               "block size.", ("I4",), deferred_is_sound),
    Obligation("charged-sound", "charged: admitted implies that all pops fit, in tokens of any "
               "block size.", ("I4",), charged_is_sound),
    Obligation("running-sound", "A running request that is granted tokens gets its blocks.",
               ("I4",), running_is_sound),
    Obligation("eager-unsound", "eager: admitted implies that all pops fit.",
               ("I4",), eager_is_sound, "refuted"),
    Obligation("eager-unsound-in-code", "eager: the same, for a hit that vLLM 0.30.0 can meet.",
               ("I4",), eager_is_sound_in_the_code, "refuted"),
    Obligation("eager-unsound-shared", "eager: the same, while the hit's producer still runs.",
               ("I4",), eager_is_sound_beside_the_producer, "refuted"),
    Obligation("eager-least", "eager: no crash has fewer than 1 free block.",
               ("I4",), no_smaller_crash),
    Obligation("eager-least-in-code", "eager: no crash of vLLM 0.30.0 whose producer has ended has "
               "fewer than 4 free blocks.", ("I4",), no_smaller_crash_in_the_code),
    Obligation("eager-bound", "eager: an admitted hit is safe exactly if F ≥ e + n + k.",
               ("I4",), eager_bound),
    Obligation("crash-window", "eager, no margin: it crashes exactly at e + n ≤ F < e + n + k.",
               ("I4",), crash_window),
    Obligation("crash-window-size", "eager, no margin: exactly k counts of free blocks crash.",
               ("I4",), window_has_k_values),
    Obligation("crash-window-in-pool", "eager, no margin, copies among the F free blocks: exactly "
               "min(n, k) counts crash.", ("I4",), window_in_a_pool),
    Obligation("margin-saves", "eager: never a crash while k ≤ w + r.",
               ("I4",), margin_saves),
    Obligation("margin-exact", "eager: never a crash while k = w + r + 1.",
               ("I4",), margin_saves_one_more, "refuted"),
    Obligation("charged-weakest", "charged, no margin: it admits exactly what the eager order can "
               "serve.", ("I4", "I6"), charged_is_weakest),
    Obligation("charge-all", "Charging fewer than the k copies admits a hit that crashes.",
               ("I4",), charging_less_crashes),
    Obligation("deferred-optimal", "deferred, no margin: whatever fits is admitted.",
               ("I6",), deferred_is_optimal),
    Obligation("deferred-optimal-in-tokens", "deferred, no margin: a hit that fits is admitted, in "
               "tokens of any block size.", ("I6",), deferred_is_optimal_in_tokens),
    Obligation("deferred-admits-all", "deferred admits whatever charged admits.",
               ("I6",), deferred_admits_what_charged_does),
    Obligation("deferred-admits-more", "With a free copy, deferred admits at F = e + n + w + r and "
               "charged refuses.", ("I6",), deferred_admits_more),
    Obligation("kept-first", "Before any pop all k copies are kept.", ("I11",), all_kept_first),
    Obligation("kept-spared", "A pop costs no copy while another block is queued before them.",
               ("I11",), a_pop_spares_the_copies),
    Obligation("kept-taken", "A pop costs one copy when a copy is at the head of the queue.",
               ("I11",), a_pop_takes_a_copy),
    Obligation("kept-all", "Copies last in the queue: all are kept exactly if charged would admit.",
               ("I11",), all_kept_if_charged_admits),
    Obligation("kept-behind", "With z blocks behind, all are kept exactly if F ≥ e + n + k + z.",
               ("I11",), blocks_behind_cost_copies),
    Obligation("kept-range", "Copies kept are never more than k and never negative.",
               ("I11",), kept_is_a_count),
    Obligation("kept-monotone", "More blocks behind the copies never keep more of them.",
               ("I11",), more_behind_keeps_no_more),
    Obligation("last-token", "A hit pops a block or more in each group, whatever the block size.",
               ("I4",), a_hit_leaves_a_page),
    Obligation("host-sentinel", "A host shortage is refused by every GPU pool, at both gates.",
               ("I4", "I14"), sentinel_refuses),
    Obligation("host-silent", "Without a host shortage the sentinel is 0.",
               ("I6", "I14"), no_shortage_costs_nothing),
    Obligation("host-sound", "Where the sentinel is silent all host pops fit.",
               ("I4", "I14"), the_host_fits),
    Obligation("window-monotone", "A larger in-flight window never asks for less, and no window "
               "asks for most.", ("I6",), larger_windows_need_more),
    Obligation("gates-cold", "A cold request that passes the full-sequence gate passes the gate of "
               "its first step.", ("I4", "I6"), full_gate_covers_a_cold_step),
    Obligation("gates-agree", "A sequence within the window is asked the same at both gates.",
               ("I6",), gates_agree_within_the_window),
)  # fmt: skip
