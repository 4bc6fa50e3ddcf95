"""Export a case as a stand-alone pytest file that needs nothing but vLLM and pytest."""

from __future__ import annotations

from kvproof.engines.vllm.export.manager import export_manager_test
from kvproof.engines.vllm.export.scheduler import export_scheduler_test
from specs.casefile import CaseFile


def export_test(case: CaseFile) -> str:
    """The text of a pytest file that fails where the case's rule is broken.

    Raises ``ExportError``.
    """
    if case.level == "scheduler":
        return export_scheduler_test(case)
    return export_manager_test(case)
