"""Which row of ``model/releases.py`` an engine is compared under: its own, or else the newest one,
and then every report says so."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from model.dialect import Dialect
from model.releases import NEWEST, RELEASES, Release


@dataclass(frozen=True, slots=True)
class Compared:
    """What a subject is compared under, and what a reader of the result has to know of it."""

    dialect: Dialect
    notes: tuple[str, ...] = ()


def compared_as(subject: str, version: str | None) -> Compared:
    """The dialect of a release; without a version, or of one without a row, that of the newest.

    A checkout has no version that could be trusted.
    """
    row = None if version is None else row_of(version)
    if row is not None:
        return Compared(row.dialect)
    note = f"{subject} has no row in model/releases.py: compared under {NEWEST.dialect.name}"
    return Compared(NEWEST.dialect, (note,))


def row_of(version: str) -> Release | None:
    """The row of a release, however its version is written: ``1.2``, ``1.2.0+cu12``."""
    try:
        public = Version(Version(version).public)
    except InvalidVersion:
        return None
    return next((row for row in RELEASES if Version(row.version) == public), None)
