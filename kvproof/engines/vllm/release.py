"""The sources of a vLLM release, taken from its source distribution on the package index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from kvproof.errors import CouldNotRun
from kvproof.provision.cache import cache_root, discard, ensure, is_whole
from model.releases import NEWEST

COORDINATOR = "vllm/v1/hisparse/coordinator.py"
PARTS = 3
"""Numbers of a version as vLLM writes it."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release in the cache: its version and the folder that holds its ``vllm/``."""

    version: str
    source: Path


def release_source(version: str) -> Path:
    """The folder that holds ``vllm/`` of that release; downloaded once, then reused offline.

    Raises ``CouldNotRun`` when the version does not exist or has no HiSparse, and when the
    network, the disk or the cache folder is in the way.
    """
    wanted = _parsed(version)
    entry = _entry(wanted)
    return ensure(entry, f"vllm {wanted}", lambda folder: _fetch(wanted, folder))


def list_provisioned() -> tuple[Release, ...]:
    """The whole releases in the cache, oldest version first."""
    folder = cache_root() / "sources"
    entries = [path for path in folder.iterdir() if is_whole(path)] if folder.is_dir() else []
    return tuple(Release(e.name, e) for e in sorted(entries, key=lambda e: Version(e.name)))


def remove_provisioned(version: str) -> None:
    """Remove a release from the cache; ``CouldNotRun`` when it is not there."""
    entry = _entry(_parsed(version))
    if not entry.exists():
        held = ", ".join(release.version for release in list_provisioned()) or "none"
        raise CouldNotRun(f"vllm {version} is not in the cache; releases there: {held}")
    discard(entry, f"vllm {version}")


def _parsed(version: str) -> Version:
    """However it is written, one release is one version: 1.2 and 1.2.0.0 are 1.2.0."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        raise CouldNotRun(
            f"{version!r} is not a version; write one such as {NEWEST.version}"
        ) from None
    numbers = list(parsed.release)
    while len(numbers) > PARTS and numbers[-1] == 0:
        numbers.pop()
    numbers += [0] * (PARTS - len(numbers))
    written, wanted = (".".join(map(str, each)) for each in (parsed.release, numbers))
    return Version(str(parsed).replace(written, wanted, 1))


def _entry(version: Version) -> Path:
    return cache_root() / "sources" / str(version)


def _fetch(version: Version, folder: Path) -> list[str]:
    from kvproof.engines.vllm.download import fetch  # noqa: PLC0415 - a second, and seldom needed

    return fetch(version, folder)
