"""Theorems on a request that is alone: on the least pool it finishes, and the start-up check may
ask for less (K5).

The functions are those of ``model.admission`` and ``model.startup``, the bound is that of
``model.bounds``. Sources: the window and the region are vLLM's, of the first release and, for a
request that asks when its window is full, of the later ones.
"""

from dataclasses import dataclass, replace
from typing import cast

from invariants.proofs.arithmetic import Symbols, choose, every, opposite, same
from invariants.proofs.obligation import Claim, Formulas, Obligation
from model.admission import Demand, Number, Truth
from model.bounds import Sizes, held_when_asking, least_pool
from model.dialect import Dialect
from model.holding import ACTIVE_TAIL_PAGES
from model.manager.configuration import Configuration
from model.releases import first_with
from model.startup import minimum_blocks

LOW = first_with(hot_when_window_full=False)
FULL = first_with(hot_when_window_full=True)
ASKS_WHEN_LOW, ASKS_WHEN_FULL = LOW.dialect, FULL.dialect
"""Later releases differ in nothing that these claims are about."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine of any size: ``model.startup`` reads it as it does a configuration."""

    symbols: Symbols
    num_resident_groups: Number
    hot_blocks: Number
    block_size: Number
    budget: Number
    """Tokens of one step."""
    longest: Number
    """Tokens of the longest request."""
    max_pages: Number
    resident_cap: Number
    sizes: Sizes
    hisparse: bool = True

    def least(self, dialect: Dialect) -> Number:
        return least_pool(self.sizes, dialect.hot_when_window_full, self.symbols.arithmetic)

    def startup(self, dialect: Dialect) -> Number:
        return minimum_blocks(cast("Configuration", self), dialect)


def any_engine() -> Engine:
    """One or two steps in flight, any block size, budget, length, groups and region."""
    s = Symbols()
    groups, region = s.number("groups", 1), s.number("region", 1)
    size, budget = s.number("block size", 1), s.number("budget", 1)
    longest = s.number("longest", 2)
    in_flight = choose(s.truth("asynchronous"), 2 * budget, budget)
    window = s.ceil_div(s.arithmetic.minimum(in_flight, longest), size)
    pages = s.ceil_div(longest - 1, size)
    chunk, two_chunks = s.ceil_div(budget, size), s.ceil_div(2 * budget, size)
    sizes = Sizes(pages, window, chunk, two_chunks, groups, region)
    max_pages = s.ceil_div(longest, size)
    return Engine(s, groups, region, size, budget, longest, max_pages, window, sizes)


def any_engine_in_pages() -> Engine:
    """The same with sizes in pages for unknowns. Tokens come in by the lemmas on pages."""
    s = Symbols()
    groups, region = s.number("groups", 1), s.number("region", 1)
    pages, window = s.number("pages", 1), s.number("window", 1)
    chunk, two_chunks = s.number("chunk pages", 1), s.number("two chunks' pages", 1)
    sizes = Sizes(pages, window, chunk, two_chunks, groups, region)
    return Engine(s, groups, region, 1, chunk, pages + 1, pages, window, sizes)


@dataclass(frozen=True, slots=True)
class Step:
    """A lone request whose rows have ``row`` pages asks for ``pages``."""

    engine: Engine
    formulas: Formulas
    row: Number
    pages: Number
    blocks: Number
    """Blocks of the GPU pool, the null block included."""

    def granted(self, wants: bool, held_hot: Number, held: Number) -> Truth:
        """Whether the gate of one step lets it have them, if it holds ``held`` blocks."""
        free = self.blocks - 1 - held
        return self.formulas.admits(self._need(wants, held_hot, None), 0, free)

    def admitted(self) -> Truth:
        """Whether the full-sequence gate lets it in, all blocks free."""
        return self.formulas.admits(self._need(False, 0, self.engine.resident_cap), 0,
                                    self.blocks - 1)  # fmt: skip

    def _need(self, wants: bool, held_hot: Number, cap: Number | None) -> Number:
        row, engine = self.row, self.engine
        demand = Demand(
            pages=self.pages,
            computed_pages=row,
            hit_pages=0,
            hit_free=0,
            host_hit_free=0,
            copies_free=0,
            held_host=row,
            held_indexer=row,
            held_resident=row,
            held_hot=held_hot,
            wants_hot=wants,
        )
        groups, region = engine.num_resident_groups, engine.hot_blocks
        a = engine.symbols.arithmetic
        return self.formulas.gpu_need(demand, groups, region, cap, False, a)

    @property
    def all_pinned(self) -> Number:
        """What it holds without a region."""
        return self.row + self.engine.num_resident_groups * self.row

    @property
    def with_region(self) -> Number:
        """What it holds with its region once all writes are done: the last two pages stay."""
        pinned = self.engine.symbols.arithmetic.minimum(self.row, ACTIVE_TAIL_PAGES)
        return self.row + self.engine.num_resident_groups * (pinned + self.engine.hot_blocks)


def any_step(f: Formulas, starts: bool = False) -> Step:
    engine = any_engine_in_pages()
    s = engine.symbols
    row = 0 if starts else s.number("row")
    return Step(engine, f, row, s.number("pages asked for"), s.number("blocks", 1))


def within(step: Step) -> Truth:
    """A step never goes back, and never beyond the longest request."""
    return every(step.row <= step.pages, step.pages <= step.engine.sizes.pages)


# From tokens to pages, for every block size


def pages_of_a_chunk(f: Formulas) -> Claim:
    """So many tokens more bring no fewer than 0 pages, and no more than they fill alone."""
    s = Symbols()
    size, done, more = s.number("block size", 1), s.number("done"), s.number("more")
    chunk = s.number("chunk")
    before, after = s.ceil_div(done, size), s.ceil_div(done + more, size)
    goal = every(before <= after, after <= before + s.ceil_div(chunk, size))
    return Claim(s, more <= chunk, goal)


def pages_after_whole_pages(f: Formulas) -> Claim:
    """Tokens after whole pages bring just the pages that they fill alone."""
    s = Symbols()
    size, whole, rest = s.number("block size", 1), s.number("whole pages"), s.number("beside")
    chunk = s.number("chunk")
    after = s.ceil_div(whole * size + rest + chunk, size)
    return Claim(s, rest == 0, same(after, whole + s.ceil_div(chunk, size)))


# On the least pool no step is refused.


def on_least_pool(step: Step, dialect: Dialect) -> Truth:
    return step.blocks >= step.engine.least(dialect)


def lone_request_is_admitted(f: Formulas) -> Claim:
    """The full-sequence gate of any prompt, all blocks free."""
    step = any_step(f, starts=True)
    guard = on_least_pool(step, ASKS_WHEN_FULL)
    return Claim(step.engine.symbols, guard, step.admitted(), (within(step),))


def before_the_region(f: Formulas) -> Claim:
    """No region is asked for yet: the window is not full."""
    step = any_step(f)
    sizes = step.engine.sizes
    given = (
        within(step),
        step.row < sizes.window,
        step.pages <= step.row + sizes.chunk_pages,
        sizes.chunk_pages <= sizes.two_chunks_pages,
    )
    goal = step.granted(wants=False, held_hot=0, held=step.all_pinned)
    return Claim(step.engine.symbols, on_least_pool(step, ASKS_WHEN_FULL), goal, given)


def bringing_the_region(f: Formulas) -> Claim:
    """The region and a chunk at once, beside all pages so far.

    Two chunks ago the window was not full: else the region would have come a step earlier.
    """
    step = any_step(f)
    sizes = step.engine.sizes
    earlier = step.engine.symbols.number("row two chunks ago")
    given = (
        within(step),
        earlier < sizes.window,
        step.pages <= earlier + sizes.two_chunks_pages,
    )
    goal = step.granted(wants=True, held_hot=0, held=step.all_pinned)
    return Claim(step.engine.symbols, on_least_pool(step, ASKS_WHEN_FULL), goal, given)


def after_the_region(f: Formulas) -> Claim:
    """With the region, once all writes are done."""
    step = any_step(f)
    given = (within(step), step.pages <= step.row + step.engine.sizes.chunk_pages)
    region = step.engine.hot_blocks
    goal = step.granted(wants=True, held_hot=region, held=step.with_region)
    return Claim(step.engine.symbols, on_least_pool(step, ASKS_WHEN_FULL), goal, given)


def any_step_when_low(f: Formulas) -> Claim:
    """Whenever it asks for its region, and though it never gives a page back."""
    step = any_step(f)
    goal = step.granted(wants=True, held_hot=0, held=step.all_pinned)
    return Claim(step.engine.symbols, on_least_pool(step, ASKS_WHEN_LOW), goal, (within(step),))


# One block less, and a step is refused.


def one_less_refuses_the_region(f: Formulas) -> Claim:
    """One page short of its window, then two whole chunks: the second is refused."""
    step = any_step(f)
    engine = step.engine
    held = held_when_asking(engine.sizes, True, engine.symbols.arithmetic)
    asking = held + engine.num_resident_groups * (held + engine.hot_blocks)
    goal = opposite(step.granted(wants=True, held_hot=0, held=step.all_pinned))
    given = (within(step), same(step.pages, held))
    return Claim(engine.symbols, step.blocks - 1 < asking, goal, given)


def one_less_refuses_later(f: Formulas) -> Claim:
    """A whole chunk that brings all its pages, up to the last, is refused."""
    step = any_step(f)
    engine, sizes = step.engine, step.engine.sizes
    pinned = engine.symbols.arithmetic.minimum(sizes.pages, sizes.chunk_pages + ACTIVE_TAIL_PAGES)
    later = sizes.pages + engine.num_resident_groups * (pinned + engine.hot_blocks)
    given = (
        within(step),
        same(step.pages, sizes.pages),
        same(step.pages - step.row, sizes.chunk_pages),
    )
    region = engine.hot_blocks
    goal = opposite(step.granted(wants=True, held_hot=region, held=step.with_region))
    return Claim(engine.symbols, step.blocks - 1 < later, goal, given)


# The start-up check


def startup_when_low(f: Formulas) -> Claim:
    """The first check asks for the resident pages of the longest request, and is enough.

    Were the region asked for with one block more, it would not be.
    """
    engine = any_engine()
    asked = engine.symbols.number("region asked for")
    startup = replace(engine, hot_blocks=asked).startup(ASKS_WHEN_LOW)
    guard = asked >= engine.hot_blocks
    return Claim(engine.symbols, guard, startup >= engine.least(ASKS_WHEN_LOW))


def startup_when_full(f: Formulas) -> Claim:
    """K5: the later check asks for the window only."""
    engine = any_engine()
    outgrows = engine.longest - 1 >= (engine.resident_cap - 1) * engine.block_size + 2
    goal = engine.startup(ASKS_WHEN_FULL) >= engine.least(ASKS_WHEN_FULL)
    return Claim(engine.symbols, outgrows, goal)


def startup_within_the_window(f: Formulas) -> Claim:
    """The later check is enough where no request outgrows its window."""
    engine = any_engine()
    goal = engine.startup(ASKS_WHEN_FULL) >= engine.least(ASKS_WHEN_FULL)
    return Claim(engine.symbols, engine.resident_cap >= engine.sizes.pages, goal)


def startup_repaired(f: Formulas) -> Claim:
    """What the check should ask for: the pages held on getting the region, and on later steps."""
    engine = any_engine()
    s, sizes = engine.symbols, engine.sizes
    asked = s.number("resident pages asked for")
    startup = replace(engine, resident_cap=asked).startup(ASKS_WHEN_FULL)
    held = held_when_asking(sizes, True, s.arithmetic)
    later = s.arithmetic.minimum(sizes.pages, sizes.chunk_pages + ACTIVE_TAIL_PAGES)
    given = (asked >= engine.resident_cap,)
    goal = startup >= engine.least(ASKS_WHEN_FULL)
    return Claim(s, every(asked >= held, asked >= later), goal, given)


OBLIGATIONS: tuple[Obligation, ...] = (
    Obligation("chunk-pages", "Tokens bring at most the pages that they fill alone, whatever the "
               "block size.", ("I16",), pages_of_a_chunk),
    Obligation("whole-pages", "After whole pages, tokens bring just the pages that they fill "
               "alone.", ("I16",), pages_after_whole_pages),
    Obligation("alone-admitted", "On the least pool the full-sequence gate admits a lone request.",
               ("I6", "I16"), lone_request_is_admitted),
    Obligation("alone-before", "On the least pool a lone request gets every chunk before it asks "
               "for its region.", ("I16",), before_the_region),
    Obligation("alone-asking", "On the least pool a lone request gets its region and its chunk.",
               ("I16",), bringing_the_region),
    Obligation("alone-later", "On the least pool a lone request with its region gets every chunk.",
               ("I16",), after_the_region),
    Obligation(f"alone-{LOW.version}", f"On the least pool of {LOW.version} a lone request gets "
               "every chunk.",
               ("I16",), any_step_when_low),
    Obligation("alone-asking-exact", "One block less can refuse a lone request its region.",
               ("I16",), one_less_refuses_the_region),
    Obligation("alone-later-exact", "One block less can refuse a lone request a later chunk.",
               ("I16",), one_less_refuses_later),
    Obligation(f"startup-{LOW.version}", f"The start-up minimum of {LOW.version} is at least "
               "the least pool.",
               ("I16",), startup_when_low),
    Obligation(f"startup-{FULL.version}", f"The start-up minimum of {FULL.version} is at least "
               "the least pool (K5).",
               ("I16",), startup_when_full, "refuted"),
    Obligation("startup-window", f"The start-up minimum of {FULL.version} is enough where no "
               "request outgrows its window.", ("I16",), startup_within_the_window),
    Obligation("startup-repaired", "A start-up check that asks for the pages held on getting the "
               "region is enough.", ("I16",), startup_repaired),
)  # fmt: skip
