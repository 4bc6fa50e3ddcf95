"""How programs of the scheduler level are shrunk."""

from model.scheduler.legal import problem_of_program
from model.scheduler.program import SchedulerProgram
from specs.shrink import Fails, Plan, shrunk

PLAIN = {
    "async_scheduling": False,
    "policy": "fcfs",
    "external_store": False,
    "long_prefill_threshold": 0,
    "watermark_blocks": 0,
    "num_resident_groups": 1,
    "hot_blocks": 1,
    "reserve_full_isl": True,
    "prefix_caching": True,
    "load_failure": "fail",
}
"""Fields of a setup with a plain value, in the order in which they are made plain."""
PLAN = Plan(
    plain=(PLAIN, *({name: value} for name, value in PLAIN.items())),
    sizes=(
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
    ),
    pairs_up_to=24,
)


def shrink(program: SchedulerProgram, fails: Fails[SchedulerProgram]) -> SchedulerProgram:
    """The smallest program found that fails like ``program``, which must fail.

    Every candidate is one with which the engine starts.
    """
    return shrunk(program, lambda p: problem_of_program(p) is None and fails(p), PLAN)
