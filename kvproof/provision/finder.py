"""Asks package indexes: made of what pip and uv are configured to use."""

from __future__ import annotations

import ssl
from pathlib import Path

from unearth import Link, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import PyPIClient

from kvproof.errors import CouldNotRun
from kvproof.provision.indexes import Indexes


def finder_in(indexes: Indexes) -> PackageFinder:
    """A finder of source distributions in exactly these places."""
    client = PyPIClient(
        trusted_hosts=indexes.trusted_hosts,
        verify=_certificates(indexes.cert) if indexes.cert else True,
        timeout=indexes.timeout_seconds,
        proxy=indexes.proxy,
        follow_redirects=True,
    )
    client.auth = MultiDomainBasicAuth(index_urls=list(indexes.index_urls))
    finder = PackageFinder(
        client,  # type: ignore[arg-type]  # its own default; only its annotations disagree
        find_links=indexes.find_links,
        trusted_hosts=indexes.trusted_hosts,
        no_binary=[":all:"],
        ignore_compatibility=True,  # sources are only read; no build tag can matter
    )
    # With nothing given, the constructor assumes PyPI, which --no-index forbids.
    finder.sources = [s for s in finder.sources if s["type"] == "find_links"]
    for url in indexes.index_urls:
        finder.add_index_url(url)
    return finder


def named(indexes: Indexes) -> str:
    """For a message: every place looked at, without the passwords in it."""
    links = [Link(place).redacted for place in indexes.index_urls + indexes.find_links]
    return ", ".join(links) or "no index at all"


def _certificates(cert: str) -> ssl.SSLContext:
    if Path(cert).is_dir():
        return ssl.create_default_context(capath=cert)
    if not Path(cert).is_file():
        raise CouldNotRun(f"pip's option cert names {cert}, which is not there; correct it")
    return ssl.create_default_context(cafile=cert)
