"""Case files: a program, what it found and what it must do, as versioned, diffable JSON.

A file is of the level of the manager, or it says ``"level": "scheduler"``: whole engine steps.
A file may come from anywhere, so reading trusts nothing: whatever is wrong with it is one line
that names the file, the place in it and what to do.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, fields, make_dataclass
from functools import partial, reduce
from operator import eq, or_
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal, NoReturn, get_args

from cattrs import BaseValidationError, Converter, ForbiddenExtraKeysError, transform_error
from cattrs.gen import make_dict_structure_fn

from invariants.rules import ENDINGS, RULES_OF
from invariants.violation import Cause
from model.languages import LANGUAGES
from model.program import AnyProgram, Language, Level, Program, action_to_json
from specs.expectations import Expectation, problems_of

FORMAT = 1
"""The format that this code writes, and the newest that it reads."""
MAX_BYTES = 64_000_000
MAX_ACTIONS = 100_000
MAX_NUMBER = 1_000_000
"""Largest number of a configuration (blocks, tokens) and of an action (indices, tokens)."""
MAX_PARALLEL = 64
"""Most workers, and most resident groups."""
MAX_PROMPT_TOKENS = 10_000_000
"""Most prompt tokens of all requests together."""
MAX_SEED = 2**64 - 1

DIGEST = re.compile(r"[0-9a-f]{1,64}")
"""A digest is hexadecimal."""

DEFAULT_LEVEL: Level = "manager"
"""Of a file that names none: those of the first kvproof named none."""
ARRIVAL = "Arrive"
"""The action, of each level, that brings a prompt."""
_PARALLEL = ("num_workers", "num_resident_groups")


class CaseFileError(Exception):
    """A case file that cannot be read or written; one line says what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """How the program was found, and what it showed then."""

    rule: str
    step: int
    """Index of the action after which it showed, from 0."""
    evidence: tuple[str, ...]
    subject: str
    dialect: str
    seed: int | None
    """None when it was not drawn: written by hand, or measured."""
    kvproof: str
    """Version of kvproof."""
    cause: Cause | None = None
    """In what way the rule was broken; None in files of a kvproof that did not say."""


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A stored program of any level, and what is known of it."""

    format: int
    about: str
    """What it is, for a reader."""
    program: AnyProgram
    found: Found | None = None
    expect: Expectation | None = None
    digests: tuple[str, ...] = ()
    """At the scheduler level, where the case was found: of the engine's answer to each action, and
    to all that was done after the last one."""

    @property
    def level(self) -> Level:
        return self.program.level


# Writing


def write_case(path: Path, trace: CaseFile) -> None:
    """Write the whole file or leave what was there; raises ``CaseFileError``."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        content = format_case(trace).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(content)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise CaseFileError(
            f"cannot write trace {path} ({_reason(error)}): "
            "choose a file in a folder that you may write to, with free space"
        ) from error


def format_case(trace: CaseFile) -> str:
    """The file's text: every action is one line, and so is every field of the configuration."""
    head: dict[str, Any] = {"format": trace.format}
    head |= {"level": trace.level} if trace.level != DEFAULT_LEVEL else {}
    head |= {"about": trace.about}
    head |= {"found": _found_json(trace.found)} if trace.found else {}
    head |= {"expect": asdict(trace.expect)} if trace.expect else {}
    lines = [f"{_quoted(key)}: {_indented(value, 1)}," for key, value in head.items()]
    lines += [f'"digests": {_quoted(trace.digests)},'] if trace.digests else []
    told = [action_to_json(action) for action in trace.program.actions]
    configuration = _indented(asdict(trace.program.configuration), 2)
    actions = ",\n      ".join(map(_quoted, told))
    lines += [
        '"program": {',
        f'  "configuration": {configuration},',
        f'  "actions": [\n      {actions}\n    ]' if actions else '  "actions": []',
        "}",
    ]
    return "{\n  " + "\n  ".join(lines) + "\n}\n"


def _found_json(found: Found) -> dict[str, Any]:
    told = asdict(found)
    return told if found.cause else {k: v for k, v in told.items() if k != "cause"}


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indented(value: Any, level: int) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text.replace("\n", "\n" + "  " * level)


# Reading


def read_case(path: Path) -> CaseFile:
    """Read and check a trace file; raises ``CaseFileError``."""
    document = _load(path)
    _check_format(path, document)
    level = document.pop("level", DEFAULT_LEVEL)
    converter = _CONVERTERS.get(level) if isinstance(level, str) else None
    if converter is None:
        raise _refused(path, "level", f"{_short(level)} is none of {', '.join(_CONVERTERS)}")
    try:
        trace: CaseFile = converter.structure(document, CaseFile)
    except BaseValidationError as error:
        problem, _, place = transform_error(error, "", _describe_problem)[0].rpartition(" @ ")
        raise _refused(path, place.lstrip("."), problem) from error
    for place, problem in _problems(trace):
        raise _refused(path, place, problem)
    return trace


def _load(path: Path) -> Any:
    """The JSON in the file, whatever it is."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        if not content.strip():
            raise ValueError("it is empty")
        return json.loads(
            content.decode(), parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
        )
    except (OSError, ValueError) as error:
        reason = _reason(error)
    except RecursionError:
        reason = "it is nested too deeply"
    raise CaseFileError(f"cannot read trace {path} ({reason}): give a file that kvproof wrote")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    if isinstance(error, UnicodeEncodeError):
        return "it holds text that is no valid Unicode"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON, or cut off: line {error.lineno}, column {error.colno}: {error.msg}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error).splitlines()[0]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it is not JSON: {name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"it has the key {json.dumps(key)} twice in one object")
        found[key] = value
    return found


def _check_format(path: Path, document: Any) -> None:
    found = document.get("format") if isinstance(document, dict) else None
    if type(found) is not int or found < 1:
        raise CaseFileError(
            f'trace {path} has no "format": 1 at the top, so it is none of kvproof\'s: '
            "give a file that kvproof wrote"
        )
    if found > FORMAT:
        raise CaseFileError(
            f"trace {path} has format {found}; this kvproof reads up to {FORMAT}: upgrade kvproof"
        )


def _refused(path: Path, place: str, problem: str) -> CaseFileError:
    return CaseFileError(f"trace {path}: {place or 'the file'}: {problem}: correct it there")


def _problems(trace: CaseFile) -> Iterable[tuple[str, str]]:
    """(place, problem) of whatever has the right types and is absurd all the same."""
    yield from _problems_of_head(trace)
    configuration, actions = trace.program.configuration, trace.program.actions
    sizes = {name: value for name, value in asdict(configuration).items() if type(value) is int}
    few = {name: sizes.pop(name) for name in _PARALLEL if name in sizes}
    yield from _outside("program.configuration", sizes, MAX_NUMBER)
    yield from _outside("program.configuration", few, MAX_PARALLEL)
    if len(actions) > MAX_ACTIONS:
        yield "program.actions", f"{len(actions)} actions are more than {MAX_ACTIONS}"
    prompt_tokens = 0
    for index, action in enumerate(actions):
        numbers = {k: v for k, v in asdict(action).items() if type(v) in (int, bool)}
        yield from _outside(f"program.actions[{index}]", numbers, MAX_NUMBER)
        prompt_tokens += action.prompt if type(action).__name__ == ARRIVAL else 0
    if prompt_tokens > MAX_PROMPT_TOKENS:
        yield "program.actions", f"{prompt_tokens} prompt tokens are more than {MAX_PROMPT_TOKENS}"
    yield from _wrong_digests(trace)
    yield from LANGUAGES[trace.level].problems(trace.program)


def _problems_of_head(trace: CaseFile) -> Iterable[tuple[str, str]]:
    rules = {*RULES_OF[trace.level], *(ending.id for ending in ENDINGS)}
    if trace.found is not None:
        yield from _outside("found", {"step": trace.found.step}, MAX_ACTIONS)
        yield from _outside("found", {"seed": trace.found.seed or 0}, MAX_SEED)
        yield from _unknown_rule("found", trace.found.rule, rules)
    if trace.expect is not None:
        yield from _unknown_rule("expect", trace.expect.rule, rules)
        yield from problems_of(trace.expect)


def _unknown_rule(place: str, rule: str, rules: Collection[str]) -> Iterable[tuple[str, str]]:
    """A rule that nobody judges would never fail."""
    if rule not in rules:
        yield f"{place}.rule", f"there is no rule {rule!r}"


def _wrong_digests(trace: CaseFile) -> Iterable[tuple[str, str]]:
    most = len(trace.program.actions) + 1
    if trace.digests and trace.level == DEFAULT_LEVEL:
        yield "the file", 'unknown key "digests": only the scheduler level has them'
    if len(trace.digests) > most:
        yield "digests", f"{len(trace.digests)} digests are more than {most}"
    for index, digest in enumerate(trace.digests):
        if not DIGEST.fullmatch(digest):
            yield f"digests[{index}]", f"{_short(digest)} is not hexadecimal"


def _outside(place: str, numbers: dict[str, int], most: int) -> Iterable[tuple[str, str]]:
    for name, value in numbers.items():
        if not 0 <= value <= most:
            yield f"{place}.{name}", f"{_short(value)} is not between 0 and {most}"


# The converter: cattrs, but every value must already have its type.


def _new_converter(language: Language[Any, Any]) -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for plain in _WORDS:
        converter.register_structure_hook(plain, _strict)
    converter.register_structure_hook_func(_is_literal, _one_of)
    converter.register_structure_hook_func(
        lambda kind: kind == int | None,
        lambda value, _: None if value is None else _strict(value, int),
    )
    converter.register_structure_hook_func(lambda kind: kind == Cause | None, _cause)
    converter.register_structure_hook_func(
        lambda kind: isinstance(kind, GenericAlias) and kind.__origin__ is tuple,
        lambda value, kind: _list(converter, value, get_args(kind)[0]),
    )
    actions = reduce(or_, language.actions)
    converter.register_structure_hook_func(partial(eq, actions), _action_hook(converter, language))
    for record in (*language.actions, language.configuration, Found, Expectation):
        converter.register_structure_hook(record, _record_hook(converter, record))
    shape = make_dataclass(
        "Program",
        [
            ("configuration", language.configuration),
            ("actions", GenericAlias(tuple, (actions, ...))),
        ],
    )
    structure = _record_hook(converter, shape)

    def program(value: Any, _: Any) -> AnyProgram:
        read = structure(value, shape)
        return Program(read.configuration, read.actions)

    converter.register_structure_hook_func(partial(eq, AnyProgram), program)
    converter.register_structure_hook(CaseFile, _record_hook(converter, CaseFile))
    return converter


_WORDS: dict[type, str] = {
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _strict(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{_short(value)} is not {_WORDS[kind]}")
    if isinstance(value, str):
        value.encode()  # half a surrogate pair can be neither shown nor written
    return value


def _is_literal(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is Literal


def _one_of(value: Any, kind: Any) -> Any:
    """One of a few words."""
    if value not in get_args(kind):
        raise TypeError(f"{_short(value)} is none of {', '.join(get_args(kind))}")
    return value


def _cause(value: Any, _: Any) -> Cause | None:
    if value is not None and value not in list(Cause):
        raise TypeError(f"{_short(value)} is no cause of a violation")
    return None if value is None else Cause(value)


def _list(converter: Converter, value: Any, kind: Any) -> tuple[Any, ...]:
    items: list[Any] = converter.structure(_strict(value, list), list[kind])
    return tuple(items)


def _record_hook(converter: Converter, record: type) -> Callable[[Any, Any], Any]:
    structure: Callable[[Any, Any], Any] = make_dict_structure_fn(record, converter)
    return lambda value, kind: structure(_strict(value, dict), kind)


def _action_hook(converter: Converter, language: Language[Any, Any]) -> Callable[[Any, Any], Any]:
    names = {action.__name__: action for action in language.actions}

    def action(value: Any, _: Any) -> Any:
        fields = dict(_strict(value, dict))
        name = fields.pop("action", None)
        if type(name) is not str or name not in names:
            raise TypeError(f"{_short(name)} is no action (known: {', '.join(names)})")
        return converter.structure(fields, names[name])

    return action


def _describe_problem(error: BaseException, _: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join(field.name for field in fields(error.cl) if field.init)
        return f"unknown key {', '.join(map(_short, sorted(error.extra_fields)))} (known: {known})"
    if isinstance(error, KeyError):
        return "it is missing"
    if isinstance(error, UnicodeEncodeError):
        return _reason(error)
    return str(error)


def _short(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return _WORDS[type(value)]
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_CONVERTERS: dict[str, Converter] = {
    language.level: _new_converter(language) for language in LANGUAGES.values()
}
