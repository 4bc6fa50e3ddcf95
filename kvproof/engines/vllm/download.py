"""Sources from the package index: found, downloaded, compared with their hash and unpacked.

Imported when something is missing, for the library that talks to indexes costs a second.
"""

from __future__ import annotations

import logging
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TypeVar

from packaging.version import Version
from unearth import HashMismatchError, Package, PackageFinder
from unearth.errors import UnpackError
from unearth.preparer import HTTPErrors, download_link

from kvproof.engines.vllm.release import COORDINATOR
from kvproof.errors import CouldNotRun
from kvproof.provision.finder import finder_in, named
from kvproof.provision.indexes import Indexes, configured_indexes
from kvproof.provision.progress import Report, reported
from model.releases import OLDEST

FIRST_WITH_HISPARSE = OLDEST.version
# The folders under test: their files vouch for a cached release.
VOUCHING_FOLDERS = ("vllm/v1/core", "vllm/v1/hisparse", "vllm/v1")
ATTEMPTS = 3
PAUSE_SECONDS = 0.5

T = TypeVar("T")


def fetch(version: Version, folder: Path) -> list[str]:
    """Fill ``folder`` with the release's sources; returns the files that vouch for them."""
    indexes = configured_indexes()
    downloads = folder / "download"
    with reported(f"provisioning vllm {version}") as report:
        finder = finder_in(indexes)
        package = _find(version, finder, indexes)
        archive = _download(package, finder, downloads, report)
        extract(archive, folder, report)
        shutil.rmtree(downloads, ignore_errors=True)
        if not (folder / COORDINATOR).is_file():
            raise _no_hisparse(version)
    return vouching_files(folder)


def vouching_files(source: Path) -> list[str]:
    files = (file for name in VOUCHING_FOLDERS for file in (source / name).glob("*.py"))
    return sorted(str(file.relative_to(source)) for file in files)


def published_versions() -> list[Version]:
    """All versions, but yanked ones, of which the package index has the sources, oldest first.

    Raises ``CouldNotRun`` when it cannot be asked, or knows no vLLM at all.
    """
    indexes = configured_indexes()
    what = f"look up vllm in {named(indexes)}"
    with _collected_warnings() as warnings:
        finder = finder_in(indexes)
        packages = _patiently(lambda: list(finder.find_all_packages("vllm")), what)
    if not packages:
        raise CouldNotRun(f"cannot {what}: {(warnings or ['it lists none'])[0]}")
    return sorted({Version(package.version) for package in packages if package.version})


def _find(version: Version, finder: PackageFinder, indexes: Indexes) -> Package:
    """The source distribution of exactly that version."""
    with _collected_warnings() as warnings:
        packages = _patiently(
            lambda: list(finder.find_all_packages("vllm", allow_yanked=True)),
            f"look up vllm {version} in {named(indexes)}",
        )
    for package in packages:
        if package.version and Version(package.version) == version:
            if version < Version(FIRST_WITH_HISPARSE):  # known without a download of 40 MB
                raise _no_hisparse(version)
            return package
    raise _unknown_version(version, packages, indexes, warnings)


def _no_hisparse(version: Version) -> CouldNotRun:
    return CouldNotRun(
        f"vllm {version} has no HiSparse; kvproof needs {FIRST_WITH_HISPARSE} or later"
    )


def _unknown_version(
    version: Version, packages: Sequence[Package], indexes: Indexes, warnings: list[str]
) -> CouldNotRun:
    found = {Version(package.version) for package in packages if package.version}
    usable = sorted(v for v in found if v >= Version(FIRST_WITH_HISPARSE))
    hint = f" ({warnings[0]})" if warnings and not found else ""
    known = ", ".join(map(str, usable[-12:])) or "none"
    return CouldNotRun(
        f"there is no source distribution of vllm {version}{hint}; "
        f"usable versions: {known} (looked in {named(indexes)})"
    )


def _download(package: Package, finder: PackageFinder, folder: Path, report: Report) -> Path:
    """The archive, its hash compared with the index's; a local file is used where it lies."""
    link = package.link

    def download() -> Path:
        return download_link(
            finder.session,
            link,
            folder,
            link.hash_option,
            download_reporter=lambda _, done, total: report("download", done, total),
        )

    try:
        return _patiently(download, f"download {link.redacted}")
    except HashMismatchError:
        raise CouldNotRun(
            f"{link.redacted} does not have the hash that the package index gives for it; "
            "try again, and if it stays so, distrust that index"
        ) from None
    except FileNotFoundError:
        raise CouldNotRun(f"{link.redacted} is listed by its index but is not there") from None
    except UnpackError as error:
        raise CouldNotRun(f"{link.redacted}: {error}; try again later") from None


def _patiently(action: Callable[[], T], what: str) -> T:
    """Do it over the network, which deserves a second chance."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return action()
        except ValueError as error:  # such as an address of an index that is none
            raise CouldNotRun(f"cannot {what}: {error}; correct that setting") from error
        except HTTPErrors as error:
            if attempt == ATTEMPTS:
                reason = str(error) or type(error).__name__
                raise CouldNotRun(
                    f"cannot {what}: {reason}; check the network and the package index "
                    "(pip's or uv's configuration), or provision while online"
                ) from error
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable: the last attempt returns or raises")


def extract(archive: Path, folder: Path, report: Report) -> None:
    """Unpack the Python files of the engine and of its own v1 tests, and nothing else."""
    try:
        with tarfile.open(archive, "r:*") as tar:
            for count, member in enumerate(tar):
                target = _wanted(member)
                content = tar.extractfile(member) if target else None
                if target and content:
                    _write(folder / target, content.read())
                report("unpack", count, None)
    except (tarfile.TarError, EOFError) as error:
        raise CouldNotRun(f"{archive.name} is not a whole archive ({error}); try again") from error


def _wanted(member: tarfile.TarInfo) -> PurePosixPath | None:
    """Where a member goes, below ``vllm/`` or ``tests/``; None for all that is left out.

    The first part of its name is the archive's own folder.  Links, devices and names that lead
    elsewhere are not wanted, whatever they are called.
    """
    path = PurePosixPath(member.name)
    inner = PurePosixPath(*path.parts[1:])
    if not member.isfile() or path.is_absolute() or ".." in path.parts or inner.suffix != ".py":
        return None
    of_engine = inner.parts[0] == "vllm"
    of_tests = inner.parts[:2] == ("tests", "v1") or inner.parent == PurePosixPath("tests")
    return inner if of_engine or of_tests else None


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """Keep the library's warnings for an error message; alone they would only be noise."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("unearth")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
