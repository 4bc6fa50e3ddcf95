"""Where packages come from: the user's own configuration of pip and uv, read, never guessed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvproof.errors import CouldNotRun

PYPI = "https://pypi.org/simple/"
# Sections of pip's configuration that matter to a download, the strongest last.
PIP_SECTIONS = ("global", "install", "download", ":env:")


@dataclass(frozen=True, slots=True)
class Indexes:
    """Package indexes (simple API), folders or pages of links, and how to talk to them."""

    index_urls: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    proxy: str | None = None
    timeout_seconds: float = 30.0


def configured_indexes(environ: Mapping[str, str] = os.environ) -> Indexes:
    """What pip and uv are configured to use here (files and environment variables)."""
    pip = _pip_settings()
    uv_default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL")
    default = _without_name(uv_default) if uv_default else pip.get("index-url", PYPI)
    extra = [*uv_extra_indexes(environ), *pip.get("extra-index-url", "").split()]
    links = [*uv_find_links(environ), *pip.get("find-links", "").split()]
    no_index = _is_on(environ.get("UV_NO_INDEX")) or _is_on(pip.get("no-index"))
    return Indexes(
        index_urls=() if no_index else _unique([default, *extra]),
        # pip passes over a folder that is not there, and so must this.
        find_links=_unique(link for link in links if "://" in link or Path(link).exists()),
        trusted_hosts=_unique(
            [*environ.get("UV_INSECURE_HOST", "").split(), *pip.get("trusted-host", "").split()]
        ),
        cert=pip.get("cert"),
        proxy=pip.get("proxy"),
        timeout_seconds=float(pip.get("default-timeout", pip.get("timeout", "30"))),
    )


def uv_settings_as_pip_options(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The UV_* index settings as options for pip, which reads its own configuration itself."""
    options = []
    if default := environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL"):
        options += ["--index-url", _without_name(default)]
    for url in uv_extra_indexes(environ):
        options += ["--extra-index-url", url]
    for place in uv_find_links(environ):
        options += ["--find-links", place]
    for host in environ.get("UV_INSECURE_HOST", "").split():
        options += ["--trusted-host", host]
    return [*options, "--no-index"] if _is_on(environ.get("UV_NO_INDEX")) else options


def uv_extra_indexes(environ: Mapping[str, str]) -> list[str]:
    named = environ.get("UV_INDEX", "").split()
    return [_without_name(url) for url in named] + environ.get("UV_EXTRA_INDEX_URL", "").split()


def uv_find_links(environ: Mapping[str, str]) -> list[str]:
    return [part.strip() for part in environ.get("UV_FIND_LINKS", "").split(",") if part.strip()]


def _pip_settings() -> dict[str, str]:
    """pip's settings by option name, as pip itself merges its files and PIP_* variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        reason = (listing.stderr.strip().splitlines() or ["no output"])[-1]
        raise CouldNotRun(f"pip's configuration cannot be read: {reason}; correct it and try again")
    return parse_pip_settings(listing.stdout)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """Read lines such as ``global.index-url='https://...'``; stronger sections win."""
    found: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in found:
            found[section][option] = str(ast.literal_eval(value))
    merged: dict[str, str] = {}
    for section in PIP_SECTIONS:
        merged |= found[section]
    return merged


def _without_name(url: str) -> str:
    """uv lets an index have a name, ``name=url``; pip and unearth know only the URL."""
    return re.sub(r"^[\w-]+=(?=\w+:|/)", "", url)


def _is_on(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on", "y", "t")


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
