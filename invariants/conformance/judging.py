"""Judge the rules along a log: each call becomes a step as the judge knows it.

The calls that end a step come together as one. What the workers write into the blocks is known
only where the log marks its steps; without marks the rules of contents are not judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from invariants.conformance.mirror import Mirror, Played
from invariants.conformance.records import (
    Allocate,
    Cache,
    Call,
    Command,
    CommonPrefix,
    Evict,
    Free,
    FreePopped,
    Pop,
    Report,
    Reset,
    Residency,
    Scheduled,
    Step,
    Tables,
)
from invariants.manager.judge import Judge
from invariants.rules import RULES
from invariants.violation import Violation
from model.contents import Contents, Text
from model.manager import actions, events
from model.manager.events import Event

OF_CONTENTS = ("I7", "I8")
"""Rules that need to know what was written."""


@dataclass(slots=True)
class Streams:
    """The contents of each request, over the whole log: a token for each slot of a block.

    Blocks of one class hold the same tokens; all other tokens are the request's own.
    """

    block_size: int
    classes: dict[int, list[int]] = field(default_factory=dict)
    lengths: dict[int, int] = field(default_factory=dict)
    steps: int = 0
    """Steps that the log marks."""

    def learn(self, calls: Iterable[tuple[int, Call]]) -> None:
        for _, call in calls:
            self.steps += isinstance(call, Scheduled)
            view = getattr(call, "view", None)
            if view is not None:
                self.classes.setdefault(view.request, []).extend(view.contents)
                self.lengths[view.request] = view.length

    def text(self, contents: Contents, request: int, longest: int) -> Text:
        """With a page more than was known at last, for what was scheduled beyond it."""
        tokens = [
            content * self.block_size + slot
            for content in self.classes.get(request, ())
            for slot in range(self.block_size)
        ]
        end = min(self.lengths.get(request, 0) + 2 * self.block_size, longest)
        own = range(len(tokens), max(end, len(tokens)))
        tokens += [-(request * longest + position) - 1 for position in own]
        return Text(contents, request, family=0, shared=0, salt=0, known=tuple(tokens))


class CallJudge:
    """Judges the calls of one log, in order, after each was played."""

    def __init__(self, mirror: Mirror, streams: Streams) -> None:
        judged = [rule for rule in RULES if streams.steps or rule.id not in OF_CONTENTS]
        self.without_steps = () if streams.steps else OF_CONTENTS
        self._judge = Judge(mirror.configuration, mirror.dialect, judged)
        self.waived = self._judge.waived
        self._mirror = mirror
        self._streams = streams
        self._command: tuple[tuple[int, ...], ...] = ()
        self._updates: tuple[tuple[int, ...], ...] = ()
        self._shared: tuple[int, ...] = ()

    def progress(self, call: Call) -> list[Violation]:
        """The scheduler did something to the call's request: that is a step of its own."""
        view = getattr(call, "view", None)
        if view is not None:
            self._meet(view.request)
        return self._judge.judge(
            actions.Output(), (events.OutputProcessed(1),), self._mirror.snapshot()
        )

    def _meet(self, request: int) -> None:
        """A request that the log names for the first time: the ghost gets to know its tokens."""
        ghost = self._judge.ghost
        if request not in ghost.texts:
            longest = self._mirror.configuration.max_model_len
            ghost.texts[request] = self._streams.text(ghost.contents, request, longest)

    def judge(self, call: Call, played: Played) -> list[Violation]:
        """The violations of one call; none for calls that change nothing or do not end a step."""
        match call:
            case Allocate():
                action, event = self._allocation(call, played)
            case Free() if call.view.request in self._mirror.requests:
                action, event = actions.Preempt(), events.Preempted(call.view.request)
            case Free():
                action, event = actions.Finish(), events.Ended(call.view.request)
            case Pop():
                action, event = actions.Finish(), events.Deferred(call.view.request)
            case FreePopped() | Cache() | Step():
                action, event = actions.Output(), events.OutputProcessed(1)
            case Report():
                transfers = tuple(dict(call.completed))
                action, event = actions.CompleteTransfers(), events.TransfersCompleted(transfers)
            case Evict():
                action, event = actions.EvictBlocks(), events.Evicted(0, 0)
            case Reset():
                action, event = actions.Reset(), events.CacheReset(int(call.done))
            case Scheduled():
                action, event = actions.EndStep(), self._end_of_step(call)
            case _:
                self._remember(call)
                return []
        return self._judge.judge(action, (event,), self._mirror.snapshot())

    def _allocation(self, call: Allocate, played: Played) -> tuple[actions.Action, Event]:
        waiting = call.hit_blocks is not None
        action = actions.Admit(0, call.new) if waiting else actions.Extend(0, call.new)
        allocation = played.allocation
        if allocation is None:
            assert played.raised is not None
            return action, events.Raised(played.raised)
        asked = (call.view.request, call.new, allocation.promised)
        if allocation.new_blocks is None:
            if waiting:
                return action, events.AdmissionRefused(*asked, played.hit_tokens)
            return action, events.ExtensionRefused(*asked, int(played.pending))
        got = (allocation.taken, allocation.new_blocks)
        if waiting:
            return action, events.Admitted(*asked, *got, played.hit_tokens)
        return action, events.Extended(*asked, *got)

    def _end_of_step(self, call: Scheduled) -> Event:
        event = events.StepEnded(len(call.tokens), self._command, self._updates, self._shared)
        self._command = self._updates = self._shared = ()
        return event

    def _remember(self, call: Call) -> None:
        """What the calls that end a step answered."""
        if isinstance(call, Command):
            self._command = call.transfers
        elif isinstance(call, Residency | Tables):
            self._updates = call.updates
        elif isinstance(call, CommonPrefix):
            self._shared = call.shared
