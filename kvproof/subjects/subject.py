"""What it takes to be checked: run programs, and answer with traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Literal, Protocol, Self

from model.dialect import Dialect
from model.manager.program import ManagerProgram
from model.trace import Trace

Level = Literal["manager", "scheduler"]
"""What is driven: the KV-cache manager, in a legal order of calls, or the whole scheduler."""

Snapshots = Literal["none", "digests", "all"]
"""What a trace holds beside the responses: nothing, a digest of each state, or digests and the
states themselves. Digests are the cheap way to compare; states are for judging and showing."""


class Subject(Protocol):
    """An implementation under test. One caller at a time: a subject is not thread-safe."""

    @property
    def name(self) -> str:
        """What ``open_subject`` opens it by."""

    @property
    def dialect(self) -> Dialect | None:
        """The dialect that it is compared with unless the user names another."""

    def run(self, program: ManagerProgram, snapshots: Snapshots = "digests") -> Trace:
        """Run one program. Whatever the implementation does, the answer is a trace.

        Raises ``CouldNotRun`` when the implementation cannot be started at all.
        """

    def run_many(
        self, programs: Iterable[ManagerProgram], snapshots: Snapshots = "digests"
    ) -> Iterator[Trace]:
        """Run programs in order, one trace each; a few are run ahead of the caller.

        ``programs`` may be drawn lazily: no more than the few that run ahead are taken from it.
        """

    def close(self) -> None:
        """Leave nothing running. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
