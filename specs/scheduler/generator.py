"""Draw setups and programs of whole engine steps that put a scheduler under pressure.

No engine is asked: a program is drawn blind, from a seed. What makes it bite is the setup, small
pools and few prefixes, and that each program favours some kinds of actions over others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

from model.groups import Cache
from model.program import Program
from model.scheduler.actions import (
    Abort,
    Action,
    Arrive,
    CompleteLoad,
    CompleteTransfers,
    Output,
    Reset,
    Step,
)
from model.scheduler.legal import problem_of_setup
from model.scheduler.minimum import minimum_pools
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup

NUM_ACTIONS = 40
SPARE_BLOCKS = (0, 0, 0, 0, 1, 1, 2, 3, 4, 6)
"""Blocks above the start-up minimum that a drawn pool has."""
CACHES_DRAWN: tuple[Cache, ...] = (
    "full",
    "full",
    "sliding",
    "mamba",
    "hisparse",
    "hisparse",
    "hisparse",
)
PAGES = (3, 4, 5, 6, 8, 10, 12)
"""Pages of the longest request."""
CACHES: tuple[Cache, ...] = (
    "full", "full", "sliding", "mamba", "hisparse", "hisparse", "hisparse",
)  # fmt: skip
HIGHEST_PRIORITY = 4
EVERYTHING = 99
"""More than can be there."""


def draw_program(
    random: Random, num_actions: int = NUM_ACTIONS, modes: Mapping[str, Any] | None = None
) -> SchedulerProgram:
    """A setup and ``num_actions`` actions. ``modes`` fixes fields of the setup; ``ValueError``
    when no engine would start with them."""
    setup = draw_setup(random, modes)
    return Program(setup, draw_actions(random, setup, num_actions))


# Setups


def draw_setup(random: Random, modes: Mapping[str, Any] | None = None) -> SchedulerSetup:
    """A setup that every release would start with, at its minimum or just above."""
    fixed = dict(modes or {})
    unknown = fixed.keys() - {field.name for field in fields(SchedulerSetup)}
    if unknown:
        raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
    setup = _fitted(replace(_draft(random), **fixed), fixed)
    least, spare = minimum_pools(setup), (random.choice(SPARE_BLOCKS), random.choice(SPARE_BLOCKS))
    pools = {
        "num_blocks": least.gpu_blocks + spare[0],
        "num_host_blocks": least.host_blocks + spare[1] if setup.hisparse else 0,
        "watermark_blocks": min(setup.watermark_blocks, least.gpu_blocks - 1),
    }
    setup = replace(setup, **(pools | fixed))
    problem = problem_of_setup(setup)
    if problem is not None:
        raise ValueError(problem)
    return setup


def _draft(random: Random) -> SchedulerSetup:
    """A setup without pools, whose fields may not fit together."""
    size = random.choice((1, 2, 2, 2, 4, 4, 3))
    longest = max(size * random.choice(PAGES) - random.choice((0, 0, 1)), 3)
    budget, threshold, seqs = _draft_chunks(random, size, longest)
    return SchedulerSetup(
        cache=random.choice(CACHES_DRAWN),
        block_size=size,
        num_blocks=0,
        max_model_len=longest,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        sliding_window=random.randint(1, 2 * size + 1),
        num_resident_groups=random.choice((1, 1, 2, 2, 3)),
        hot_blocks=random.choice((1, 1, 2)),
        prefix_caching=random.random() < 0.9,
        async_scheduling=random.random() < 0.5,
        policy=random.choice(("fcfs", "priority")),
        long_prefill_threshold=threshold,
        watermark_blocks=random.choice((0, 0, 0, 1, 2)),
        reserve_full_isl=random.random() < 0.6,
        external_store=random.random() < 0.5,
        load_failure=random.choice(("recompute", "recompute", "fail")),
    )


def _draft_chunks(random: Random, size: int, longest: int) -> tuple[int, int, int]:
    """(token budget of a step, threshold of long prompts, requests in a step).

    Half of the time such that the prompts of two requests are computed side by side: then a later
    one can take what an earlier one needs for its next chunk.
    """
    threshold = random.choice((0, 0, size, size + 1, 2 * size, 2 * size + 1))
    if random.random() < 0.5:
        threshold = random.choice((size, size + 1, 2 * size, 2 * size + 1, 3 * size, 4 * size))
        budget = random.choice((2 * threshold, 2 * threshold + 1, 3 * threshold))
        return budget, threshold, random.choice((2, 3, 4))
    budget = random.choice((longest, longest, 2 * longest, 2 * size, size + 1, 3 * size))
    return budget, threshold, random.choice((1, 2, 3, 4))


def _fitted(setup: SchedulerSetup, fixed: Mapping[str, Any]) -> SchedulerSetup:
    """The same setup with the fields that are not fixed made to fit the others."""
    size, longest = setup.block_size, setup.max_model_len
    least_budget = max(setup.max_num_seqs, size if setup.cache == "mamba" else 1)
    fitting: dict[str, Any] = {
        "max_num_batched_tokens": max(setup.max_num_batched_tokens, least_budget),
        "long_prefill_threshold": min(setup.long_prefill_threshold, longest),
        "load_failure": setup.load_failure if setup.external_store else "fail",
    }
    if setup.cache != "sliding":
        fitting |= {"sliding_window": 0}
    if setup.cache == "mamba":
        fitting |= {"prefix_caching": True}
    if setup.hisparse:
        fitting |= {"reserve_full_isl": True}
    else:
        fitting |= {"num_resident_groups": 1, "hot_blocks": 1}
    return replace(setup, **{k: value for k, value in fitting.items() if k not in fixed})


# Actions


@dataclass(frozen=True, slots=True)
class Taste:
    """What a program is fond of, so that programs differ."""

    weights: tuple[float, ...]
    """Of each maker, in their order."""
    families: int
    crowds: tuple[int, ...]
    """How many prompts fit into the longest request: one of these, for each arrival."""
    loses: float
    """Share of the stored prefixes of which some is lost."""


Maker = Callable[[Random, SchedulerSetup, Taste], tuple[Action, ...]]


def draw_actions(random: Random, setup: SchedulerSetup, num_actions: int) -> tuple[Action, ...]:
    """Actions for this setup: an arrival first, for without requests all others are idle."""
    taste = draw_taste(random, setup)
    actions = [*arrive(random, setup, taste)]
    while len(actions) < num_actions:
        actions += draw_some(random, setup, taste)
    return tuple(actions[:num_actions])


def draw_some(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    """One action, or a few that belong together."""
    makers = [maker for maker, _ in MAKERS]
    return random.choices(makers, taste.weights)[0](random, setup, taste)


def draw_taste(random: Random, setup: SchedulerSetup) -> Taste:
    possible: dict[Maker, bool] = {
        _complete_transfers: setup.hisparse,
        _complete_load: setup.external_store,
        _load_beside: setup.external_store,
    }
    return Taste(
        tuple(
            weight * random.choice((0.3, 1, 1, 1, 2)) * possible.get(maker, True)
            for maker, weight in MAKERS
        ),
        families=random.choice((1, 2, 3)),
        crowds=random.choice(((1,), (1, 1, 2), (1, 2), (1, 2, 3))),
        loses=random.choice((0.0, 0.3, 0.6)),
    )


def arrive(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    """A request comes."""
    return (_arrival(random, setup, taste, random.randint(0, HIGHEST_PRIORITY)),)


def _two(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    """A long request, and while it is being computed another one, which goes first where it may."""
    priority = random.randint(1, HIGHEST_PRIORITY)
    first = _arrival(random, setup, taste, priority)
    first = replace(first, prompt=max(first.prompt, (setup.max_model_len - 1) * 3 // 4))
    if random.random() < 0.5:
        first = replace(first, stored=0, asynchronous=False, delays=0, lost=0)
    return (first, Step(), _arrival(random, setup, taste, priority - 1), Step())


def _load_beside(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    """A request, and while it is being computed one whose prompt the store loads."""
    first = _arrival(random, setup, taste, random.randint(0, HIGHEST_PRIORITY))
    first = replace(first, stored=0, asynchronous=False, delays=0, lost=0)
    prompt = random.randint(1, max(setup.max_model_len // 3, 1))
    second = replace(first, prompt=prompt, stored=prompt, asynchronous=True, output=1)
    return (first, Step(), replace(second, family=random.randrange(taste.families)), Step())


def _arrival(random: Random, setup: SchedulerSetup, taste: Taste, priority: int) -> Arrive:
    longest = setup.max_model_len
    prompt = _prompt(random, setup, taste)
    stored = lost = 0
    if setup.external_store:
        stored = random.choice((0, prompt, prompt, random.randint(0, prompt)))
    if stored and random.random() < taste.loses:
        lost = random.choice((1, 1, 2, EVERYTHING))
    return Arrive(
        family=random.randrange(taste.families),
        shared=random.choice((longest, longest, longest, random.randint(0, longest), 0)),
        prompt=prompt,
        output=random.choice((1, 1, 1, 2, 3, random.randint(1, longest))),
        salt=int(random.random() < 0.06),
        priority=priority if setup.policy == "priority" else 0,
        stored=stored,
        asynchronous=stored > 0 and (setup.hisparse or random.random() < 0.6),
        delays=random.choice((0, 0, 0, 0, 1, 2)) if stored else 0,
        lost=lost,
    )


def _prompt(random: Random, setup: SchedulerSetup, taste: Taste) -> int:
    """Long ones, any, and those that end at a page boundary or just beside it."""
    longest = max((setup.max_model_len - 1) // random.choice(taste.crowds), 1)
    boundary = setup.block_size * random.randint(1, max(longest // setup.block_size, 1))
    beside = boundary + random.choice((-1, 0, 1))
    drawn = random.choice((longest, longest, random.randint(1, longest), beside))
    return max(1, min(drawn, longest))


def _step(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    return (Step(),)


def _output(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    return (Output(),)


def _complete_transfers(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    return (CompleteTransfers(random.choice((1, 1, 2, EVERYTHING))),)


def _complete_load(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    return (CompleteLoad(random.choice((0, 0, 1, 2))),)


def _abort(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    return (Abort(random.randrange(4)),)


def _reset(random: Random, setup: SchedulerSetup, taste: Taste) -> tuple[Action, ...]:
    """Often when no step is in flight: only then may it preempt what runs."""
    if random.random() < 0.5:
        return (Output(), Output(), Reset(preempt_running=True))
    return (Reset(random.random() < 0.5),)


MAKERS: tuple[tuple[Maker, float], ...] = (
    (arrive, 1.2),
    (_two, 2.0),
    (_load_beside, 2.0),
    (_step, 6.0),
    (_output, 2.5),
    (_complete_transfers, 2.0),
    (_complete_load, 1.5),
    (_abort, 0.6),
    (_reset, 0.15),
)
