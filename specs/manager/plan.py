"""How programs of the manager level are shrunk."""

from dataclasses import replace

from model.dialect import Dialect
from model.manager.configuration import Configuration, problem_of
from model.manager.program import ManagerProgram
from model.releases import DIALECTS
from model.startup import below_minimum
from specs.manager.shortest import shortest
from specs.shrink import Fails, Plan, shrunk

PLAIN = Configuration()
MODES = (
    "async_scheduling",
    "num_workers",
    "num_resident_groups",
    "policy",
    "watermark_blocks",
    "hot_blocks",
    "full_sequence_must_fit",
    "prefix_caching",
)
"""Configuration fields with a plain value, in the order in which they are made plain."""
PLAN = Plan(
    plain=tuple({name: getattr(PLAIN, name)} for name in MODES),
    sizes=("num_blocks", "num_host_blocks", "max_model_len", "max_num_batched_tokens"),
    pairs_up_to=float("inf"),
)


def shrink(
    program: ManagerProgram,
    fails: Fails[ManagerProgram],
    dialect: Dialect,
    small_scopes: bool = True,
) -> ManagerProgram:
    """A small program with the same failure, from which no action can be removed.

    Its pools are such that ``dialect`` starts with them, and every other dialect too if the
    failure can be had so: then the program can be replayed on every release. ``small_scopes``
    looks for a shorter way as well, which takes thousands of runs: for the reference only.
    """
    program = shrunk(program, lambda p: _starts(p, (dialect,)) and fails(p), PLAN)
    if not small_scopes:
        return program
    everywhere = tuple(DIALECTS.values())
    hosts = PLAIN.num_host_blocks if program.configuration.hisparse else 0
    plain = replace(PLAIN, num_host_blocks=hosts)
    own = replace(plain, **{name: getattr(program.configuration, name) for name in MODES})
    for modes in dict.fromkeys((plain, own)):
        found = shortest(modes, fails, dialect, len(program.actions) + 1)
        if found is not None:
            return shrunk(found, lambda p: _starts(p, everywhere) and fails(p), PLAN)
    return program


def _starts(program: ManagerProgram, dialects: tuple[Dialect, ...]) -> bool:
    """Whether an engine of each dialect would start with the program's configuration."""
    return problem_of(program.configuration) is None and all(
        below_minimum(program.configuration, dialect) is None for dialect in dialects
    )
