"""Alone and admitted: on which pools does a request finish? (Rule I16, defect K5.)

Where the dialect says so, a running request asks for its hot region only once it holds as many
resident pages as admission reserved, and gives no page back before it has the region. Its next
chunk then needs the region and its own pages at once, beside all pages so far; the start-up check
does not ask for that. Here are the exact arithmetic of one lone request, step by step, and the
simulation that it is checked against; ``model.bounds`` has the least pool on which every lone
request finishes.
"""

from dataclasses import replace
from typing import Any

from model.admission import INTEGERS, Demand, admits, gpu_need
from model.bounds import least_blocks
from model.dialect import Dialect
from model.holding import ACTIVE_TAIL_PAGES
from model.manager.actions import Action, Admit, Arrive, CompleteTransfers, EndStep, Extend
from model.manager.configuration import Configuration
from model.manager.events import ExtensionRefused, Refused
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Program
from model.reference import ReferenceAllocator
from model.startup import minimum_blocks

EVERYTHING = 1_000_000
Steps = tuple[int, ...]
"""Tokens of a request that are computed after each of its steps."""


# The ways of cutting a request into steps


def whole_budget_steps(configuration: Configuration, prompt: int) -> Steps:
    """Chunks of the whole budget while the prompt lasts, then token by token."""
    c = configuration
    budget, last = c.max_num_batched_tokens, c.max_model_len - 1
    chunks = [*range(budget, prompt, budget), prompt]
    return (*chunks, *range(prompt + 1, last + 1))


def steps_through(configuration: Configuration, *ends: int) -> Steps:
    """Whole chunks of the longest prompt, but for steps that end exactly at these tokens."""
    c, steps, done = configuration, list[int](), 0
    last = c.max_model_len - 1
    for end in (*sorted({end for end in ends if 0 < end < last}), last):
        while done < end:
            done = min(done + c.max_num_batched_tokens, end)
            steps.append(done)
    return tuple(steps)


def hardest_steps(configuration: Configuration) -> tuple[Steps, ...]:
    """The ways that reach the terms of ``least_pool``."""
    c = configuration
    budget, last, size = c.max_num_batched_tokens, c.max_model_len - 1, c.block_size
    unfilled = (c.resident_cap - 1) * size
    filled = min(unfilled + budget, last - 1)
    pages = INTEGERS.ceil_div(last, size)
    full_chunk = min(last, (pages - 1) * size + (budget - 1) % size + 1)
    return (
        steps_through(c, unfilled, filled, filled + budget),
        steps_through(c, full_chunk - budget - 1, full_chunk - budget, full_chunk),
        steps_through(c, last - 1),
        steps_through(c),
    )


# One lone request, step by step


def finishes(
    configuration: Configuration, dialect: Dialect, steps: Steps, prompt: int | None = None
) -> bool:
    """Whether a lone cold request is never refused with nothing to wait for: the arithmetic.

    All pages stay pinned until the request has its hot region, from then on the last two.
    """
    c, groups = configuration, configuration.num_resident_groups
    all_free = c.num_blocks - 1
    prompt = steps[-1] if prompt is None else prompt
    whole = _lone_demand(c, 0, prompt, held_hot=0, wants=False)
    gate = gpu_need(whole, groups, c.hot_blocks, c.resident_cap, charge_copies=False)
    if c.full_sequence_must_fit and not admits(gate, 0, all_free):
        return False
    low_pool = max(groups * c.hot_blocks, c.num_blocks // 10)
    done = row = pinned = hot = 0
    wants = False
    for tokens in steps:
        free = all_free - row - groups * (pinned + hot)
        demand = _lone_demand(c, done, tokens, hot, wants)
        need = gpu_need(demand, groups, c.hot_blocks, None, charge_copies=False)
        if not admits(need, 0, free):
            return False
        done, row = tokens, int(demand.pages)
        hot = c.hot_blocks if wants else 0
        pinned = min(row, ACTIVE_TAIL_PAGES) if hot else row
        full = dialect.hot_when_window_full and row >= c.resident_cap
        wants = wants or full or free - need < low_pool
    return True


def _lone_demand(c: Configuration, done: int, tokens: int, held_hot: int, wants: bool) -> Demand:
    row = INTEGERS.ceil_div(done, c.block_size)
    return Demand(
        pages=INTEGERS.ceil_div(tokens, c.block_size),
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


def simulate(
    configuration: Configuration,
    dialect: Dialect,
    steps: Steps,
    prompt: int | None = None,
    writes_late: bool = False,
) -> bool:
    """The same, on the running model. Writes complete at once, or only when it waits for them."""
    session = Session(configuration, ReferenceAllocator(configuration, dialect))
    session.do(Arrive(0, 0, steps[-1] if prompt is None else prompt))
    done = 0
    for tokens in steps:
        action = Extend(0, tokens - done) if done else Admit(0, tokens)
        event = session.do(action)[-1]
        if isinstance(event, ExtensionRefused) and event.pending:
            for _ in range(configuration.steps_in_flight):
                _let_writes_complete(session)
            event = session.do(action)[-1]
        if isinstance(event, Refused):
            return False
        session.do(EndStep())
        if not writes_late:
            _complete_all(session)
        done = tokens
    return True


def _let_writes_complete(session: Session[Any, Any]) -> None:
    session.do(EndStep())
    _complete_all(session)


def _complete_all(session: Session[Any, Any]) -> None:
    for worker in range(session.configuration.num_workers):
        session.do(CompleteTransfers(worker, EVERYTHING))


def lone_program(configuration: Configuration, steps: Steps) -> ManagerProgram:
    """The same for any subject: one step in flight, writes complete at once, and any refusal is a
    stall."""
    actions: list[Action] = [Arrive(0, 0, steps[-1])]
    for done, tokens in zip((0, *steps), steps, strict=False):
        actions += [Extend(0, tokens - done) if done else Admit(0, tokens), EndStep()]
        actions += [
            CompleteTransfers(worker, EVERYTHING) for worker in range(configuration.num_workers)
        ]
    return Program(configuration, tuple(actions))


def blocks_missing(configuration: Configuration, dialect: Dialect) -> int:
    """How many blocks the start-up check may ask too few: 0 means that no lone request stalls."""
    return max(least_blocks(configuration, dialect) - minimum_blocks(configuration, dialect), 0)


def least_blocks_for(configuration: Configuration, dialect: Dialect, steps: Steps) -> int:
    """Least ``num_blocks`` from which on the request finishes in just these steps."""
    blocks = least_blocks(configuration, dialect)
    while blocks > 1 and finishes(replace(configuration, num_blocks=blocks - 1), dialect, steps):
        blocks -= 1
    return blocks
