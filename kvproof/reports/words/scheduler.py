"""The words of the scheduler level: what was called, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from rich.text import Text

from kvproof.reports.words.finding import Words, how_it_ended
from kvproof.reports.words.numbers import counted
from kvproof.search.outcome import Outcome
from model.program import call_of
from model.scheduler.actions import Action, Arrive
from model.scheduler.events import (
    IDLE,
    Arrived,
    CacheReset,
    Ended,
    Event,
    Idle,
    LoadEnded,
    OutputProcessed,
    Response,
    StepScheduled,
    TransfersCompleted,
)
from model.scheduler.setup import SchedulerSetup
from model.trace import Trace

ALWAYS_TOLD = (
    "cache", "block_size", "num_blocks", "max_model_len", "max_num_batched_tokens", "max_num_seqs",
)  # fmt: skip
ONLY_FOR = {
    "num_host_blocks": "hisparse",
    "num_resident_groups": "hisparse",
    "hot_blocks": "hisparse",
    "sliding_window": "sliding",
}
"""Settings that mean something to one kind of cache only."""
MOST_SHOWN = 24
"""Lines of what was done after the last action."""

# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the scheduler's words, with their results."""
    if response == IDLE:
        return f"{call_of(action)}: not possible now"
    told = [describe_event(event) for event in response]
    if isinstance(action, Arrive):
        told[0] += _terms(action)
    return "; ".join(told)


def describe_event(event: Event) -> str:  # noqa: PLR0911
    match event:
        case Idle():
            return "nothing happens"
        case Arrived():
            return _describe_arrival(event)
        case StepScheduled():
            return _describe_step(event)
        case OutputProcessed():
            return f"update from the output of step {event.step}"
        case Ended():
            return f"request {event.request} ended: {event.why}"
        case LoadEnded():
            failed = "" if event.lost is None else f", and failed from token {event.lost} on"
            return f"the load of request {event.request} is done{failed}"
        case TransfersCompleted():
            return f"host transfers complete: {_listed(event.transfers)}"
        case CacheReset():
            preempting = ", preempting all that runs" if event.running else ""
            return f"reset the prefix cache{preempting} → {'done' if event.done else 'refused'}"


def _describe_arrival(event: Arrived) -> str:
    prompt = counted(event.prompt, "prompt token")
    head = f"add request {event.request}: {prompt}, {event.output} to generate"
    return f"{head}, the first {event.stored} in the store" if event.stored else head


def _terms(action: Arrive) -> str:
    """What else belongs to an arrival."""
    terms = []
    if action.shared:
        terms.append(f"{counted(action.shared, 'token')} of family {action.family}")
    if action.salt:
        terms.append(f"salt {action.salt}")
    if action.priority:
        terms.append(f"priority {action.priority}")
    if action.stored:
        terms.append("loaded beside the steps" if action.asynchronous else "loaded within a step")
        if action.delays:
            terms.append(f"known after {counted(action.delays, 'look-up')}")
        if action.lost:
            terms.append(f"the last {counted(action.lost, 'page')} lost at first")
    return f" ({', '.join(terms)})" if terms else ""


def _describe_step(event: StepScheduled) -> str:
    told = [f"request {r}: {counted(n, 'token')} from {start}" for r, start, n in event.shares]
    head = f"schedule step {event.step} → {', '.join(told) or 'nothing'}"
    preempted = _listed(event.preempted)
    return f"{head}; preempts request {preempted}" if preempted else head


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))


# A finding


def describe_setup(setup: SchedulerSetup) -> str:
    """The settings that matter to this cache and are not at their defaults, sizes always."""
    told = [
        f"{field.name}={getattr(setup, field.name)}"
        for field in fields(setup)
        if ONLY_FOR.get(field.name, setup.cache) == setup.cache
        and (field.name in ALWAYS_TOLD or getattr(setup, field.name) != field.default)
    ]
    return ", ".join(told)


def _afterwards(traces: Sequence[Trace]) -> list[Text]:
    told = [Text("then everything that is pending is completed, and steps go on:")]
    for trace in traces:
        drained = [step.response for step in trace.steps[len(trace.program.actions) :]]
        told += map(Text, _drained(drained))
        told += [Text(f"a step {how_it_ended(trace)}", "red")] if trace.failure else []
    return told


def _drained(responses: Sequence[Response]) -> Iterator[str]:
    """What was done after the last action, without what changed nothing."""
    lines = ["; ".join(map(describe_event, r)) for r in responses if r != IDLE]
    yield from lines[:MOST_SHOWN]
    if len(lines) > MOST_SHOWN:
        yield f"… and so on, {len(lines) - MOST_SHOWN} times more"


def _counted(outcome: Outcome) -> str:
    steps = f", {outcome.steps:,} scheduler steps"
    if not outcome.shadowed.total():
        return steps
    return f"{steps} ({outcome.shadowed['calls']:,} calls like the model's)"


SCHEDULER_WORDS = Words(
    describe_action=describe_action,
    style=lambda response: "dim" if response == IDLE else "",
    describe_configuration=describe_setup,
    afterwards=_afterwards,
    extras=lambda *_: (),
    compared=lambda _: "'s scheduler",
    counted=_counted,
)
