"""The interpreters that engines run in: one virtual environment per way of loading."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import venv
from importlib import resources
from pathlib import Path
from typing import Literal

from kvproof.errors import CouldNotRun
from kvproof.provision.cache import cache_root, ensure, is_whole
from kvproof.provision.indexes import uv_settings_as_pip_options
from kvproof.provision.progress import Report, reported

Load = Literal["focused", "full"]


def engine_python(load: Load) -> Path:
    """The Python that has what an engine imports when it is loaded that way.

    Built once per requirement list and Python version, then reused offline.  Raises
    ``CouldNotRun`` when the packages cannot be had or the disk is full.
    """
    requirements = resources.files("kvproof.engines.vllm").joinpath(f"{load}.txt").read_text()
    entry = cache_root() / "environments" / _key(load, requirements)
    ensure(
        entry,
        f"the {load} environment",
        lambda folder: _build(folder, load, requirements),
        # The interpreter that it was made from may be gone since: a link that leads nowhere.
        is_usable=lambda folder: _python(folder).exists() and is_whole(folder),
    )
    return _python(entry)


def _key(load: str, requirements: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    base = f"{sys.implementation.name}-{version} {os.path.realpath(sys.executable)}"
    digest = hashlib.sha256(f"{base}\n{requirements}".encode()).hexdigest()
    return f"{load}-py{version}-{digest[:12]}"


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _build(folder: Path, load: str, requirements: str) -> list[str]:
    """Make the environment in ``folder``; returns the files that vouch for it."""
    with reported(f"installing the packages for {load} loading") as report:
        # kvproof's own pip installs into it: a base Python may come without one.
        venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
        listed = folder / "requirements.txt"
        listed.write_text(requirements)
        _install(folder, listed, report)
    records = folder.glob("lib/python*/site-packages/*.dist-info/RECORD")
    return ["pyvenv.cfg", *sorted(str(record.relative_to(folder)) for record in records)]


def _install(folder: Path, requirements: Path, report: Report) -> None:
    scratch = folder / "tmp"  # on the cache's own disk: wheels of a gigabyte overflow a small /tmp
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "--python", str(_python(folder)), "install"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--requirement", str(requirements), *uv_settings_as_pip_options()]
    lines = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch), "PIP_USER": "0"},
    ) as pip:
        assert pip.stdout is not None
        for count, line in enumerate(pip.stdout):
            lines.append(line.strip())
            report(lines[-1][:60], count, None)
    scratch.rmdir()
    if pip.returncode != 0:
        raise _install_failed(lines)


def _install_failed(lines: list[str]) -> Exception:
    if any("No space left on device" in line for line in lines):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no output"]
    reason = errors[-1].removeprefix("ERROR:").strip()
    return CouldNotRun(
        f"pip could not install the engine's packages: {reason}; "
        "check the network and pip's configuration (python -m pip config list)"
    )
