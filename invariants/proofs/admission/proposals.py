"""What the proposals admit."""

from invariants.proofs.admission.window import numbers
from invariants.proofs.arithmetic import every, implies, opposite, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import hit_scene, no_margin, plain_scene


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
