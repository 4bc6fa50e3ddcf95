"""From the name of a subject to the subject."""

from __future__ import annotations

from dataclasses import replace

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
from kvproof.subjects.reference import ReferenceSubject
from kvproof.subjects.rows import Compared, compared_as
from kvproof.subjects.subject import Subject
from kvproof.subjects.worker import PROGRAM_SECONDS, EngineSubject
from model.dialect import Dialect
from model.program import Level
from model.releases import DIALECTS


def open_subject(
    name: str,
    level: Level = "manager",
    load: Load = "focused",
    dialect: str | None = None,
    timeout: float = PROGRAM_SECONDS,
    shadow: bool = True,
) -> Subject:
    """Open what the name names: one of the ``FORMS``, or a subject that the user registered.

    ``load`` matters for engines only; ``dialect`` is what the subject is compared with instead of
    its own; ``timeout`` is the time for one program, in seconds; ``shadow`` lets the model follow
    the allocator where the level is judged beside the engine. A release is provisioned now if need
    be. Raises ``CouldNotRun``, also for the reference at a level that it does not have.
    """
    compared_with = None if dialect is None else dialect_named(dialect)
    form, alias = _form(name)
    if not isinstance(form, ReferenceName):
        engine = _engine(form, alias, load)
        compared = _compared(form, engine.name)
        if compared_with is not None:
            compared = Compared(compared_with)
        return EngineSubject(engine, level, compared.dialect, timeout, shadow, compared.notes)
    if level not in ReferenceSubject.levels:
        raise CouldNotRun(
            f"{name} has no {level}: the reference is a model of the allocator; "
            "name vllm==VERSION or vllm@PATH"
        )
    runs_as = dialect_named(form.dialect)
    own_name = f"reference:{form.dialect}"
    return ReferenceSubject(runs_as, compared_with or runs_as, alias or own_name)


def is_checkout(name: str) -> bool:
    """Whether it names code in a folder, by itself or by a name that the user gave it."""
    try:
        form, _ = _form(name)
    except CouldNotRun:
        return False
    return isinstance(form, CheckoutName)


def has_level(name: str, level: Level) -> bool:
    """Whether the name is one of a subject that has the level; what cannot be opened has none."""
    try:
        form, _ = _form(name)
    except CouldNotRun:
        return False
    return not isinstance(form, ReferenceName) or level in ReferenceSubject.levels


def dialect_named(name: str) -> Dialect:
    """Raises ``CouldNotRun`` when there is no such dialect."""
    if name not in DIALECTS:
        raise CouldNotRun(f"there is no dialect {name!r}; dialects: {', '.join(DIALECTS)}")
    return DIALECTS[name]


def notes_on(name: str) -> tuple[str, ...]:
    """What a reader of any result on that subject has to know; nothing of one that has no form."""
    try:
        form, alias = _form(name)
    except CouldNotRun:
        return ()
    return () if isinstance(form, ReferenceName) else _compared(form, alias or name).notes


def _compared(form: ReleaseName | CheckoutName, name: str) -> Compared:
    return compared_as(name, form.version if isinstance(form, ReleaseName) else None)


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


def _engine(form: ReleaseName | CheckoutName, alias: str | None, load: Load) -> Engine:
    """The engine, ready to be started; raises ``CouldNotRun``."""
    if isinstance(form, ReleaseName):
        engine = provision_release(form.version, load)
    else:
        engine = provision_checkout(form.path, load)
    return replace(engine, name=alias or engine.name)


def _unknown(name: str, registered: dict[str, str]) -> CouldNotRun:
    known = f", or one of yours: {', '.join(sorted(registered))}" if registered else ""
    dialects = ", ".join(DIALECTS)
    return CouldNotRun(f"there is no subject {name!r}; write {FORMS}{known} (dialects: {dialects})")
