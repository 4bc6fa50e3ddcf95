"""What claims of admission quantify over: one allocation, in plain numbers or in tokens."""

from dataclasses import dataclass

from invariants.proofs.arithmetic import Symbols, choose, every
from invariants.proofs.obligation import Formulas
from model.admission import Demand, Number, Truth


@dataclass(frozen=True, slots=True)
class Scene:
    """One allocation of one request, before it asks the predictor."""

    formulas: Formulas
    symbols: Symbols
    demand: Demand
    groups: Number
    """Resident groups, and as many hot groups."""
    region: Number
    free: Number
    """Free blocks of the GPU pool."""
    margin: Number
    """Watermark and reserved blocks together: what admission leaves free."""
    legal: tuple[Truth, ...] = ()
    """What holds of every call that an engine makes."""

    def need(self, charge_copies: bool = False, cap: Number | None = None) -> Number:
        """What the predictor promises, of the gate of one step unless there is a cap."""
        f, a = self.formulas, self.symbols.arithmetic
        return f.gpu_need(self.demand, self.groups, self.region, cap, charge_copies, a)

    def admitted(self, charge_copies: bool = False, cap: Number | None = None) -> Truth:
        return self.formulas.admits(self.need(charge_copies, cap), self.margin, self.free)

    @property
    def popped(self) -> Number:
        """Blocks that ``model.allocation.pop_new_blocks`` takes from the head of the queue.

        Every row is lengthened to what it must hold. The predictor is not asked.
        """
        d, a = self.demand, self.symbols.arithmetic
        kept = a.maximum(d.pages - (d.hit_pages + d.held_indexer), 0)
        resident = a.maximum(d.pages - (d.hit_pages + d.held_resident), 0)
        hot = a.maximum(choose(d.wants_hot, self.region, 0) - d.held_hot, 0)
        return kept + self.groups * (resident + hot)

    @property
    def fits(self) -> Truth:
        """The hit is touched, then the blocks are popped (#59282): every pop finds its blocks."""
        return self.popped <= self.free - self.demand.hit_free

    @property
    def fits_after_copies(self) -> Truth:
        """As ``fits``, but the copies are pinned before any pop, as ``eager`` and #57457 do."""
        return self.popped <= self.free - self.demand.hit_free - self.demand.copies_free


def plain_scene(formulas: Formulas) -> Scene:
    """F free blocks, e of the hit to be touched, n to be popped, k free copies, w + r margin.

    The group that keeps every page stands for all: a sum of pops is all that counts.
    """
    s = Symbols()
    free, hit_free, popped, copies = (s.number(name) for name in ("F", "e", "n", "k"))
    margin = s.number("w") + s.number("r")
    demand = Demand(
        pages=popped,
        computed_pages=0,
        hit_pages=0,
        hit_free=hit_free,
        host_hit_free=0,
        copies_free=copies,
        held_host=0,
        held_indexer=0,
        held_resident=0,
        held_hot=0,
        wants_hot=False,
    )
    return Scene(formulas, s, demand, 0, 0, free, margin)


def no_margin(scene: Scene) -> Truth:
    return every(scene.symbols.numbers["w"] == 0, scene.symbols.numbers["r"] == 0)


def hit_scene(formulas: Formulas) -> Scene:
    """A waiting request with a local hit, or cold, in tokens of a block size that is unknown.

    The last token is always computed anew, so the hit ends before it.
    """
    s = Symbols()
    free, hit_free = s.number("F"), s.number("e")
    copies, groups, region = s.number("k"), s.number("groups", 1), s.number("region", 1)
    hit_pages, size = s.number("hit pages"), s.number("block size", 1)
    tokens, margin = s.number("tokens", 1), s.number("margin")
    demand = Demand(
        pages=s.ceil_div(tokens, size),
        computed_pages=hit_pages,
        hit_pages=hit_pages,
        hit_free=hit_free,
        host_hit_free=0,
        copies_free=copies,
        held_host=0,
        held_indexer=0,
        held_resident=0,
        held_hot=0,
        wants_hot=hit_pages > 0,
    )
    legal = (hit_free <= hit_pages, copies <= groups * hit_pages, hit_pages * size < tokens)
    return Scene(formulas, s, demand, groups, region, free, margin, legal)


def running_scene(formulas: Formulas) -> Scene:
    """A request that holds blocks asks for more tokens: its rows cover what is computed."""
    s = Symbols()
    free, pages = s.number("F"), s.number("pages")
    groups, region = s.number("groups", 1), s.number("region", 1)
    indexer, resident = s.number("indexer row"), s.number("resident row")
    hot, computed = s.number("hot row"), s.number("computed pages")
    demand = Demand(
        pages=pages,
        computed_pages=computed,
        hit_pages=0,
        hit_free=0,
        host_hit_free=0,
        copies_free=0,
        held_host=0,
        held_indexer=indexer,
        held_resident=resident,
        held_hot=hot,
        wants_hot=s.truth("wants its hot region"),
    )
    legal = (computed <= resident, hot <= region)
    return Scene(formulas, s, demand, groups, region, free, s.number("margin"), legal)
