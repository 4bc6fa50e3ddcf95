"""GitHub annotations: one line on standard error for each stage that is not clean."""

import os
import sys

from kvproof.gate import GateResult


def annotate(result: GateResult) -> None:
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for stage in result.stages:
        if stage.verdict != "clean":
            title = f"kvproof: {stage.name} {stage.subject}: {stage.verdict}"
            text = _escaped("\n".join(stage.details))
            print(f"::error title={_escaped(title)}::{text}", file=sys.stderr)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
