"""Every rule has a twin that must fail: a reference with one fault, which exactly that rule sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest

from invariants.judge import Judge
from invariants.peak import peak_blocks
from invariants.rules import RULE_BY_ID, RULES
from invariants.verdict import Breach
from model import allocation, publication, residency
from model import reference as reference_module
from model.actions import (
    Action,
    Admit,
    Arrive,
    CompleteTransfers,
    EndStep,
    Extend,
    Finish,
    Preempt,
    Reset,
)
from model.allocator import Allocation, AllocationFailedError
from model.configuration import Configuration
from model.dialect import DIALECTS, Dialect
from model.holding import Hit, Holding
from model.pool import NULL, Key, Pool
from model.program import Program
from model.reference import ReferenceAllocator
from model.request import Request
from model.session import Session
from model.snapshot import Snapshot
from model.state import State
from specs.generator import draw_program

DIALECT = DIALECTS["vllm-0.31.0"]
"""The release whose dialect breaks no rule by design and works inside the allocation, so that
what a fault does shows at once."""
PROGRAMS = 40
ACTIONS = 60


@dataclass(frozen=True)
class Fault:
    """One thing done wrong, and the rule that must see it."""

    name: str
    rule: str
    where: object
    """Module or class whose function is replaced."""
    function: str
    faulty: Callable[..., Any]
    alone: bool = True
    """Whether that rule is the first to see it in every program that shows it at all."""


# What is done wrong. Each takes what the function takes that it stands for.

TAKE, TOUCH, UNPIN, RELEASE = Pool.take, Pool.touch, Pool.unpin, Pool.release
PREDICT, ALLOCATE, COMMIT_HIT = allocation.predict, allocation.allocate, allocation.commit_hit


def forgets_the_queue(self: Pool, blocks: Sequence[int]) -> None:
    """A freed block without a key is put nowhere."""
    before = set(self.free)
    RELEASE(self, blocks)
    self.free = [block for block in self.free if block in before or block in self.keys]


def queues_twice(self: Pool, block: int) -> None:
    UNPIN(self, block)
    if self.counts[block] == 0:
        self.free.append(block)


def counts_twice(self: Pool, blocks: Sequence[int]) -> None:
    """A block that others hold too gets two references."""
    TOUCH(self, blocks)
    for block in blocks:
        self.counts[block] += block != NULL and self.counts[block] > 1


def counts_no_second_holder(self: Pool, blocks: Sequence[int]) -> None:
    TOUCH(self, [block for block in blocks if block == NULL or self.counts[block] == 0])


def keeps_the_copy(state: State, block: int) -> None:
    """A block is handed out and stays recorded as a copy."""
    for request_id, holding in state.holdings.items():
        for page in sorted(holding.unpinned):
            if any(page < len(row) and row[page] == block for row in holding.resident):
                reference_state.lose_page(state, request_id, page)


def promises_less(*arguments: Any) -> int:
    return max(PREDICT(*arguments) - 1, 0)


def asks_for_more(*arguments: Any) -> int:
    return PREDICT(*arguments) + 1


def keeps_the_hit(
    state: State, request: Request, new_tokens: int, hit: Hit | None, beside_running: bool
) -> Allocation:
    """A refusal comes after the hit's blocks were touched."""
    outcome = ALLOCATE(state, request, new_tokens, hit, beside_running)
    if outcome.new_blocks is None and hit is not None and hit.indexer:
        state.gpu.touch(hit.indexer[-1:])
    return outcome


def asks_for_no_hot_region(state: State, request: Request, hit: Hit) -> None:
    COMMIT_HIT(state, request, hit)
    state.holdings[request.id].wants_hot = False


def publishes_at_once(state: State, request: Request) -> None:
    """Host pages can be found when their writes are planned, not when they are done."""
    holding = state.holdings[request.id]
    if holding.publication is not None:
        pages = min(holding.publication, len(holding.host))
        publication.publish_host_pages(state, request.contents, holding, holding.host, pages)
        holding.publication = None


def publishes_nothing(state: State, request: Request) -> None:
    """Complete pages are never made findable."""


def unpins_too_early(state: State, holding: Holding, page: int) -> None:
    """A page is called clean, and unpinned, when its host write starts."""


def watches_nothing(self: Pool, block: int) -> None:
    UNPIN(self, block)
    self.watched.discard(block)


def evicts_half(self: Pool, block: int) -> None:
    """The block forgets its key; the hash map keeps the block."""
    self.keys.pop(block, None)


def keeps_keys(self: Pool, count: int) -> list[int]:
    """A block that is handed out can still be found by its old key."""
    kept = {block: self.keys[block] for block in self.free[:count] if block in self.keys}
    taken = TAKE(self, count)
    for block, key in kept.items():
        self.insert(key, block)
    return taken


def takes_from_the_tail(self: Pool, count: int) -> list[int]:
    self.free = self.free[len(self.free) - count :] + self.free[: len(self.free) - count]
    return TAKE(self, count)


def queues_in_front(self: Pool, blocks: Sequence[int]) -> None:
    """Freed blocks go to the head of the queue even if they can still be found."""
    before = list(self.free)
    RELEASE(self, blocks)
    self.free = [block for block in self.free if block not in before] + before


def unpins_head_first(state: State, holding: Holding) -> None:
    for page in sorted(holding.pinned_clean):
        residency.unpin_page(state, holding, page)


def leaks_the_last(self: Pool, blocks: Sequence[int]) -> None:
    """The tail of a row is never given back."""
    RELEASE(self, blocks[1:] if len(blocks) > 1 else blocks)


def remembers_transfers(self: ReferenceAllocator) -> tuple[tuple[int, ...], ...]:
    """A command leaves its transfers in the list of those still to be sent."""
    unsent = list(self.state.unsent)
    rows = TAKE_COMMAND(self)
    self.state.unsent = unsent[-1:]
    return rows


TAKE_COMMAND = ReferenceAllocator.take_command


def frees_the_null_block(self: Pool, blocks: Sequence[int]) -> None:
    RELEASE(self, blocks)
    if NULL in blocks and NULL not in self.free:
        self.free.append(NULL)


def goes_without_host_blocks(state: State, holding: Holding, pages: int) -> list[int]:
    """A page beyond the first gets a null entry instead of a host block."""
    missing = max(pages - len(holding.host), 0)
    new = state.host.take(min(missing, 1))
    holding.host.extend(new + [NULL] * (missing - len(new)))
    return new


def raises(self: ReferenceAllocator) -> bool:
    raise AllocationFailedError("ValueError", "the pool cannot be reset")
