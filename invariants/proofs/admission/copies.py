"""Copies kept: the end of a deferred allocation adopts those that no pop took."""

from invariants.proofs.admission.window import numbers
from invariants.proofs.arithmetic import either, every, opposite, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import Scene, no_margin, plain_scene
from model.admission import Number, Truth


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
