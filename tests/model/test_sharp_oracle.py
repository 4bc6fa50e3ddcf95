"""The oracle is sharp: flip one switch of a release's dialect, and lockstep sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

import pytest

from kvproof.engines.vllm.release import release_source
from kvproof.levels.manager import ManagerExaminer
from kvproof.search.hunt import draw_programs, soak
from kvproof.subjects.names import open_subject
from kvproof.subjects.subject import Subject
from model.dialect import Dialect
from model.manager.actions import Action, Admit, Arrive, CompleteTransfers, EndStep
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.program import Program
from model.releases import DIALECTS, VERSIONS
from model.startup import below_minimum, minimum_blocks, minimum_host_blocks
from specs.manager.plan import shrink

SEED = 1
PROGRAMS = 400
"""Programs after which a switch that shows nothing counts as invisible."""
ACTIONS = 25
"""Actions of a drawn program: the fewer, the sooner it is shrunk."""
LONGEST = 14
"""Actions of a shrunk program at most."""

ROWS: tuple[tuple[str, str, Any], ...] = (
    ("0.30.0", "adopt_at", "end_of_step"),
    ("0.31.0", "adopt_at", "end_of_step"),
    ("0.33.0", "adopt_at", "allocation"),
    ("0.33.0", "adopt_at", "commit"),
    ("0.30.0", "residency_hook", "end_of_step"),
    ("0.33.0", "residency_hook", "allocation"),
    ("0.30.0", "host_best_effort", False),
    ("0.33.0", "host_best_effort", True),
    ("0.30.0", "publish_prefix", True),
    ("0.33.0", "publish_prefix", False),
    ("0.30.0", "publish_after_end", True),
    ("0.33.0", "publish_after_end", False),
    ("0.30.0", "unpin_step_tail_first", True),
    ("0.33.0", "unpin_step_tail_first", False),
    ("0.30.0", "unpin_release_tail_first", True),
    ("0.33.0", "unpin_release_tail_first", False),
    ("0.30.0", "hot_when_window_full", True),
    ("0.33.0", "hot_when_window_full", False),
    ("0.30.0", "resident_overlay", True),
    ("0.33.0", "resident_overlay", False),
    ("0.32.0", "null_block_counted", False),
    ("0.33.0", "null_block_counted", True),
    ("0.30.0", "residency_updates", True),
    ("0.33.0", "residency_updates", False),
    ("0.30.0", "reclaims_host_blocks", True),
    ("0.33.0", "reclaims_host_blocks", False),
    ("0.31.0", "common_prefix_counted", False),
    ("0.33.0", "common_prefix_counted", True),
    ("0.33.0", "charge_copies", True),
    ("0.33.0", "copies_behind_release", True),
)
"""Release, switch, and the value that is not the release's own."""

NOT_DRAWN = {"zero_tokens_with_hit"}
"""No engine asks for it, so the generator never draws it: shown by programs written by hand."""
BEFORE_THE_FIRST_STEP = {"startup_full_length", "startup_checks_host"}
NO_SWITCHES = {"name", "waivers", "known_defects"}


@pytest.fixture(scope="module")
def release() -> Iterator[Callable[[str], Subject]]:
    """Releases by version, each opened once."""
    with ExitStack() as stack:
        opened: dict[str, Subject] = {}

        def of(version: str) -> Subject:
            if version not in opened:
                opened[version] = stack.enter_context(open_subject(f"vllm=={version}"))
            return opened[version]

        yield of


def own_dialect(version: str) -> Dialect:
    return DIALECTS[f"vllm-{version}"]


def lockstep(subject: Subject, dialect: Dialect) -> ManagerExaminer:
    return ManagerExaminer(subject, dialect, rules=(), watch_goals=False)


def test_every_switch_is_shown_somewhere() -> None:
    switches = {field.name for field in fields(Dialect)} - NO_SWITCHES
    assert {switch for _, switch, _ in ROWS} | NOT_DRAWN | BEFORE_THE_FIRST_STEP == switches


def first_difference(examiner: ManagerExaminer) -> ManagerProgram:
    """The first drawn program that shows a difference, shrunk until nothing can go."""

    def differs(program: ManagerProgram) -> bool:
        return examiner.examine(program).rules_broken == {"lockstep"}

    drawn = draw_programs(examiner.draw, SEED, PROGRAMS, ACTIONS)
    found = next(r.program for r in examiner.examine_many(drawn) if r.violations)
    return shrink(found, differs, examiner.dialect, small_scopes=False)


@pytest.mark.parametrize(("version", "switch", "value"), ROWS)
def test_a_flipped_switch_is_found_and_shrunk(
    version: str, switch: str, value: Any, release: Callable[[str], Subject]
) -> None:
    own = own_dialect(version)
    flipped = replace(own, **{switch: value})
    assert flipped != own
    program = first_difference(lockstep(release(version), flipped))
    assert len(program.actions) <= LONGEST
    (violation,) = lockstep(release(version), flipped).examine(program).violations
    assert (violation.rule, violation.step) == ("lockstep", len(program.actions) - 1)
    assert not lockstep(release(version), own).examine(program).violations


@pytest.mark.parametrize(
    ("version", "switch", "value"),
    [("0.30.0", "null_block_counted", False), ("0.33.0", "copies_behind_release", True)],
)
def test_a_soak_reports_a_flipped_switch_as_one_shrunk_finding(
    version: str, switch: str, value: Any, release: Callable[[str], Subject]
) -> None:
    flipped = replace(own_dialect(version), **{switch: value})
    outcome = soak(lockstep(release(version), flipped), SEED, programs=PROGRAMS, only="lockstep")
    (finding,) = outcome.findings
    assert finding.violation.rule == "lockstep"
    assert finding.violation.step == len(finding.program.actions) - 1
    assert len(finding.program.actions) <= LONGEST


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unflipped_release_shows_no_difference(
    version: str, release: Callable[[str], Subject]
) -> None:
    outcome = soak(
        lockstep(release(version), own_dialect(version)), SEED, programs=100, only="lockstep"
    )
    assert outcome.programs == 100
    assert outcome.findings == []


# An allocation of no tokens


HIT_OF_A_PAGE: tuple[Action, ...] = (
    Arrive(shared=5, prompt=4),
    Admit(tokens=4),
    EndStep(),
    CompleteTransfers(count=1),
    Arrive(shared=5, prompt=5),
    Admit(request=0, tokens=0),
)


@pytest.mark.parametrize("num_host_blocks", [0, 12], ids=["full attention", "hisparse"])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_tokens_with_a_hit_are_allowed_or_not_as_the_dialect_says(
    version: str, num_host_blocks: int, release: Callable[[str], Subject]
) -> None:
    program = Program(Configuration(num_host_blocks=num_host_blocks), HIT_OF_A_PAGE)
    own = own_dialect(version)
    flipped = replace(own, zero_tokens_with_hit=not own.zero_tokens_with_hit)
    assert not lockstep(release(version), own).examine(program).violations
    (violation,) = lockstep(release(version), flipped).examine(program).violations
    assert (violation.rule, violation.step) == ("lockstep", len(HIT_OF_A_PAGE) - 1)


# Start-up: before the first step, so no program shows it


LARGE = Configuration(
    block_size=16,
    num_resident_groups=2,
    hot_blocks=2,
    max_model_len=100,
    max_num_batched_tokens=40,
)
"""7 pages for the longest request, 3 for the tokens of a step."""


@pytest.mark.parametrize(
    ("version", "configuration", "blocks", "host_blocks"),
    [
        ("0.30.0", LARGE, 7 + 2 * (7 + 2) + 1, 2),
        ("0.31.0", LARGE, 7 + 2 * (3 + 2) + 1, 7 + 2),
        ("0.32.0", LARGE, 7 + 2 * (3 + 2) + 1, 7 + 2),
        ("0.33.0", LARGE, 7 + 2 * (3 + 2) + 1, 7 + 2),
        ("0.33.0", replace(LARGE, async_scheduling=True), 7 + 2 * (5 + 2) + 1, 7 + 2),
        ("0.33.0", replace(LARGE, max_num_batched_tokens=999), 7 + 2 * (7 + 2) + 1, 7 + 2),
        ("0.33.0", replace(LARGE, max_model_len=96), 6 + 2 * (3 + 2) + 1, 6 + 2),
        ("0.33.0", replace(LARGE, max_model_len=97), 7 + 2 * (3 + 2) + 1, 7 + 2),
        ("0.33.0", replace(LARGE, num_resident_groups=1), 7 + (3 + 2) + 1, 7 + 2),
        ("0.33.0", replace(LARGE, num_host_blocks=0), 7 + 1, 0),
        ("0.30.0", replace(LARGE, num_host_blocks=0), 7 + 1, 0),
    ],
)
def test_the_start_up_minimum_is_the_engines(
    version: str, configuration: Configuration, blocks: int, host_blocks: int
) -> None:
    """Indexer pages + groups x (resident pages + hot region) + the null block.

    Read in the releases. *The null block is counted, in all four*: ``get_kv_cache_configs`` takes
    the bytes of one block off the memory before it compares (0.30.0 to 0.32.0:
    ``core/kv_cache_utils.py``; 0.33.0: ``core/kv_cache_planning.py``).

    From 0.31.0 the groups are laid out before the check, so it adds up indexer, resident and hot
    groups in blocks of the shared pool; a resident group asks for the pages of
    ``min(max_in_flight_tokens, max_model_len)``. ``create_hisparse_layout`` refuses fewer host
    blocks than the longest request and two more (null block, copy-on-write tail).

    0.30.0 is weaker than the number here. It checks before the resident and hot groups exist:
    ``get_hisparse_gpu_memory_usage`` adds the indexer's bytes only, so an explicit
    ``max_model_len`` starts with pools in which such a request hangs. The pages of the longest
    request count where 0.30.0 *chooses* the length itself (``max_model_len=-1``, at least one such
    request at once, ``get_max_concurrency_for_kv_cache_config``). kvproof uses that number: it
    leaves out pools that hang by design. Of host blocks 0.30.0 only asks for more than none; two
    are the null block and one that can be used.
    """
    dialect = own_dialect(version)
    assert minimum_blocks(configuration, dialect) == blocks
    assert minimum_host_blocks(configuration, dialect) == host_blocks


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pool_of_one_block_less_is_below_the_minimum(version: str) -> None:
    dialect = own_dialect(version)
    hosts = minimum_host_blocks(LARGE, dialect)
    least = replace(LARGE, num_blocks=minimum_blocks(LARGE, dialect), num_host_blocks=hosts)
    assert below_minimum(least, dialect) is None
    assert below_minimum(replace(least, num_blocks=least.num_blocks - 1), dialect)
    assert below_minimum(replace(least, num_host_blocks=hosts - 1), dialect)


@pytest.mark.parametrize(
    ("version", "file", "line", "there"),
    [
        ("0.30.0", "core/kv_cache_utils.py", "# Reserve the null block BlockPool", True),
        ("0.31.0", "core/kv_cache_utils.py", "# Reserve the null block BlockPool", True),
        ("0.32.0", "core/kv_cache_utils.py", "# Reserve the null block BlockPool", True),
        ("0.33.0", "core/kv_cache_planning.py", "# Reserve the null block BlockPool", True),
        ("0.30.0", "hisparse/layout.py", "max_model_len, gpu_block_size) + 2", False),
        ("0.31.0", "hisparse/layout.py", "max_model_len, gpu_block_size) + 2", True),
        ("0.32.0", "hisparse/layout.py", "max_model_len, gpu_block_size) + 2", True),
        ("0.33.0", "hisparse/layout.py", "max_model_len, gpu_block_size) + 2", True),
        ("0.30.0", "hisparse/layout.py", "def get_hisparse_gpu_memory_usage", True),
        ("0.31.0", "hisparse/layout.py", "def get_hisparse_gpu_memory_usage", False),
    ],
)
def test_the_start_up_check_reads_as_described(
    version: str, file: str, line: str, there: bool
) -> None:
    source = release_source(version) / "vllm" / "v1" / file
    assert (line in source.read_text(encoding="utf-8")) == there
