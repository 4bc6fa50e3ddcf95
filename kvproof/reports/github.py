"""GitHub annotations: one line on standard error for each stage that is not clean."""

import os
import sys

from kvproof.gate.events import GateResult
from kvproof.reports.words.gate import details_of


def annotate(result: GateResult) -> None:
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for stage in result.stages:
        if stage.verdict != "clean":
            title = f"kvproof: {stage.name} {stage.subject}: {stage.verdict}"
            text = _escaped("\n".join(details_of(stage.result)))
            print(f"::error title={_escaped_property(title)}::{text}", file=sys.stderr)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    """In a property, what separates properties and ends them is escaped too."""
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
