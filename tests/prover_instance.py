"""A theorem's formulas at concrete numbers: the prover's verdict on one allocation of the model.

The numbers are read from the state before the call, as a snapshot shows it. They take the place of
the unknowns of the scene that the theorems are about, and the solver decides what follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from invariants.proofs.arithmetic import decide, every, opposite, same
from invariants.proofs.obligation import THE_MODELS, Formulas
from invariants.proofs.predicted import look_up
from invariants.proofs.scenes import Scene, hit_scene, running_scene
from model.admission import INTEGERS, Number, Truth
from model.manager.configuration import Configuration
from model.snapshot import RequestState, Snapshot

Order = Literal["eager", "charged", "deferred"]
"""Copies are pinned before the pops and not charged (``eager``), charged (#57457), or pinned after
the pops (#59282 and every release but the first)."""
Verdict = Literal["granted", "refused", "crash"]


@dataclass(frozen=True, slots=True)
class Instance:
    """A scene with numbers for its unknowns. Raises ValueError if one has none."""

    scene: Scene
    numbers: Mapping[str, int]
    truths: tuple[Truth, ...] = ()
    """What else is known."""
    known: tuple[Truth, ...] = field(init=False)

    def __post_init__(self) -> None:
        unknowns = self.scene.symbols.numbers
        if set(unknowns) != set(self.numbers):
            raise ValueError(f"numbers for {sorted(self.numbers)}, unknowns {sorted(unknowns)}")
        pinned = tuple(unknowns[name] == value for name, value in self.numbers.items())
        object.__setattr__(self, "known", (*pinned, *self.truths))

    def decides(self, truth: Truth) -> bool:
        """Whether the formula is true of these numbers. Raises ValueError if it is undecided."""
        can, can_fail = (
            decide((*self.known, each), self.scene.symbols).satisfiable
            for each in (truth, opposite(truth))
        )
        if can is None or can == can_fail:
            raise ValueError(f"the solver does not decide the instance {dict(self.numbers)}")
        return can

    @property
    def legal(self) -> bool:
        """Whether the theorems on this scene are about these numbers."""
        return self.decides(every(*self.scene.legal))

    def verdict(self, order: Order) -> Verdict:
        """What becomes of the allocation, by the formulas of the theorems on soundness."""
        if not self.decides(self.scene.admitted(charge_copies=order == "charged")):
            return "refused"
        fits = self.scene.fits if order == "deferred" else self.scene.fits_after_copies
        return "granted" if self.decides(fits) else "crash"

    def takes(self, blocks: int) -> bool:
        """Whether it takes so many blocks: those of the hit, and those it pops."""
        return self.decides(same(self.scene.demand.hit_free + self.scene.popped, blocks))

    def keeps(self, copies: int, behind: int) -> bool:
        """Whether so many free copies survive its pops, with ``behind`` blocks queued after them.

        ``behind`` counts no block of the hit: those are touched first.
        """
        scene = self.scene
        taken = scene.demand.hit_free + scene.popped
        kept: Number = scene.formulas.kept_copies(
            scene.free, taken, scene.demand.copies_free, behind, scene.symbols.arithmetic
        )
        return self.decides(same(kept, copies))


def hit_instance(
    c: Configuration,
    before: Snapshot,
    request: RequestState,
    tokens: int,
    margin: int,
    formulas: Formulas = THE_MODELS,
) -> Instance:
    """A waiting request, asked at the gate of its first step, whose context is then ``tokens``."""
    hit = look_up(c, before, request)
    numbers = {
        "F": len(before.gpu.free),
        "e": sum(before.gpu.counts[block] == 0 for block in hit.indexer),
        "k": hit.copies,
        "groups": c.num_resident_groups,
        "region": c.hot_blocks,
        "hit pages": len(hit.indexer),
        "block size": c.block_size,
        "tokens": tokens,
        "margin": margin,
    }
    return Instance(hit_scene(formulas), numbers)


def running_instance(
    c: Configuration,
    before: Snapshot,
    request: RequestState,
    tokens: int,
    formulas: Formulas = THE_MODELS,
) -> Instance:
    """A request that holds blocks, and whose context is ``tokens`` after the step."""
    _, indexer, *rows = request.tables
    scene = running_scene(formulas)
    numbers = {
        "F": len(before.gpu.free),
        "pages": INTEGERS.ceil_div(tokens, c.block_size),
        "groups": c.num_resident_groups,
        "region": c.hot_blocks,
        "indexer row": len(indexer),
        "resident row": len(rows[0]),
        "hot row": len(rows[c.num_resident_groups]),
        "computed pages": INTEGERS.ceil_div(request.computed, c.block_size),
        "margin": 0,
    }
    return Instance(scene, numbers, (same(scene.demand.wants_hot, bool(request.wants_hot)),))
