"""What a session asks of an allocator: the reference model and every engine answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from model.request import Request
from model.snapshot import Snapshot

HitT = TypeVar("HitT")
BlocksT = TypeVar("BlocksT")

Rows = tuple[tuple[int, ...], ...]
"""Block ids, one tuple per group."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The outcome of one allocation."""

    promised: tuple[int, ...]
    """Blocks that the predictor answered, at each gate that was passed or refused."""
    taken: int
    """GPU blocks popped for the request, plus free blocks of its hit; 0 if refused."""
    new_blocks: Rows | None
    """New blocks of each group, or None if refused."""


class AllocationFailedError(Exception):
    """The allocator raised in the middle of an operation: an engine would be dead."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Allocator(Protocol[HitT, BlocksT]):
    """The manager-level calls of an engine, in the order in which its scheduler makes them."""

    def register(self, request: Request) -> None:
        """A request arrived: fill in its ``contents``."""

    def append(self, request: Request, token: int) -> None:
        """A token was sampled for the request."""

    def lookup(self, request: Request) -> tuple[HitT, int]:
        """Find the longest cached prefix, and its length in tokens. Changes nothing."""

    def allocate(
        self,
        request: Request,
        new_tokens: int,
        hit: HitT | None,
        hit_tokens: int,
        beside_running: bool,
    ) -> Allocation:
        """Allocate slots for ``new_tokens`` more tokens.

        ``hit`` comes with a waiting request, ``beside_running`` says that others run. Raises
        AllocationFailedError.
        """

    def cache(self, request: Request, tokens: int) -> None:
        """The first ``tokens`` tokens are final: an asynchronous output arrived."""

    def free(self, request: Request) -> None:
        """Release all blocks of a request."""

    def pop(self, request: Request) -> BlocksT | None:
        """Release a request's bookkeeping now; its blocks go to ``free_popped`` later."""

    def free_popped(self, blocks: BlocksT) -> None: ...

    def end_step(self, scheduled: Sequence[tuple[Request, int]]) -> None:
        """The step is built: (request, tokens computed after it) of each scheduled request."""

    def take_command(self) -> Rows:
        """(transfer, request, host block, source block of each resident group …), per transfer."""

    def take_updates(self, scheduled: Sequence[Request]) -> Rows:
        """What the workers are told of block tables or residency, in a canonical form."""

    def update_transfers(self, enqueued: Mapping[int, int], completed: Mapping[int, int]) -> None:
        """Workers report: transfer → number of workers that took it on, that completed it."""

    def pending_reclamation(self) -> bool:
        """Whether a transfer under way will give blocks back."""

    def common_prefix(self, request: Request) -> tuple[int, ...]:
        """Leading blocks of the request that all requests share, by group."""

    def evict(self, request: Request, page: int) -> None:
        """Make the indexer or full-attention block of a page unfindable."""

    def reset(self) -> bool:
        """Reset the prefix cache; True if every pool did."""

    def hold(self, free_blocks: int) -> None:
        """Take blocks from the head of the free queue until ``free_blocks`` are left."""

    def snapshot(
        self, requests: Sequence[Request], scheduled: Mapping[int, int], deferred: Sequence[BlocksT]
    ) -> Snapshot: ...
