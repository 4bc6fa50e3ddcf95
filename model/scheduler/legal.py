"""Which programs count: those of a setup that the engine starts with, used as it may be used.

What a program outside of these shows is no finding.
"""

from collections.abc import Iterator

from model.program import Program
from model.scheduler.actions import Action, Arrive
from model.scheduler.minimum import minimum_pools
from model.scheduler.setup import SchedulerSetup

CACHES = ("full", "sliding", "mamba", "hisparse")
POLICIES = ("fcfs", "priority")
LOAD_FAILURES = ("recompute", "fail")
AT_LEAST_ONE = (
    "block_size", "max_num_batched_tokens", "max_num_seqs", "num_resident_groups", "hot_blocks",
)  # fmt: skip
AT_LEAST_ZERO = ("watermark_blocks", "long_prefill_threshold", "sliding_window")


def problem_of_program(program: Program[SchedulerSetup, Action]) -> str | None:
    """Say in one line why a program does not count, or None."""
    problem = problem_of_setup(program.configuration)
    if problem is None and program.configuration.hisparse and program.configuration.external_store:
        for action in program.actions:
            if isinstance(action, Arrive) and action.stored and not action.asynchronous:
                return (
                    "HiSparse takes asynchronous loads only: no synchronous import ever completes"
                )
    return problem


def problem_of_setup(setup: SchedulerSetup) -> str | None:
    """Say in one line why the engine would not start with a setup, or None."""
    return next(_problems(setup), None)


def _problems(setup: SchedulerSetup) -> Iterator[str]:
    for name, known in (("cache", CACHES), ("policy", POLICIES), ("load_failure", LOAD_FAILURES)):
        if getattr(setup, name) not in known:
            yield f"{name} must be one of {', '.join(known)}"
    for least, names in ((1, AT_LEAST_ONE), (0, AT_LEAST_ZERO)):
        for name in names:
            if getattr(setup, name) < least:
                yield f"{name} must be at least {least}"
    if setup.max_model_len <= 1:
        yield "max_model_len must be at least 2: a token of the prompt, and one to generate"
    if setup.cache == "sliding" and not setup.sliding_window:
        yield "sliding_window must be at least 1"
    yield from _refused(setup)
    yield from _too_small(setup)


def _refused(setup: SchedulerSetup) -> Iterator[str]:
    """What the engine's own configuration refuses, or changes into something else."""
    if setup.hisparse and not setup.reserve_full_isl:
        yield "HiSparse requires reserve_full_isl: that a request's whole prompt fits"
    if setup.cache == "mamba" and not setup.prefix_caching:
        yield "without prefix_caching the engine leaves Mamba's align mode"
    if setup.long_prefill_threshold > setup.max_model_len:
        yield "long_prefill_threshold must be at most max_model_len"
    if setup.max_num_batched_tokens < setup.max_num_seqs:
        yield "max_num_batched_tokens must be at least max_num_seqs"


def _too_small(setup: SchedulerSetup) -> Iterator[str]:
    least = minimum_pools(setup)
    for name, blocks in (
        ("num_blocks", least.gpu_blocks),
        ("num_host_blocks", least.host_blocks),
    ):
        if getattr(setup, name) < blocks:
            yield f"{name} {getattr(setup, name)} is below the start-up minimum {blocks}"
    if setup.watermark_blocks >= setup.num_blocks:
        yield "watermark_blocks must be less than num_blocks"
