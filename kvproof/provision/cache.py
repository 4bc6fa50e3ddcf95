"""The cache folder: whole entries or none, whatever is killed and whoever else is at work.

An entry is built in a ``.partial`` folder beside it and renamed into place when it is complete,
its manifest written last.  One lock file per entry makes a second process wait and then reuse.
An entry that is whole is used without a lock, without writing and without the network.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from kvproof.errors import CouldNotRun
from kvproof.provision.progress import notice

CACHE_VARIABLE = "KVPROOF_CACHE_DIR"
MANIFEST = "kvproof-manifest.json"
MANIFEST_VERSION = 1

Build = Callable[[Path], Iterable[str]]
"""Fills an empty folder; returns the files in it (relative) whose content vouches for the rest."""


def cache_root() -> Path:
    """The folder for everything that kvproof provisions: ``$KVPROOF_CACHE_DIR`` or the user's."""
    override = os.environ.get(CACHE_VARIABLE)
    return Path(override).expanduser().absolute() if override else user_cache_path("kvproof")


def is_whole(entry: Path) -> bool:
    """Whether every file of the entry's manifest is there, with its size and content."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        files = manifest["files"].items()
        known = manifest["version"] == MANIFEST_VERSION
        return known and all(_fingerprint(entry / name) == print_ for name, print_ in files)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return False


def ensure(
    entry: Path, what: str, build: Build, is_usable: Callable[[Path], bool] = is_whole
) -> Path:
    """The whole entry, built now if it is missing or not usable any more.

    Raises ``CouldNotRun``; the cache then holds what it held before.
    """
    if is_usable(entry):
        return entry
    with cache_errors(what), locked(entry):
        if is_usable(entry):  # another process built it while this one waited
            return entry
        if entry.exists():
            notice(f"the cached copy of {what} is damaged: building it again")
        _build_and_publish(entry, build)
    return entry


def discard(entry: Path, what: str) -> None:
    """Remove an entry; interrupted, it leaves only what the next run clears away."""
    with cache_errors(what), locked(entry):
        shutil.rmtree(_move_aside(entry))


@contextmanager
def locked(entry: Path) -> Iterator[None]:
    """Hold the entry's lock; what a killed process left half made is cleared first."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(entry.with_name(f"{entry.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notice(f"waiting for another kvproof that is building {entry.name}")
        lock.acquire()
    try:
        for leftover in (_partial(entry), _aside(entry)):
            if leftover.exists():
                shutil.rmtree(leftover)
        yield
    finally:
        lock.release()


@contextmanager
def cache_errors(what: str) -> Iterator[None]:
    """Turn an error of the file system into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise CouldNotRun(f"{what}: {_advice(error)}") from error


def _advice(error: OSError) -> str:
    root = cache_root()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk that holds {root} is full; free some space there, "
            f"or set {CACHE_VARIABLE} to a folder on another disk"
        )
    reason = error.strerror or str(error)
    return (
        f"cannot write to the cache folder {root} ({reason}); "
        f"set {CACHE_VARIABLE} to a folder that you may write to"
    )


def _build_and_publish(entry: Path, build: Build) -> None:
    partial = _partial(entry)
    partial.mkdir()
    try:
        fingerprints = {name: _fingerprint(partial / name) for name in build(partial)}
        manifest = {"version": MANIFEST_VERSION, "files": fingerprints}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
        if entry.exists():
            shutil.rmtree(_move_aside(entry))
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _fingerprint(file: Path) -> str:
    content = file.read_bytes()
    return f"{len(content)}:{hashlib.sha256(content).hexdigest()}"


def _partial(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}.partial")


def _aside(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}.removed")


def _move_aside(entry: Path) -> Path:
    """Take an entry out of use in one step, since removing its files takes many."""
    return entry.rename(_aside(entry))
