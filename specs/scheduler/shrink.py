"""Minimise a program of whole engine steps that fails: no single action can go any more.

Every candidate is one with which the engine starts. Each pass only makes smaller what it changes,
so it comes to an end.
"""

from collections.abc import Callable
from dataclasses import replace

from model.scheduler.legal import problem_of_program
from model.scheduler.program import SchedulerProgram
from model.scheduler.setup import SchedulerSetup
from specs.shrink import remove_chunks, remove_pairs, smaller_numbers

Fails = Callable[[SchedulerProgram], bool]
"""Whether a program still shows the very failure that is to be kept."""

PLAIN: tuple[tuple[str, object], ...] = (
    ("async_scheduling", False),
    ("policy", "fcfs"),
    ("external_store", False),
    ("long_prefill_threshold", 0),
    ("watermark_blocks", 0),
    ("num_resident_groups", 1),
    ("hot_blocks", 1),
    ("reserve_full_isl", True),
    ("prefix_caching", True),
    ("load_failure", "fail"),
)
"""Fields of a setup with a plain value, in the order in which they are made plain."""
SIZES = (
    "num_blocks",
    "num_host_blocks",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "sliding_window",
    "long_prefill_threshold",
    "watermark_blocks",
    "num_resident_groups",
    "hot_blocks",
    "block_size",
)
FEW_ACTIONS = 24
"""Actions of a program from which pairs are tried too: there are many pairs in a long one."""


def minimise(program: SchedulerProgram, fails: Fails) -> SchedulerProgram:
    """The smallest program found that fails like ``program``, which must fail."""

    def starts_and_fails(candidate: SchedulerProgram) -> bool:
        return problem_of_program(candidate) is None and fails(candidate)

    while True:
        smaller = _once(program, starts_and_fails)
        if smaller == program:
            return program
        program = smaller


def _once(program: SchedulerProgram, fails: Fails) -> SchedulerProgram:
    program = remove_chunks(program, fails)
    program = _plainer(program, fails)
    program = _smaller_sizes(program, fails)
    program = smaller_numbers(program, fails)
    return remove_pairs(program, fails) if len(program.actions) <= FEW_ACTIONS else program


def _plainer(program: SchedulerProgram, fails: Fails) -> SchedulerProgram:
    """All plain at once, then each by itself."""
    for fields in (PLAIN, *((field,) for field in PLAIN)):
        plain = replace(program.configuration, **dict(fields))  # type: ignore[arg-type]
        program = _with_setup(program, plain, fails) or program
    return program


def _smaller_sizes(program: SchedulerProgram, fails: Fails) -> SchedulerProgram:
    for name in SIZES:
        while True:
            size = getattr(program.configuration, name)
            setup = replace(program.configuration, **{name: size - 1})
            smaller = _with_setup(program, setup, fails) if size > 0 else None
            if smaller is None:
                break
            program = smaller
    return program


def _with_setup(
    program: SchedulerProgram, setup: SchedulerSetup, fails: Fails
) -> SchedulerProgram | None:
    if setup == program.configuration:
        return None
    changed = replace(program, configuration=setup)
    return changed if fails(changed) else None
