"""An engine that is ready to be started: its sources and the interpreter to load them in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvproof.engines.vllm.environment import Load, engine_python
from kvproof.engines.vllm.release import COORDINATOR, release_source
from kvproof.errors import CouldNotRun


@dataclass(frozen=True, slots=True)
class Engine:
    """``name`` is the subject's (``vllm==VERSION``, ``vllm@/path``); ``source`` holds ``vllm/``."""

    name: str
    source: Path
    python: Path
    load: Load


def provision_release(version: str, load: Load) -> Engine:
    """A released vLLM, from the cache or provisioned into it; raises ``CouldNotRun``."""
    source = release_source(version)
    return Engine(f"vllm=={source.name}", source, engine_python(load), load)


def provision_checkout(path: Path, load: Load) -> Engine:
    """The user's own checkout, used where it is; raises ``CouldNotRun`` when it has no HiSparse."""
    source = path.expanduser().absolute()
    if not source.is_dir():
        raise CouldNotRun(f"{path} is not a folder; give the root of a vLLM checkout")
    if not (source / COORDINATOR).is_file():
        raise CouldNotRun(
            f"{path} holds no {COORDINATOR}; give the root of a vLLM checkout that has HiSparse"
        )
    return Engine(f"vllm@{path}", source, engine_python(load), load)
