"""The words of the scheduler level: what was called, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from rich.text import Text

from invariants.scheduler.run import Event, Response
from kvproof.reports.words.calls import call_of, counted
from kvproof.reports.words.finding import Words, last_line
from model.scheduler.actions import Action, Arrive
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
IDLE: Response = (("idle",),)


# One action


def describe_action(action: Action, response: Response) -> str:
    """The calls that an action came to, in the scheduler's words, with their results."""
    if response == IDLE:
        return f"{call_of(action)}: not possible now"
    told = [describe_event(event) for event in response]
    if isinstance(action, Arrive):
        told[0] += _terms(action)
    return "; ".join(told)


def describe_event(event: Event) -> str:
    word, *rest = event
    return _WORDING[word](*rest)


def _describe_arrival(request: int, prompt: int, output: int, stored: int) -> str:
    head = f"add request {request}: {counted(prompt, 'prompt token')}, {output} to generate"
    return f"{head}, the first {stored} in the store" if stored else head


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


def _describe_step(step: int, shares: Any, preempted: Any) -> str:
    told = [f"request {r}: {counted(n, 'token')} from {start}" for r, start, n in shares]
    head = f"schedule step {step} → {', '.join(told) or 'nothing'}"
    return f"{head}; preempts request {_listed(preempted)}" if preempted else head


def _describe_load(request: int, lost: int | None) -> str:
    if lost is None:
        return f"the load of request {request} is done"
    return f"the load of request {request} is done, and failed from token {lost} on"


def _describe_reset(running: bool, done: bool) -> str:
    head = "reset the prefix cache" + (", preempting all that runs" if running else "")
    return f"{head} → {'done' if done else 'refused'}"


_WORDING: dict[str, Callable[..., str]] = {
    "arrived": _describe_arrival,
    "step": _describe_step,
    "output": lambda step: f"update from the output of step {step}",
    "ended": lambda request, why: f"request {request} ended: {why}",
    "loaded": _describe_load,
    "transferred": lambda transfers: f"host transfers complete: {_listed(transfers)}",
    "reset": _describe_reset,
}
"""By the word of an event, from what follows it: see ``invariants.scheduler.run``."""


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


def _end(trace: Trace) -> str:
    """How the trace ended at the action to which there is no answer."""
    raised = last_line(trace.failure) if trace.ending == "violated" else None
    return f"raised {raised}" if raised else trace.ending


def _afterwards(traces: Sequence[Trace]) -> list[Text]:
    told = [Text("then everything that is pending is completed, and steps go on:")]
    for trace in traces:
        drained = [step.response for step in trace.steps[len(trace.program.actions) :]]
        told += map(Text, _drained(drained))
        told += [Text(f"a step {_end(trace)}", "red")] if trace.failure else []
    return told


def _drained(responses: Sequence[Response]) -> Iterator[str]:
    """What was done after the last action, without what changed nothing."""
    lines = ["; ".join(map(describe_event, r)) for r in responses if r != IDLE]
    yield from lines[:MOST_SHOWN]
    if len(lines) > MOST_SHOWN:
        yield f"… and so on, {len(lines) - MOST_SHOWN} times more"


SCHEDULER_WORDS = Words(
    describe_action=describe_action,
    describe_configuration=describe_setup,
    responses=lambda trace: [step.response for step in trace.steps],
    ending=_end,
    afterwards=_afterwards,
    extras=lambda *_: (),
)
