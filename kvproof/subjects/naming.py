"""From the name of a subject to the subject."""

from __future__ import annotations

from dataclasses import replace

from packaging.version import Version

from kvproof.errors import CouldNotRun
from kvproof.provision import Load, provision_checkout, provision_release
from kvproof.subjects import registry
from kvproof.subjects.engine import EngineSubject
from kvproof.subjects.grammar import (
    FORMS,
    CheckoutName,
    ReferenceName,
    ReleaseName,
    SubjectName,
    parse_name,
)
from kvproof.subjects.reference import ReferenceSubject
from kvproof.subjects.subject import Subject
from model.dialect import DIALECTS, Dialect

RELEASE_PREFIX = "vllm-"
"""Dialects of releases are named so, with the version."""


def open_subject(
    name: str, load: Load = "focused", dialect: str | None = None, timeout: float = 10.0
) -> Subject:
    """Open what the name names: one of the ``FORMS``, or a subject that the user registered.

    ``load`` matters for engines only; ``dialect`` is what the subject is compared with instead of
    its own; ``timeout`` is the time for one program, in seconds. A release is provisioned now if
    need be. Raises ``CouldNotRun``.
    """
    compared_with = None if dialect is None else dialect_named(dialect)
    form = parse_name(name)
    if form is not None:
        return _open(form, None, load, compared_with, timeout)
    registered = registry.registered_subjects()
    form = parse_name(registered.get(name, ""))
    if form is None:
        raise _unknown(name, registered)
    return _open(form, name, load, compared_with, timeout)


def dialect_named(name: str) -> Dialect:
    """Raises ``CouldNotRun`` when there is no such dialect."""
    if name not in DIALECTS:
        raise CouldNotRun(f"there is no dialect {name!r}; dialects: {', '.join(DIALECTS)}")
    return DIALECTS[name]


def dialect_of_release(version: str) -> Dialect:
    """The dialect of that release; of an unknown one, that of the newest release."""
    return _release_dialects().get(Version(version), newest_dialect())


def newest_dialect() -> Dialect:
    """The dialect of the newest release: what a checkout is most likely to speak."""
    return max(_release_dialects().items())[1]


def _release_dialects() -> dict[Version, Dialect]:
    return {
        Version(name.removeprefix(RELEASE_PREFIX)): dialect
        for name, dialect in DIALECTS.items()
        if name.startswith(RELEASE_PREFIX)
    }


def _open(
    form: SubjectName, alias: str | None, load: Load, dialect: Dialect | None, timeout: float
) -> Subject:
    match form:
        case ReferenceName(own):
            runs_as = dialect_named(own)
            return ReferenceSubject(runs_as, dialect or runs_as, alias or f"reference:{own}")
        case ReleaseName(version):
            engine = provision_release(version, load)
            own_dialect = dialect_of_release(version)
        case CheckoutName(path):
            engine = provision_checkout(path, load)
            own_dialect = newest_dialect()
    engine = replace(engine, name=alias or engine.name)
    return EngineSubject(engine, dialect or own_dialect, timeout)


def _unknown(name: str, registered: dict[str, str]) -> CouldNotRun:
    known = f", or one of yours: {', '.join(sorted(registered))}" if registered else ""
    dialects = ", ".join(DIALECTS)
    return CouldNotRun(f"there is no subject {name!r}; write {FORMS}{known} (dialects: {dialects})")
