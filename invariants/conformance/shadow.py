"""Shadow lockstep: the model beside a running scheduler, call by call and step by step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from invariants.conformance.mirror import DifferenceError, Mirror
from invariants.conformance.reading import CallLogError, trusted_call
from invariants.conformance.records import Call, Scheduled
from invariants.conformance.scope import BeyondModelError
from invariants.conformance.wording import wording
from model.dialect import Dialect
from model.manager.configuration import Configuration
from model.request import Request
from model.snapshot import Snapshot

Capture = Callable[[Sequence[Request], Mapping[int, int], Sequence[int]], Snapshot]
"""The engine's own state, for these requests, scheduled tokens and deferred releases by number."""

Agrees = Callable[[Mirror], bool]
"""Whether the engine's state is the mirror's: a faster way than two snapshots to find out."""
AUDIT = 64
"""Every so many steps snapshots are compared all the same."""


class Shadow:
    """Mirrors the calls of one engine while it runs; never raises into it.

    It stops at the first ``difference``, which is a counterexample, or where the model ends:
    then ``ended_at`` says why. ``calls`` and ``states`` count what was compared before.
    """

    def __init__(
        self,
        configuration: Configuration,
        dialect: Dialect,
        capture: Capture,
        agrees: Agrees | None = None,
    ) -> None:
        self.mirror = Mirror(configuration, dialect)
        self.calls = 0
        self.states = 0
        """Whole states compared, one at the end of each step."""
        self.difference: tuple[str, ...] | None = None
        """The call, and what the model and the engine answered; or what differs in the state."""
        self.ended_at: str | None = None
        self.ended_because: str | None = None
        """The reason alone, the same for all calls of its kind."""
        self._capture = capture
        self._agrees = agrees

    @property
    def follows(self) -> bool:
        return self.difference is None and self.ended_at is None

    def feed(self, record: dict[str, Any]) -> None:
        """Take one record of a call that the engine just answered; the record is used up."""
        if not self.follows:
            return
        call = trusted_call(record)
        try:
            played = self.mirror.play(call)
        except DifferenceError as error:
            self.difference = (wording(call), str(error))
            return
        except (BeyondModelError, CallLogError) as error:
            self._end(f"call {self.calls + 1}, {wording(call)}", str(error))
            return
        self.calls += 1
        if played.raised is not None:
            self._end(f"call {self.calls}", f"the allocator raised {played.raised}")
        if isinstance(call, Scheduled):
            self.compare_states(call)

    def _end(self, where: str, why: str) -> None:
        self.ended_at, self.ended_because = f"{where}: {why}", why

    def compare_states(self, call: Call) -> None:
        """Compare the whole state after a call."""
        self.states += 1
        agreed = self._agrees is not None and self._agrees(self.mirror)
        if agreed and self.states % AUDIT:
            return
        mirror = self.mirror
        requests = list(mirror.requests.values())
        engine = self._capture(requests, mirror.scheduled, tuple(mirror.deferred))
        model = mirror.snapshot()
        if engine != model:
            self.difference = (f"the state after {wording(call)}", *differences(model, engine))
        elif self._agrees is not None and not agreed:
            self.difference = (f"the state after {wording(call)}", "only snapshots are equal")


def differences(model: Snapshot, engine: Snapshot) -> Iterator[str]:
    """What differs between two states, a line each."""
    for name, ours, theirs in zip(model._fields, model, engine, strict=True):
        yield from _differences(name, ours, theirs)


def _differences(name: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Down to the field of a pool, a request or a transfer."""
    if ours == theirs:
        return
    fields = getattr(ours, "_fields", None)
    records = isinstance(ours, tuple) and any(hasattr(part, "_fields") for part in ours)
    if fields is not None and theirs is not None:
        for field, our, their in zip(fields, ours, theirs, strict=True):
            yield from _differences(f"{name}.{field}", our, their)
    elif records and len(ours) == len(theirs):
        for our, their in zip(ours, theirs, strict=True):
            yield from _differences(f"{name} {our.id}", our, their)
    else:
        yield f"{name}: the model has {ours}, the engine {theirs}"
