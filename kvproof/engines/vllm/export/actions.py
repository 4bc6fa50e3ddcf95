"""A program of whole engine steps as statements: each action in words, and what takes it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvproof.engines.vllm.export.layout import Code, argument, call, quoted, ranges
from model.request import token_at
from model.scheduler.actions import (
    Abort,
    Action,
    Arrive,
    CompleteLoad,
    CompleteTransfers,
    Output,
    Reset,
    Step,
)
from model.scheduler.program import SchedulerProgram
from model.scheduler.session import MAX_ALIVE
from model.scheduler.setup import SchedulerSetup


@dataclass(frozen=True, slots=True)
class Place:
    """Where an action stands."""

    setup: SchedulerSetup
    arrivals: int
    """Requests that arrived before."""
    crowded: bool
    """Whether more requests arrive than may be alive at once."""
    judges_preemption: bool


Taken = tuple[str, list[Code]]
"""An action in words, and the statements that take it."""


def statements_of(program: SchedulerProgram, judges_preemption: bool) -> Iterator[Code]:
    setup = program.configuration
    all_arrivals = sum(isinstance(action, Arrive) for action in program.actions)
    arrivals = 0
    for index, action in enumerate(program.actions):
        place = Place(setup, arrivals, all_arrivals > MAX_ALIVE, judges_preemption)
        words, calls = TAKEN[type(action)](action, place)
        arrivals += isinstance(action, Arrive)
        comment = f"{index + 1}. {words}"
        yield ""
        yield from textwrap.wrap(comment, 94, initial_indent="# ", subsequent_indent="# ")
        yield from calls


def _arrive(action: Arrive, place: Place) -> Taken:
    setup, number = place.setup, place.arrivals
    longest = setup.max_model_len
    prompt = max(1, min(action.prompt, longest - 1))
    output = max(1, min(action.output, longest - prompt))
    words = [f"Request {number} arrives: {_count(prompt, 'prompt token')}, {output} to generate"]
    text = [token_at(number, action.family, action.shared, at) for at in range(longest + 2)]
    arguments: list[Code] = [quoted(number), ranges(text)]
    arguments += [f"prompt={prompt}", f"max_tokens={output}"]
    if action.priority:
        words.append(f"priority {action.priority}")
        arguments.append(f"priority={action.priority}")
    if action.salt:
        words.append(f"salt {action.salt}")
        arguments.append(argument("cache_salt", quoted(action.salt)))
    arrival: list[Code] = [call("engine.arrive", *arguments)]
    if place.crowded:
        arrival = [f"if len(engine.live) < {MAX_ALIVE}:", _indented(arrival[0])]
    said, stored = _stored(action, setup, prompt, number)
    return f"{', '.join([*words, *said])}.", [*stored, *arrival]


def _indented(code: Code) -> Code:
    if isinstance(code, str):
        return f"    {code}"
    return type(code)(f"    {code.opening}", code.items, f"{code.closing}")


def _stored(
    action: Arrive, setup: SchedulerSetup, prompt: int, number: int
) -> tuple[list[str], list[Code]]:
    """What the store has of a request, in words and as statements."""
    stored = min(action.stored, _storable(setup, prompt))
    words, arguments = [], []
    if stored:
        how = "beside the steps" if action.asynchronous else "within a step"
        words.append(f"the first {stored} in the store, loaded {how}")
        arguments += [f"tokens={stored}", f"asynchronous={action.asynchronous}"]
    if setup.external_store and action.delays:
        words.append(f'{_count(action.delays, "look-up")} answered "not known yet" first')
        arguments.append(f"delays={action.delays}")
    statements: list[Code] = []
    if arguments:
        statements.append(call(f"loads.store.contents[{number}] = External", *arguments))
    if stored and action.lost:
        words.append(f"its last {_count(action.lost, 'page')} lost at first")
        statements.append(f"loads.lost_pages[{number}] = {action.lost}")
    return words, statements


def _storable(setup: SchedulerSetup, prompt: int) -> int:
    """What a store may have of a prompt: see ``model.scheduler.session``."""
    if not setup.external_store or prompt == 1:
        return 0
    return prompt - (setup.cache == "mamba")


def _complete_transfers(action: CompleteTransfers, place: Place) -> Taken:
    words = f"Up to {_count(action.count, 'page transfer')} to or from the host complete."
    if not place.setup.hisparse:
        return f"{words} There are none.", []
    return words, [f"transfers.complete({action.count})"]


def _complete_load(action: CompleteLoad, place: Place) -> Taken:
    words = "A load beside the steps completes."
    if not place.setup.external_store:
        return f"{words} There is none.", []
    return words, [f"loads.complete(engine, {action.load})"]


def _reset(action: Reset, place: Place) -> Taken:
    if not action.preempt_running:
        return "The prefix cache is reset.", ["reset(engine)"]
    noted: list[Code] = []
    if place.judges_preemption:
        noted = ["rule.was_reset = rule.was_reset or not engine.in_flight"]
    words = "The prefix cache is reset; what runs is preempted first."
    return words, [*noted, "reset(engine, preempt_running=True)"]


def _step(action: Step, place: Place) -> Taken:
    return "A step is scheduled, and runs.", ["engine.step()"]


def _output(action: Output, place: Place) -> Taken:
    return "The output of the oldest step arrives.", ["engine.output()"]


def _abort(action: Abort, place: Place) -> Taken:
    return "A client gives up.", [f"abort(engine, {action.request})"]


TAKEN: dict[type[Action], Callable[..., Taken]] = {
    Arrive: _arrive,
    Step: _step,
    Output: _output,
    CompleteTransfers: _complete_transfers,
    CompleteLoad: _complete_load,
    Abort: _abort,
    Reset: _reset,
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
