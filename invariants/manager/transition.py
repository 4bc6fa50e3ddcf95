"""One step of a trace as rules see it: state, action, response, state."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from invariants.manager.ghost import Ghost
from model.dialect import Dialect
from model.manager.actions import Action
from model.manager.configuration import Configuration
from model.manager.events import Allocated, Event, Refused, Response
from model.pool import NULL
from model.snapshot import RequestState, Snapshot


@dataclass(frozen=True)
class Transition:
    """What one action did. ``ghost`` knows what the blocks really contain after it."""

    configuration: Configuration
    dialect: Dialect
    before: Snapshot
    action: Action
    response: Response
    after: Snapshot
    ghost: Ghost

    @cached_property
    def allocation(self) -> Allocated | None:
        """The event that tells of the blocks, if some were allocated."""
        for event in self.response:
            if isinstance(event, Allocated):
                return event
        return None

    @cached_property
    def refusal(self) -> Refused | None:
        return next((event for event in self.response if isinstance(event, Refused)), None)

    @cached_property
    def new_gpu_blocks(self) -> tuple[int, ...]:
        """GPU blocks handed out to the request, in the order of the hand-out."""
        if self.allocation is None:
            return ()
        groups = self.allocation.blocks
        return tuple(chain.from_iterable(groups[1:] if self.configuration.hisparse else groups))

    @cached_property
    def changed(self) -> bool:
        return self.before != self.after

    def happened(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.response)


def indexer_row(request: RequestState, hisparse: bool) -> tuple[int, ...]:
    """The row of the group that keeps every page: the indexer, or full attention."""
    return request.tables[1 if hisparse else 0]


def host_row(request: RequestState, hisparse: bool) -> tuple[int, ...]:
    return request.tables[0] if hisparse else ()


def hot_rows(request: RequestState, groups: int) -> tuple[tuple[int, ...], ...]:
    return request.tables[2 + groups :]


def pages_of(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def real(blocks: tuple[int, ...]) -> list[int]:
    return [block for block in blocks if block != NULL]
