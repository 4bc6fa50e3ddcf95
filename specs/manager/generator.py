"""Draw configurations and programs that put the allocator under pressure.

The generator plays against the reference: it sees what is waiting, running and free, so that
nearly every action it draws is possible, and it knows the admission arithmetic, so that it can
aim at the few counts of free blocks at which allocators break.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from model.allocation import predict
from model.dialect import Dialect
from model.manager.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    EvictBlocks,
    Extend,
    Finish,
    Output,
    Preempt,
    Reset,
)
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.program import Program
from model.reference import ReferenceAllocator
from model.residency import free_copies
from model.startup import minimum_blocks, minimum_host_blocks

ReferenceSession = Session[Any, Any]
"""A session on a ``ReferenceAllocator``."""

MAX_REQUESTS = 7
"""Requests alive at once: few, so that they share and collide."""
SPARE_BLOCKS = (0, 0, 0, 0, 1, 1, 2, 3, 5, 10)
"""Blocks above the start-up minimum that a drawn pool has."""


def draw_configuration(
    random: Random, dialect: Dialect, modes: Mapping[str, Any] | None = None
) -> Configuration:
    """A configuration that the engine would start with, at its minimum or just above.

    ``modes`` fixes fields of it.
    """
    block_size = random.choice((2, 2, 2, 4, 4, 1, 3, 8))
    pages = random.randint(3, 6) if random.random() < 0.9 else random.randint(7, 10)
    max_model_len = block_size * pages - random.choice((0, 0, 1))
    hisparse = random.random() < 0.8
    draft = Configuration(
        block_size=block_size,
        num_host_blocks=1 if hisparse else 0,
        num_resident_groups=random.choice((1, 1, 1, 1, 2, 2, 3)),
        hot_blocks=random.choice((1, 1, 2)),
        max_model_len=max_model_len,
        max_num_batched_tokens=random.choice(
            (max_model_len, max_model_len, 2 * max_model_len, 2 * block_size, block_size + 1)
        ),
        prefix_caching=random.random() < 0.85,
        async_scheduling=random.random() < 0.3,
        policy="priority" if random.random() < 0.5 else "fcfs",
        watermark_blocks=random.choice((0, 0, 0, 1, 2)),
        full_sequence_must_fit=random.random() < 0.7,
        num_workers=random.choice((1, 1, 1, 2)),
    )
    draft = replace(draft, **(modes or {}))
    return with_pools(draft, dialect, random.choice(SPARE_BLOCKS), random.choice(SPARE_BLOCKS))


def with_pools(
    draft: Configuration, dialect: Dialect, spare: int, spare_host: int
) -> Configuration:
    """The same configuration with pools of so many blocks above the start-up minimum."""
    hosts = minimum_host_blocks(draft, dialect) + spare_host if draft.hisparse else 0
    blocks = minimum_blocks(draft, dialect) + spare
    return replace(draft, num_blocks=blocks, num_host_blocks=hosts)


def draw_program(
    random: Random, dialect: Dialect, num_actions: int, modes: Mapping[str, Any] | None = None
) -> ManagerProgram:
    """Draw a configuration and ``num_actions`` actions, playing against the reference."""
    configuration = draw_configuration(random, dialect, modes)
    session: ReferenceSession = Session(configuration, ReferenceAllocator(configuration, dialect))
    actions: list[Action] = []
    while len(actions) < num_actions and not session.dead:
        action = draw_action(random, session)
        session.do(action)
        actions.append(action)
    return Program(configuration, tuple(actions))


def draw_action(random: Random, session: ReferenceSession) -> Action:
    """One action that is possible now, the more likely the more it moves."""
    enabled = session.enabled()
    options = [(maker, weigh(session)) for kind, maker, weigh in MAKERS if kind in enabled]
    makers = [maker for maker, weight in options if weight]
    weights = [weight for _, weight in options if weight]
    return random.choices(makers, weights)[0](random, session)


Maker = Callable[[Random, ReferenceSession], Action]
Weigh = Callable[[ReferenceSession], float]


def copies_at_stake(session: ReferenceSession) -> bool:
    """Whether a hit of this step waits for copies that the next allocation may take."""
    holdings = session.allocator.state.holdings  # type: ignore[attr-defined]
    return any(holding.to_adopt for holding in holdings.values())


def _arrive(random: Random, session: ReferenceSession) -> Action:
    c = session.configuration
    longest = c.max_model_len - 1
    prompt = random.choice(
        (longest, longest, random.randint(1, longest), filler_tokens(random, session))
    )
    shared = random.choice(
        (0, prompt, c.max_model_len, c.max_model_len, random.randint(0, longest))
    )
    family = random.choice((0, 0, 0, 1))
    salt = int(random.random() < 0.1)
    return Arrive(family, shared, prompt, salt)


def filler_tokens(random: Random, session: ReferenceSession) -> int:
    """A prompt that leaves the free blocks at which a waiting hit is admitted only just."""
    c = session.configuration
    state = session.allocator.state  # type: ignore[attr-defined]
    longest = c.max_model_len - 1
    if not session.waiting:
        return longest
    request = random.choice(session.waiting)
    hit, _ = session.allocator.lookup(request)
    need = predict(state, request, request.num_tokens, hit, full_sequence=True)
    window = free_copies(state, hit.host)
    surplus = len(state.gpu.free) - need - random.randint(-1, max(window, 1))
    per_page = 1 + (c.num_resident_groups if c.hisparse else 0)
    return max(1, min(longest, surplus // per_page * c.block_size))


def _tokens(random: Random, session: ReferenceSession) -> int:
    """Whole chunks mostly, sometimes one that ends at or beside a page boundary."""
    size = session.configuration.block_size
    everything = session.configuration.max_model_len
    return random.choice((everything, everything, 1, size, size + 1, 2 * size, 2 * size - 1))


def _admit(random: Random, session: ReferenceSession) -> Action:
    return Admit(random.randrange(len(session.waiting)), _tokens(random, session))


def _extend(random: Random, session: ReferenceSession) -> Action:
    return Extend(random.randrange(len(session.running)), _tokens(random, session))


def _preempt(random: Random, session: ReferenceSession) -> Action:
    """Rather a victim that is already scheduled in this step, where the policy allows it."""
    victims = [n for n, r in enumerate(session.running) if r.id in session.scheduled]
    if victims and random.random() < 0.7:
        return Preempt(random.choice(victims))
    return Preempt(random.randrange(len(session.running)))


def _end_step(random: Random, session: ReferenceSession) -> Action:
    return EndStep()


def _output(random: Random, session: ReferenceSession) -> Action:
    return Output()


def _complete(random: Random, session: ReferenceSession) -> Action:
    worker = random.randrange(session.configuration.num_workers)
    return CompleteTransfers(worker, random.choice((1, 2, 99, 99)))


def _finish(random: Random, session: ReferenceSession) -> Action:
    return Finish(random.randrange(len(session.requests)), random.random() < 0.3)


def _reset(random: Random, session: ReferenceSession) -> Action:
    return Reset(random.random() < 0.3)


def _evict(random: Random, session: ReferenceSession) -> Action:
    return EvictBlocks(random.randrange(len(session.running)), random.randrange(4))


def _weigh_arrival(session: ReferenceSession) -> float:
    if len(session.requests) >= MAX_REQUESTS:
        return 0.0
    return 0.5 if session.waiting else 3.0


MAKERS: tuple[tuple[type[Action], Maker, Weigh], ...] = (
    (EndStep, _end_step, lambda session: 4.0 if session.scheduled else 0.3),
    (Arrive, _arrive, _weigh_arrival),
    (Admit, _admit, lambda session: 12.0 if copies_at_stake(session) else 4.0),
    (Extend, _extend, lambda _: 4.0),
    (Preempt, _preempt, lambda _: 8.0),
    (Output, _output, lambda _: 2.0),
    (CompleteTransfers, _complete, lambda _: 4.0),
    (Finish, _finish, lambda _: 0.5),
    (Reset, _reset, lambda session: 0.05 if session.requests else 0.0),
    (EvictBlocks, _evict, lambda _: 0.05),
)
"""Of each kind, how one is drawn and how likely it is."""
