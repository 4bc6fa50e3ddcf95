"""What it takes to be checked: run programs, and answer with traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Literal, Protocol, Self

from model.dialect import Dialect
from model.program import AnyProgram, Level
from model.trace import Trace

Detail = Literal["none", "digests", "all"]
"""What a trace holds beside its ending: the least that can be judged, a digest of each step, or
digests and all that the level has.

At the manager level the least are the responses, and ``all`` are the states too: digests are the
cheap way to compare, states are for judging and showing. At the scheduler level the least is the
account of what was judged where the engine runs, and responses come with the digests.
"""


class Subject(Protocol):
    """An implementation under test, at one level. One caller at a time: it is not thread-safe."""

    @property
    def name(self) -> str:
        """What ``open_subject`` opens it by."""

    @property
    def level(self) -> Level: ...

    @property
    def dialect(self) -> Dialect:
        """The dialect that it is compared with: its own, or the one that the user named."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any result has to know: that it is compared under another's row."""

    def run(self, program: AnyProgram, detail: Detail = "digests") -> Trace:
        """Run one program. Whatever the implementation does, the answer is a trace.

        Raises ``CouldNotRun`` when the implementation cannot be started at all.
        """

    def run_many(
        self, programs: Iterable[AnyProgram], detail: Detail = "digests"
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
