"""Tokens, the host, and the two gates."""

from invariants.proofs.arithmetic import Symbols, every, implies, opposite, same
from invariants.proofs.obligation import Claim, Formulas
from invariants.proofs.scenes import Scene, hit_scene
from model.admission import Demand, Number


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
    charged."""
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
    """Where the sentinel is silent, every host pop fits."""
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
