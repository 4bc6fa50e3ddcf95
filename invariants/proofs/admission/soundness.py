"""Soundness: what is admitted fits."""

from dataclasses import replace

from invariants.proofs.arithmetic import Symbols, every, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import Scene, hit_scene, plain_scene, running_scene


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
