"""The numbers of a deployment, each from a function of the model and with the theorem behind it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from kvproof.errors import CouldNotRun
from model.admission import INTEGERS, admits, gpu_need, kept_copies
from model.bounds import (
    crash_end,
    is_reached,
    least_blocks,
    least_free,
    least_free_keeping_all,
    pages_kept,
    waiting,
)
from model.dialect import Dialect
from model.manager.configuration import Configuration
from model.releases import first_with
from model.sizes import STEPS_IN_FLIGHT_ASYNC
from model.startup import HOST_SPARE_BLOCKS, minimum_blocks

Outcome = Literal["refused", "admitted", "crash"]
MOST_ROWS = 24
"""Counts of free blocks in a table, apart from those at which something changes."""

WEAKER = (
    f" (the check of {first_with(startup_full_length=True).version} leaves resident pages out "
    "unless it chooses the length itself)"
)
ALONE_FINISHES = {
    True: "alone-finishes",
    False: f"alone-finishes-{first_with(hot_when_window_full=False).version}",
}
"""The theorem on the least pool, by whether a full window makes a request ask for its region."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An engine, and a request that comes to it: in tokens, blocks and pages as in its options."""

    blocks: int
    """Blocks of the GPU pool, the null block included."""
    hot: int
    """Blocks of one request's hot region, in each group."""
    block_size: int
    max_model_len: int
    max_in_flight: int
    """Most tokens in flight: the token budget of a step, times the steps in flight."""
    dialect: Dialect
    prefix_pages: int = 0
    resident_groups: int = 1
    watermark: int = 0
    """Blocks that stay free when a request is admitted beside running ones."""
    prompt: int | None = None
    """Tokens of the request's prompt; none is the longest."""
    behind: int = 0
    """Other free blocks that are queued behind the copies, reused after them."""
    asynchronous: bool = False

    @property
    def prompt_tokens(self) -> int:
        return self.max_model_len - 1 if self.prompt is None else self.prompt

    @property
    def configuration(self) -> Configuration:
        """The engine, with a host pool that holds its longest request."""
        steps = STEPS_IN_FLIGHT_ASYNC if self.asynchronous else 1
        return Configuration(
            block_size=self.block_size,
            num_blocks=self.blocks,
            num_host_blocks=INTEGERS.ceil_div(self.max_model_len, self.block_size)
            + HOST_SPARE_BLOCKS,
            num_resident_groups=self.resident_groups,
            hot_blocks=self.hot,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=self.max_in_flight // steps,
            async_scheduling=self.asynchronous,
            watermark_blocks=self.watermark,
        )

    @property
    def copies(self) -> int:
        """GPU copies of the hit's pages: one in each resident group at most."""
        return self.resident_groups * self.prefix_pages


@dataclass(frozen=True, slots=True)
class Bound:
    """A number, the id of the theorem behind it, and what it says. ``None``: there is none."""

    value: int | bool | None
    theorem: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of the hit at one count of free blocks, all its copies being free."""

    free: int
    outcome: Outcome
    copies: int
    """Copies that survive its own pops; 0 where it is not admitted."""
    pages: int
    """Pages that it goes on reading from the GPU: those with a copy left in every group."""


@dataclass(frozen=True, slots=True)
class Bounds:
    deployment: Deployment
    numbers: Mapping[str, Bound]
    """By the name that the JSON has."""
    rows: tuple[Row, ...]
    rows_theorem: str
    findings: tuple[str, ...]
    """What is wrong with this pool; none if it suffices."""

    @property
    def verdict(self) -> str:
        return "counterexample" if self.findings else "clean"


def check_deployment(d: Deployment) -> None:
    """Raises ``CouldNotRun`` where no engine, or no such request, can be."""
    if d.prompt_tokens >= d.max_model_len:
        raise CouldNotRun(
            f"--prompt-tokens {d.prompt_tokens} leaves no output within --max-model-len "
            f"{d.max_model_len}: give at most {d.max_model_len - 1}"
        )
    if d.prefix_pages * d.block_size >= d.prompt_tokens:
        most = (d.prompt_tokens - 1) // d.block_size
        raise CouldNotRun(
            f"--prefix-pages {d.prefix_pages}: the last token of a prompt is always computed, so "
            f"one of {d.prompt_tokens} tokens hits at most {most} pages of {d.block_size}"
        )
    if d.asynchronous and d.max_in_flight % STEPS_IN_FLIGHT_ASYNC:
        raise CouldNotRun(
            f"--max-in-flight {d.max_in_flight}: with two steps in flight it is twice the token "
            "budget of a step, so it is even"
        )


def bounds_of(deployment: Deployment) -> Bounds:
    """All numbers; raises ``CouldNotRun`` as ``check_deployment``."""
    check_deployment(deployment)
    numbers = {**_pool(deployment), **_gates(deployment, "cold", 0)}
    if deployment.prefix_pages:
        numbers |= _gates(deployment, "hit", deployment.prefix_pages)
        numbers |= _crashes(deployment) | _kept(deployment)
    rows = tuple(_rows(deployment)) if deployment.prefix_pages else ()
    theorem = "pages-kept" if deployment.dialect.adopt_at != "commit" else "eager-bound"
    findings = tuple(_findings(deployment, numbers))
    return Bounds(deployment, numbers, rows, theorem, findings)


# The pool


def _pool(d: Deployment) -> dict[str, Bound]:
    c, late = d.configuration, d.dialect.hot_when_window_full
    startup, alone = minimum_blocks(c, d.dialect), least_blocks(c, d.dialect)
    exact = is_reached(c, d.dialect)
    less = "with one block less some such request stalls" if exact else "not proved to be least"
    return {
        "startup_minimum": Bound(
            startup,
            "startup-need",
            "Least pool, null block included, with room for the longest request and its hot "
            f"region: the start-up minimum{WEAKER if d.dialect.startup_full_length else ''}.",
        ),
        "least_pool_alone": Bound(
            alone,
            ALONE_FINISHES[late],
            f"Least pool on which every lone cold request finishes, whatever its chunks; {less}.",
        ),
        "pool_suffices": Bound(
            d.blocks >= max(startup, alone),
            ALONE_FINISHES[late],
            "Whether the pool is at least both.",
        ),
    }


# The gates


@dataclass(frozen=True, slots=True)
class Needs:
    """Blocks that the predictor promises at each gate, and what the step takes without copies."""

    step: int
    full: int
    taken: int


def _needs(d: Deployment, hit_pages: int) -> Needs:
    """Of the request, cold or with a hit whose blocks and copies are all free."""
    c, ceil_div = d.configuration, INTEGERS.ceil_div
    start = hit_pages * d.block_size
    chunk = min(c.max_num_batched_tokens, d.prompt_tokens - start)
    copies = d.resident_groups * hit_pages
    step, full = (
        waiting(ceil_div(tokens, d.block_size), hit_pages, hit_pages, copies)
        for tokens in (start + chunk, d.prompt_tokens)
    )
    groups, charges = d.resident_groups, d.dialect.charge_copies
    return Needs(
        step=int(gpu_need(step, groups, d.hot, None, charges)),
        full=int(gpu_need(full, groups, d.hot, c.resident_cap, charges)),
        taken=int(gpu_need(step, groups, d.hot, None, charge_copies=False)),
    )


def _gates(d: Deployment, name: str, hit_pages: int) -> dict[str, Bound]:
    needs, watermark = _needs(d, hit_pages), d.watermark
    request = f"a hit of {hit_pages} free pages" if hit_pages else "a cold request"
    beside = f", {watermark} of them as watermark" if watermark else ""
    return {
        f"{name}_step_gate": Bound(
            least_free(needs.step, 0, watermark),
            "least-free",
            f"Least free blocks{beside} at which the gate of its first step lets in {request}.",
        ),
        f"{name}_full_sequence_gate": Bound(
            least_free(0, needs.full, watermark),
            "least-free",
            f"Least free blocks{beside} at which the full-sequence gate lets in {request}.",
        ),
        f"{name}_admitted": Bound(
            _least(d, hit_pages),
            "least-free",
            f"Least free blocks{beside} at which both gates let in {request}.",
        ),
    }


def _least(d: Deployment, hit_pages: int) -> int:
    needs = _needs(d, hit_pages)
    return int(least_free(needs.step, needs.full, d.watermark))


# The copies of a hit


def pins_unpaid(dialect: Dialect) -> bool:
    """Whether copies are pinned before the pops, and not charged: the defect of ``eager``."""
    return dialect.adopt_at == "commit" and not dialect.charge_copies


def crash_window(d: Deployment) -> range:
    """Counts of free blocks at which a hit can be admitted and run out of blocks; may be empty."""
    end = crash_end(_needs(d, d.prefix_pages).taken, d.copies) if pins_unpaid(d.dialect) else 0
    return range(_least(d, d.prefix_pages), int(end))


def _crashes(d: Deployment) -> dict[str, Bound]:
    window, unpaid = crash_window(d), pins_unpaid(d.dialect)
    if unpaid:
        theorem = "crash-window-both-gates"
    else:
        theorem = "charged-sound" if d.dialect.charge_copies else "deferred-sound"
    none = "" if window else "; there is none"
    what = f"a hit of {d.prefix_pages} pages with up to {d.copies} free copies is admitted"
    return {
        "crash_from": Bound(
            window.start if window else None,
            theorem,
            f"Least free blocks at which {what} and runs out of blocks{none}.",
        ),
        "crash_to": Bound(
            window[-1] if window else None,
            theorem,
            f"Most free blocks at which {what} and runs out of blocks{none}.",
        ),
    }


def _kept(d: Deployment) -> dict[str, Bound]:
    least, taken = _least(d, d.prefix_pages), _needs(d, d.prefix_pages).taken
    if d.dialect.charge_copies:
        value, theorem = least, "charged-sound"
    elif pins_unpaid(d.dialect):
        value, theorem = max(least, int(crash_end(taken, d.copies))), "eager-bound"
    else:
        value = int(least_free_keeping_all(least, taken, d.copies, d.behind))
        theorem = "kept-all-admitted"
    sentence = f"Least free blocks at which the hit is admitted and keeps all {d.copies} copies"
    shared = "; a later allocation of the same step may take them"
    later = shared if d.dialect.adopt_at == "end_of_step" else ""
    return {"keeps_all_copies": Bound(value, theorem, f"{sentence}{later}.")}


def row_at(d: Deployment, free: int) -> Row:
    """The hit at ``free`` blocks, all its copies being among them where there is room."""
    needs = _needs(d, d.prefix_pages)
    if not all(admits(need, d.watermark, free) for need in (needs.step, needs.full)):
        return Row(free, "refused", 0, 0)
    if pins_unpaid(d.dialect):
        groups = d.resident_groups
        pinned = int(pages_kept(free, d.prefix_pages, d.prefix_pages, groups, d.behind))
        if free < needs.taken + groups * pinned:
            return Row(free, "crash", 0, 0)
        copies = kept_copies(free, needs.taken, d.copies, d.behind)
        return Row(free, "admitted", int(copies), pinned)
    if d.dialect.adopt_at == "commit":
        return Row(free, "admitted", d.copies, d.prefix_pages)
    copies = kept_copies(free, needs.taken, d.copies, d.behind)
    pages = pages_kept(free, needs.taken, d.prefix_pages, d.resident_groups, d.behind)
    return Row(free, "admitted", int(copies), int(pages))


def _rows(d: Deployment) -> Iterator[Row]:
    """From one less than the need to one more than keeps all, or as far as the pool goes.

    Every change of outcome is there, and every count at which a number begins or ends to grow.
    """
    keeps_all = int(_kept(d)["keeps_all_copies"].value or 0)
    least, none_kept = _least(d, d.prefix_pages), _needs(d, d.prefix_pages).taken + d.behind
    first, last = max(least - 1, 0), min(keeps_all + 1, d.blocks - 1)
    changes = {first, least, keeps_all - 1, keeps_all, last, none_kept, none_kept + 1}
    changes |= {none_kept + d.copies - d.prefix_pages + more for more in (0, 1)}
    stride = max(INTEGERS.ceil_div(last - first + 1, MOST_ROWS), 1)
    for free in sorted(changes | set(range(first, last + 1, stride))):
        if first <= free <= last:
            yield row_at(d, free)


# What is wrong


def _findings(d: Deployment, numbers: Mapping[str, Bound]) -> Iterator[str]:
    startup, alone = (int(numbers[k].value or 0) for k in ("startup_minimum", "least_pool_alone"))
    weaker = d.dialect.startup_full_length
    if d.blocks < startup:
        below = f"{d.blocks} blocks are below the start-up minimum {startup}"
        yield below + (WEAKER if weaker else ": the engine does not start")
    if d.blocks < alone and (d.blocks >= startup or weaker):
        stalls = "can stall" if is_reached(d.configuration, d.dialect) else "is not sure to finish"
        yield (
            f"a lone request of the longest length {stalls}: it may need a pool of {alone} blocks, "
            f"and there are {d.blocks}"
        )
    usable = d.blocks - 1
    for name in ("cold", "hit"):
        bound = numbers.get(f"{name}_admitted")
        if bound is not None and int(bound.value or 0) > usable and d.blocks >= startup:
            yield (
                f"a {name} request of {d.prompt_tokens} tokens is never admitted beside others: "
                f"it needs {bound.value} free blocks, and the pool has {usable}"
            )
    window = crash_window(d) if d.prefix_pages else range(0)
    reached = range(window.start, min(window.stop, d.blocks))
    if reached:
        yield (
            f"a hit of {d.prefix_pages} pages can kill the engine at {reached.start} to "
            f"{reached[-1]} free blocks"
        )
