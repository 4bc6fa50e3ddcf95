"""The defect of ``eager``: copies are pinned before the blocks are popped, and not charged."""

from invariants.proofs.arithmetic import every, implies, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import Scene, hit_scene, plain_scene
from model.admission import Truth


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
