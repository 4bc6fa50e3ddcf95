"""What an exported file says of itself, and which case can be one."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kvproof.engines.vllm.export.layout import plain
from kvproof.errors import CouldNotRun

if TYPE_CHECKING:  # tests export in the engine's interpreter, where there is no reader of files
    from specs.casefile import CaseFile, Found
    from specs.expectations import Expectation

CHECKS = {
    "I1": "check_conservation",
    "I2": "check_accounting",
    "I10": "check_hash_map",
    "I12": "check_quiescence",
    "I13": "check_null_block",
    "I14": "check_host_blocks",
}
"""Rules that the pools show at rest, with the predicate that judges it."""


class ExportError(CouldNotRun):
    """A case that no stand-alone file can reproduce; one line says why."""


def rule_of(case: CaseFile, known: tuple[str, ...]) -> str:
    """The case's rule, which must be one of those that an exported file can judge."""
    source: Found | Expectation | None = case.found or case.expect
    if source is None:
        raise ExportError("the trace names no rule: give it a finding or an expectation")
    if source.rule not in known:
        raise ExportError(
            f"rule {source.rule} has no stand-alone predicate: replay the trace with kvproof, "
            f"or export one of {', '.join(known)}"
        )
    return source.rule


def head(about: str, rule: str, origin: str, outcomes: str) -> str:
    """The docstring of an exported file; ``about`` and ``origin`` may hold words of others."""
    return f"""\
{textwrap.fill(plain(about), 96)}

{textwrap.fill(rule, 96)}

Written by kvproof from a trace{plain(origin)}.
It needs vLLM and pytest, and no GPU:
    VLLM_LOGGING_LEVEL=ERROR pytest THIS_FILE
{outcomes}
"""


def origin_of(found: Found | None) -> str:
    if found is None:
        return ""
    seed = "" if found.seed is None else f" (seed {found.seed})"
    return f" that it found on {found.subject}{seed}"
