"""From the name of a subject to the subject."""

from __future__ import annotations

from dataclasses import replace

from packaging.version import Version

from kvproof.engines.vllm.engine import Engine, provision_checkout, provision_release
from kvproof.engines.vllm.environment import Load
from kvproof.errors import CouldNotRun
from kvproof.subjects import registry
from kvproof.subjects.grammar import (
    FORMS,
    CheckoutName,
    ReferenceName,
    ReleaseName,
    SubjectName,
    parse_name,
)
from kvproof.subjects.manager import EngineSubject
from kvproof.subjects.reference import ReferenceSubject
from kvproof.subjects.scheduler import SchedulerSubject
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
    form, alias = _form(name)
    if isinstance(form, ReferenceName):
        runs_as = dialect_named(form.dialect)
        own_name = f"reference:{form.dialect}"
        return ReferenceSubject(runs_as, compared_with or runs_as, alias or own_name)
    engine, own_dialect = _engine(form, alias, load)
    return EngineSubject(engine, compared_with or own_dialect, timeout)


def open_scheduler(
    name: str,
    load: Load = "focused",
    dialect: str | None = None,
    timeout: float = 10.0,
    shadow: bool = True,
) -> SchedulerSubject:
    """Open the whole scheduler of the engine that the name names.

    ``dialect`` names the release whose known defects count as known, if not the engine's own;
    with ``shadow`` the model follows every call of the allocator under it.
    Raises ``CouldNotRun``, also for the reference, which is a model of the allocator only.
    """
    known_as = None if dialect is None else dialect_named(dialect)
    form, alias = _form(name)
    if isinstance(form, ReferenceName):
        raise CouldNotRun(
            f"{name} has no scheduler: the reference is a model of the allocator; "
            "name vllm==VERSION or vllm@PATH"
        )
    engine, own_dialect = _engine(form, alias, load)
    return SchedulerSubject(engine, known_as or own_dialect, timeout, shadow)


def has_scheduler(name: str) -> bool:
    """Whether the name is one of an engine; of what it cannot be opened by, it is not."""
    try:
        return not isinstance(_form(name)[0], ReferenceName)
    except CouldNotRun:
        return False


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


def _form(name: str) -> tuple[SubjectName, str | None]:
    """What a name stands for, and the name again if the user gave it. Raises ``CouldNotRun``."""
    form = parse_name(name)
    if form is not None:
        return form, None
    registered = registry.registered_subjects()
    form = parse_name(registered.get(name, ""))
    if form is None:
        raise _unknown(name, registered)
    return form, name


def _engine(
    form: ReleaseName | CheckoutName, alias: str | None, load: Load
) -> tuple[Engine, Dialect]:
    """The engine, ready to be started, and its dialect; raises ``CouldNotRun``."""
    if isinstance(form, ReleaseName):
        engine, dialect = provision_release(form.version, load), dialect_of_release(form.version)
    else:
        engine, dialect = provision_checkout(form.path, load), newest_dialect()
    return replace(engine, name=alias or engine.name), dialect


def _unknown(name: str, registered: dict[str, str]) -> CouldNotRun:
    known = f", or one of yours: {', '.join(sorted(registered))}" if registered else ""
    dialects = ", ".join(DIALECTS)
    return CouldNotRun(f"there is no subject {name!r}; write {FORMS}{known} (dialects: {dialects})")
