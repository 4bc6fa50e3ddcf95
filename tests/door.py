"""How a test's own code gets into the engine's interpreter: through the same door as the worker."""

from __future__ import annotations

from pathlib import Path

from kvproof.engines.vllm.inside import start

FILE = str(Path(start.__file__))
OPEN_DOOR = f"import runpy\nrunpy.run_path({FILE!r})['open_door']({start.OWN})\n"
"""What such code begins with, run with ``-P``. It may draw programs there, with ``specs``."""
