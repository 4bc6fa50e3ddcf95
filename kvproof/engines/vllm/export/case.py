"""Export a case as a stand-alone pytest file that needs nothing but vLLM and pytest."""

from __future__ import annotations

from collections.abc import Callable

from kvproof.engines.vllm.export.manager import export_manager_test
from kvproof.engines.vllm.export.scheduler import export_scheduler_test
from model.program import Level
from specs.casefile import CaseFile

EXPORTERS: dict[Level, Callable[[CaseFile], str]] = {
    "manager": export_manager_test,
    "scheduler": export_scheduler_test,
}


def export_test(case: CaseFile) -> str:
    """The text of a pytest file that fails where the case's rule is broken.

    Raises ``ExportError``.
    """
    return EXPORTERS[case.level](case)
