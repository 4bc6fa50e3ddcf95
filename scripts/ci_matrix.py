"""The releases on which CI runs the gate, as an output of a step: those that are to be clean.

    python scripts/ci_matrix.py >> "$GITHUB_OUTPUT"

Needs nothing but Python.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.releases import SOUND


def output() -> str:
    return f"releases={json.dumps([release.version for release in SOUND])}"


if __name__ == "__main__":
    print(output())
