"""The seeds' table: pages that a host-prefix hit adopts, by free blocks left.

Block size 16, a pool of 64 blocks, a host pool of 16, a hot region of 2, one resident group. A
producer's four full pages are written back and published, and the request ends; blocks are held
until so many are free; then the same 64 tokens come again, a hit of three pages.
"""

from kvproof.errors import CouldNotRun
from kvproof.subjects.subject import Subject
from model.dialect import Dialect
from model.manager.actions import Admit, Arrive, CompleteTransfers, EndStep, Finish, Hold
from model.manager.configuration import Configuration
from model.manager.events import Admitted, Raised, Refused
from model.manager.program import ManagerProgram
from model.pool import NULL
from model.program import Program
from model.releases import DIALECTS
from model.trace import Trace

FREE_BLOCKS = range(4, 14)
HIT_PAGES = 3
TOKENS = 64

CONFIGURATION = Configuration(
    block_size=16,
    num_blocks=64,
    num_host_blocks=16,
    hot_blocks=2,
    max_model_len=128,
    max_num_batched_tokens=128,
)


def table_program(free_blocks: int, tokens: int = TOKENS) -> ManagerProgram:
    producer = (
        Arrive(family=0, shared=tokens, prompt=tokens),
        Admit(0, tokens),
        EndStep(),
        CompleteTransfers(0, 99),
        Finish(0),
    )
    again = (Arrive(family=0, shared=tokens, prompt=tokens), Admit(0, tokens), EndStep())
    return Program(CONFIGURATION, (*producer, Hold(free_blocks), *again))


def cell_of(trace: Trace) -> str:
    """``rejected``, ``crash``, or how many of the hit's pages are read from the GPU.

    Raises ``CouldNotRun`` when the subject does not get so far as to show it.
    """
    last = trace.steps[-1].response[0] if trace.steps else None
    if trace.ending == "raised" and last == Raised("OutOfBlocks"):
        return "crash"
    if trace.ending != "ended" or len(trace.steps) != len(trace.program.actions):
        raise CouldNotRun(_unfinished(trace))
    answer = trace.steps[-2].response[0]
    if isinstance(answer, Refused):
        return "rejected"
    snapshot = trace.steps[-1].snapshot
    if not isinstance(answer, Admitted) or snapshot is None:
        raise CouldNotRun(f"{trace.subject} answered {answer.word!r} to the table's last admission")
    rows = snapshot.requests[0].resident[0][:HIT_PAGES]
    return f"{sum(block != NULL for block in rows)}/{HIT_PAGES}"


def _unfinished(trace: Trace) -> str:
    said = (trace.failure or trace.ending).strip().splitlines()
    why = said[-1 if trace.ending == "raised" else 0]  # the error ends a traceback
    return f"{trace.subject} did not finish the table's program: it {trace.ending}: {why}"


def measure(subjects: list[Subject]) -> dict[int, dict[str, str]]:
    """Free blocks → subject → cell."""
    programs = [table_program(free) for free in FREE_BLOCKS]
    table: dict[int, dict[str, str]] = {free: {} for free in FREE_BLOCKS}
    for subject in subjects:
        for free, trace in zip(FREE_BLOCKS, subject.run_many(programs, "all"), strict=True):
            table[free][subject.name] = cell_of(trace)
    return table


EXPECTED: dict[str, tuple[str, ...]] = {
    "eager": ("rejected",) * 3 + ("crash",) * 3 + ("3/3",) * 4,
    "charged": ("rejected",) * 6 + ("3/3",) * 4,
    "deferred": ("rejected",) * 3 + ("0/3", "0/3", "1/3", "2/3") + ("3/3",) * 3,
    "deferred-ordered": ("rejected",) * 3 + ("0/3", "1/3", "2/3") + ("3/3",) * 4,
}
"""The columns of the design, free blocks 4 to 13."""


def expected_column(dialect_name: str) -> tuple[str, ...] | None:
    """The column that a subject of this dialect must show: that of the policy which it follows."""
    dialect = DIALECTS.get(dialect_name)
    policies = (
        policy for policy in EXPECTED if dialect and _adopts_alike(DIALECTS[policy], dialect)
    )
    return next((EXPECTED[policy] for policy in policies), None)


def _adopts_alike(one: Dialect, other: Dialect) -> bool:
    """Before or after the pops, charged or not, and how copies are queued by a release."""
    return (one.adopt_at == "commit", one.charge_copies, one.copies_behind_release) == (
        other.adopt_at == "commit",
        other.charge_copies,
        other.copies_behind_release,
    )
