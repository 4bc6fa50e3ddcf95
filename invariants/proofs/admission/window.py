"""The exact bounds of the eager order."""

from invariants.proofs.admission.eager import copies_are_free
from invariants.proofs.arithmetic import every, opposite, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import Scene, no_margin, plain_scene
from model.admission import Number


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
