"""Export a program of whole engine steps as a stand-alone pytest file for vLLM alone.

The file drives the scheduler itself: which steps it schedules is its own business, and the file's
workers answer whatever it schedules. So one file says the same about every release, and needs no
engine to be written.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from string import Template
from typing import Any

from invariants.rules import sentence_of
from invariants.scheduler.progress import patience
from invariants.violation import Cause
from kvproof.engines.vllm.export import scheduler_text as text
from kvproof.engines.vllm.export import text as export_text
from kvproof.engines.vllm.export.head import origin_of, rule_of
from kvproof.engines.vllm.export.scheduler_engine import ENGINE, STORE
from kvproof.engines.vllm.export.scheduler_memory import MEMORY
from kvproof.engines.vllm.export.words import plain, ranges
from model.program import Program
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
from model.scheduler.minimum import STEPS_IN_FLIGHT
from model.scheduler.program import SchedulerProgram
from model.scheduler.session import MAX_ALIVE
from model.scheduler.setup import SchedulerSetup
from specs.casefile import CaseFile

STATE_RULES = {rule: export_text.CHECKS[rule] for rule in ("I1", "I2", "I10", "I13")}
"""Rules that the pools show after any call, with the predicate that judges it."""
RULES = (*STATE_RULES, "I4", "I7", "I12", "I15", "I16", "I17", "I19", "crash")

Flags = frozenset[str]


def export_scheduler_test(case: CaseFile) -> str:
    """The text of a pytest file. Raises ``ExportError``."""
    return export_serving_test(
        case.program,
        rule_of(case, RULES),
        about=case.about,
        step=case.found.step if case.found else None,
        cause=case.found.cause if case.found else None,
        origin=origin_of(case.found),
    )


def export_serving_test(
    program: SchedulerProgram,
    rule: str,
    *,
    about: str,
    step: int | None = None,
    cause: Cause | None = None,
    origin: str = "",
) -> str:
    """The text of a pytest file that fails where the program breaks one of ``RULES``.

    ``step`` is the index of the action at which it was seen, where that is known: what comes after
    it is left out. ``about`` and ``origin`` (" that …") stand in the head.
    """
    actions = program.actions
    drains = step is None or step >= len(actions) or rule in ("I12", "I16")
    if not drains and step is not None:
        actions = actions[: step + 1]
    program = Program(program.configuration, actions)
    flags = _flags(program, rule, cause, drains)
    names = _names(program, rule) | {
        "about": textwrap.fill(plain(about), 96),
        "rule": textwrap.fill(f"{rule}: {sentence_of(rule, 'scheduler')}", 96),
        "origin": plain(origin),
    }
    head = _filled(f"{text.HEAD}\n{text.IMPORTS}\n{text.CONSTANTS}", flags, names)
    parts = [_filled(part, flags, names) for part in _parts(rule, flags)]
    return "\n\n".join([head, _test(program, rule, flags), *parts])


def _parts(rule: str, flags: Flags) -> Iterator[str]:
    yield text.CACHE
    yield text.CONFIGURATION
    if "store" in flags:
        yield STORE
    if "tables" in flags:
        yield MEMORY
    if rule in STATE_RULES:
        yield f"{export_text.POOLS}\n\n{STATE_RULES[rule]}"
    yield ENGINE


# What a file needs


def _flags(program: SchedulerProgram, rule: str, cause: Cause | None, drains: bool) -> Flags:
    """The flags of the templates, by which a file has only what its program uses."""
    setup, actions = program.configuration, program.actions
    arrivals = [action for action in actions if isinstance(action, Arrive)]
    taken = {type(action) for action in actions}
    store = setup.external_store
    stored = [action for action in arrivals if store and action.stored]
    # Where a client got other tokens than it should, it matters little what blocks hold.
    contents = rule == "I7" and cause is not Cause.WRONG_TOKENS
    flags = {
        setup.cache: True,
        "store": store,
        "connector": store or setup.hisparse,
        "both": store and setup.hisparse,
        "async": setup.async_scheduling,
        "delays": any(store and action.delays for action in arrivals),
        "lost": any(action.lost for action in stored),
        "many": len(arrivals) > MAX_ALIVE,
        "drain": drains,
        "abort": Abort in taken,
        "reset": Reset in taken,
        "complete_load": drains or CompleteLoad in taken,
        "complete_transfers": drains or CompleteTransfers in taken,
        "delivered": rule == "I7",
        "contents": contents,
        "reach": rule == "I15" and store,
        "tables": contents or (rule == "I15" and store),
        "progress": rule == "I16",
        "quiescence": rule == "I12",
        "checked": rule in STATE_RULES or rule == "I17",
        "debt": rule == "I17",
        "accounting": rule == "I2",
    }
    return frozenset(name for name, needed in flags.items() if needed)


def _names(program: SchedulerProgram, rule: str) -> dict[str, Any]:
    setup = program.configuration
    blocks, resident = setup.watermark_blocks, range(setup.num_resident_groups)
    groups = [
        f'KVCacheGroupSpec(["{kind}{n}"], {kind}, enable_kv_transfer=False)'
        for kind in ("resident", "hot")
        for n in resident
    ]
    hashed = setup.prefix_caching or setup.external_store or setup.hisparse
    paged = {"sliding": "(0, 1)", "hisparse": "(INDEXER, *RESIDENT)"}.get(setup.cache, "(0,)")
    under_way = ["self.in_flight"]
    under_way += ["self.transfers"] if setup.hisparse else []
    under_way += ["self.loads"] if setup.external_store else []
    completed = ["self.completed"] if setup.hisparse else []
    requests = sum(isinstance(action, Arrive) for action in program.actions)
    settings = {field.name: getattr(setup, field.name) for field in fields(setup)}
    return settings | {
        "steps_in_flight": STEPS_IN_FLIGHT[setup.async_scheduling],
        "patience": patience(setup, requests) + _delays(program),
        "resident": f"({', '.join(str(2 + n) for n in resident)},)",
        "resident_groups": (",\n" + " " * 12).join(groups) + ",",
        "watermark": f"({blocks} + 0.5) / NUM_BLOCKS" if blocks else "0.0",
        "mamba_mode": "align" if setup.cache == "mamba" else "none",
        "hisparse_config": "object()" if setup.hisparse else "None",
        "scheduler": "AsyncScheduler" if setup.async_scheduling else "Scheduler",
        "hasher": "get_request_block_hasher(BLOCK_SIZE, sha256)" if hashed else "None",
        "max_alive": MAX_ALIVE,
        "under_way": " or ".join(under_way),
        "busy": " or ".join([*under_way, *completed]),
        "sentence": sentence_of(rule, "scheduler"),
        "paged_groups": paged,
        "pool_of_row": '"host" if group == HOST else "gpu"' if setup.hisparse else '"gpu"',
    }


def _delays(program: SchedulerProgram) -> int:
    return sum(action.delays for action in program.actions if isinstance(action, Arrive))


# Templates


def _filled(template: str, flags: Flags, names: dict[str, Any]) -> str:
    return Template("\n".join(_kept(template, flags)) + "\n").substitute(names)


def _kept(template: str, flags: Flags) -> Iterator[str]:
    """The lines of a template whose conditions hold."""
    conditions: list[bool] = []
    for line in template.splitlines():
        if line.startswith("#if "):
            conditions.append(_holds(line.removeprefix("#if "), flags))
        elif line == "#fi":
            conditions.pop()
        elif all(conditions):
            yield line
    assert not conditions, "an #if without #fi"


def _holds(condition: str, flags: Flags) -> bool:
    """``a|b&!c``: any of the parts, of each all of its flags."""
    return any(
        all((flag.lstrip("!") in flags) != flag.startswith("!") for flag in part.split("&"))
        for part in condition.split("|")
    )


# The test


def _test(program: SchedulerProgram, rule: str, flags: Flags) -> str:
    lines = ["engine = Engine()"]
    arrivals = 0
    for index, action in enumerate(program.actions):
        words, calls = _WORDING[type(action)](action, program.configuration, arrivals)
        arrivals += isinstance(action, Arrive)
        comment = f"{index + 1}. {words}"
        lines += ["", *textwrap.wrap(comment, 94, initial_indent="# ", subsequent_indent="# ")]
        lines += calls
    if "drain" in flags:
        lines += ["", f"# {_DRAIN}", "engine.drain()"]
    body = "".join(f"    {line}\n" if line else "\n" for line in lines)
    return f"def test_{rule.lower()}():\n{body}"


_DRAIN = "Everything pending completes, and steps go on until all requests have ended."

Call = tuple[str, list[str]]
"""An action in words, and the lines that take it."""


def _arrive(action: Arrive, setup: SchedulerSetup, number: int) -> Call:
    longest = setup.max_model_len
    prompt = max(1, min(action.prompt, longest - 1))
    output = max(1, min(action.output, longest - prompt))
    stored = min(action.stored, _storable(setup, prompt))
    words = [f"Request {number} arrives: {_count(prompt, 'prompt token')}, {output} to generate"]
    arguments = [
        f'"{number}"',
        ranges([token_at(number, action.family, action.shared, at) for at in range(longest + 2)]),
        f"prompt={prompt}",
        f"max_tokens={output}",
    ]
    if action.priority:
        words.append(f"priority {action.priority}")
        arguments.append(f"priority={action.priority}")
    if action.salt:
        words.append(f"salt {action.salt}")
        arguments.append(f'cache_salt="{action.salt}"')
    if stored:
        how = "beside the steps" if action.asynchronous else "within a step"
        words.append(f"the first {stored} in the store, loaded {how}")
        arguments += [f"stored={stored}", f"asynchronous={action.asynchronous}"]
    if setup.external_store and action.delays:
        words.append(f'{_count(action.delays, "look-up")} answered "not known yet" first')
        arguments.append(f"delays={action.delays}")
    if stored and action.lost:
        words.append(f"its last {_count(action.lost, 'page')} lost at first")
        arguments.append(f"lost_pages={action.lost}")
    call = f"engine.arrive({', '.join(arguments)})"
    return f"{', '.join(words)}.", _wrapped(call, arguments)


def _storable(setup: SchedulerSetup, prompt: int) -> int:
    """What a store may have of a prompt: see ``model.scheduler.ghost_store``."""
    if not setup.external_store or prompt == 1:
        return 0
    return prompt - (setup.cache == "mamba")


def _wrapped(call: str, arguments: Sequence[str]) -> list[str]:
    if len(call) <= 92:
        return [call]
    return ["engine.arrive(", *(f"    {argument}," for argument in arguments), ")"]


def _complete_transfers(action: CompleteTransfers, setup: SchedulerSetup, _: int) -> Call:
    words = f"Up to {_count(action.count, 'page transfer')} to or from the host complete."
    if not setup.hisparse:
        return f"{words} There are none.", []
    return words, [f"engine.complete_transfers({action.count})"]


def _complete_load(action: CompleteLoad, setup: SchedulerSetup, _: int) -> Call:
    words = "A load beside the steps completes."
    if not setup.external_store:
        return f"{words} There is none.", []
    return words, [f"engine.complete_load({action.load})"]


def _reset(action: Reset, *_: object) -> Call:
    if action.preempt_running:
        return "The prefix cache is reset; what runs is preempted first.", [
            "engine.reset(preempt_running=True)"
        ]
    return "The prefix cache is reset.", ["engine.reset()"]


_WORDING: dict[type[Action], Callable[..., Call]] = {
    Arrive: _arrive,
    Step: lambda *_: ("A step is scheduled, and runs.", ["engine.step()"]),
    Output: lambda *_: ("The output of the oldest step arrives.", ["engine.output()"]),
    CompleteTransfers: _complete_transfers,
    CompleteLoad: _complete_load,
    Abort: lambda action, *_: ("A client gives up.", [f"engine.abort({action.request})"]),
    Reset: _reset,
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
