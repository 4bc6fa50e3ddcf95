"""Subjects that the user gave a name to, in a small file in the user's configuration folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_config_path

from kvproof.errors import CouldNotRun
from kvproof.subjects.grammar import FORMS, CheckoutName, parse_name

CONFIG_VARIABLE = "KVPROOF_CONFIG_DIR"
FILE = "subjects.json"
FILE_VERSION = 1
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A name that cannot be taken for one of the forms, or for a path."""


def config_root() -> Path:
    """The user's configuration folder: ``$KVPROOF_CONFIG_DIR`` or the platform's."""
    override = os.environ.get(CONFIG_VARIABLE)
    return Path(override).expanduser().absolute() if override else user_config_path("kvproof")


def registered_subjects() -> dict[str, str]:
    """The registered names and what each stands for; raises ``CouldNotRun`` on a broken file."""
    file = config_root() / FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CouldNotRun(f"cannot read {file}: {error.strerror}; make it readable") from error
    except ValueError as error:
        raise _broken(file, f"is not JSON ({error})") from error
    return _checked(file, content)


def add_subject(name: str, subject: str) -> None:
    """Let ``name`` stand for a subject, which need not be there now. Raises ``CouldNotRun``."""
    if not PLAIN_NAME.fullmatch(name):
        raise CouldNotRun(f"{name!r} cannot be a name; use letters, digits, '.', '_' and '-'")
    form = parse_name(subject)
    if form is None:
        raise CouldNotRun(f"{subject!r} is not a subject; write {FORMS}")
    if isinstance(form, CheckoutName):  # it will be used from other working folders
        subject = f"vllm@{form.path.expanduser().absolute()}"
    with _changing() as subjects:
        if subjects.get(name, subject) != subject:
            raise CouldNotRun(
                f"{name} already stands for {subjects[name]}; "
                f"remove it first: kvproof subjects remove {name}"
            )
        subjects[name] = subject


def remove_subject(name: str) -> None:
    """Forget a name; raises ``CouldNotRun`` when it is not registered."""
    with _changing() as subjects:
        if name not in subjects:
            known = ", ".join(sorted(subjects)) or "none"
            raise CouldNotRun(f"there is no subject named {name!r}; names: {known}")
        del subjects[name]


@contextmanager
def _changing() -> Iterator[dict[str, str]]:
    """Change the file as a whole: two processes take turns, and a killed one changes nothing."""
    root = config_root()
    file = root / FILE
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f"{FILE}.lock"):
            subjects = registered_subjects()
            yield subjects
            new = file.with_name(f"{FILE}.new")
            content = {"version": FILE_VERSION, "subjects": subjects}
            new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            new.replace(file)
    except OSError as error:
        raise CouldNotRun(
            f"cannot write {file}: {error.strerror}; "
            f"set {CONFIG_VARIABLE} to a folder that you may write to"
        ) from error


def _checked(file: Path, content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or "version" not in content:
        raise _broken(file, "holds no list of subjects")
    if content["version"] != FILE_VERSION:
        raise _broken(file, f"has version {content['version']!r}, not {FILE_VERSION}")
    subjects = content.get("subjects")
    if not isinstance(subjects, dict):
        raise _broken(file, "holds no list of subjects")
    for name, subject in subjects.items():
        if not isinstance(subject, str) or parse_name(subject) is None:
            raise _broken(file, f"says of {name!r} what is not a subject: {subject!r}")
    return subjects


def _broken(file: Path, what: str) -> CouldNotRun:
    return CouldNotRun(f"{file} {what}; correct it, or delete it and add your subjects again")
