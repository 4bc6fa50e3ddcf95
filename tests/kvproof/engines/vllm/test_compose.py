"""The composer: whole definitions, in an order that runs, and nothing that a file cannot have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.engines.vllm.export.compose import ComposeError, compose

PARTS = '''\
"""Parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import torch

from made.words import greeting, LOUD

# Why there is a limit.
LIMIT = 3
"""The most of them."""
UNUSED = json.dumps(3)


# Counted,
# and kept.
@dataclass(slots=True)
class Box(Counter[str]):
    size: int = LIMIT

    def fill(self) -> Box:
        """A method may shadow names: ``LOUD`` is a local one here."""
        LOUD = later(self)  # noqa: N806
        return Box(LOUD)


def later(box: Box) -> int:
    return len(greeting(box.size)) + torch.ones(1)


def alone() -> int:
    return json.loads("1")
'''
WORDS = '''\
"""Words."""

from os import path as place

LOUD = str.upper


def greeting(size: int) -> str:
    return LOUD("hello") * size + place.sep
'''
COMPOSED = '''\
"""A head."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from os import path as place

import torch


def test_it() -> None:
    assert Box().fill()


# Why there is a limit.
LIMIT = 3
"""The most of them."""


# Counted,
# and kept.
@dataclass(slots=True)
class Box(Counter[str]):
    size: int = LIMIT

    def fill(self) -> Box:
        """A method may shadow names: ``LOUD`` is a local one here."""
        LOUD = later(self)  # noqa: N806
        return Box(LOUD)


def later(box: Box) -> int:
    return len(greeting(box.size)) + torch.ones(1)


LOUD = str.upper


def greeting(size: int) -> str:
    return LOUD("hello") * size + place.sep
'''
TEST = "def test_it() -> None:\n    assert Box().fill()\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``made``, whose modules are there to be read."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in {"__init__": "", "parts": PARTS, "words": WORDS}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("made")]:
        del sys.modules[name]


def composed(body: str = TEST, **more: str) -> str:
    return compose("A head.", body, ("made.parts", "made.words"), **more)


def test_a_file_has_what_its_test_needs_whole_with_comments_and_nothing_else(made: Path) -> None:
    assert composed() == COMPOSED


def test_what_is_needed_when_something_is_defined_comes_before_it(made: Path) -> None:
    table = "TABLE = make()\n\n\ndef make():\n    return Base()\n\n\n"
    classes = "class Derived(Base):\n    pass\n\n\nclass Base:\n    pass\n"
    (made / "parts.py").write_text(table + classes)
    text = composed("def test_it():\n    assert TABLE, Derived()\n")
    order = [line for line in text.splitlines() if line.startswith(("TABLE", "class ", "def make"))]
    assert order == ["def make():", "class Base:", "TABLE = make()", "class Derived(Base):"]
    exec(compile(text, "composed", "exec"), {})


def test_a_module_that_goes_before_the_engine_is_taken_over_whole(made: Path) -> None:
    (made / "first.py").write_text(
        '"""First."""\n\nimport sys\n\n# Not there.\nsys.modules["x"] = None\n'
    )
    assert composed(before="made.first").partition("\n\n\n")[0] == (
        '"""A head."""\n\nfrom __future__ import annotations\n\nimport sys\n'
        "from collections import Counter\nfrom dataclasses import dataclass\n"
        'from os import path as place\n\n# Not there.\nsys.modules["x"] = None\n\nimport torch'
    )


def test_long_imports_are_wrapped_and_sorted_by_kind(made: Path) -> None:
    names = ["zeta", "Zeta", "ZETA", *(f"alpha{'a' * 10}{n}" for n in range(5))]
    (made / "parts.py").write_text(
        f"from vllm.one import {', '.join(names)}\n\n\ndef use():\n    {'; '.join(names)}\n"
    )
    text = composed("def test_it():\n    use()\n")
    expected = ["ZETA", "Zeta", *names[3:], "zeta"]
    lines = "".join(f"    {name},\n" for name in expected)
    assert f"from vllm.one import (\n{lines})\n" in text


REFUSED = [
    (
        "words",
        "class Box: pass\n",
        TEST,
        "Box is defined in made.parts and made.words: an exported",
    ),
    (
        "words",
        f"{WORDS}\n\nclass Counter: pass\n\n\ndef both(): return Counter\n",
        "def test_it():\n    Box(), both()\n",
        "Counter is both ",
    ),
    ("words", "LOUD = 1\n", TEST, "made.parts.later needs made.words.greeting, which is not among"),
    (
        "words",
        f"from specs import casefile\n{WORDS.replace('LOUD(', 'casefile(')}",
        TEST,
        "made.words.greeting needs specs.casefile, which is not among",
    ),
    ("words", WORDS.replace("place.sep", "nothing"), TEST, "greeting uses nothing, which its mod"),
    ("words", f"{WORDS}\n\nprint(1)\n", TEST, r"made.words does something when it is imp.*line 12"),
    (
        "parts",
        PARTS.replace("greeting, LOUD", "greeting as hello").replace("greeting(", "hello("),
        TEST,
        "made.parts imports made.words.greeting as hello: an exported file has one name",
    ),
    (
        "parts",
        "class A:\n    b = B\n\n\nclass B:\n    a = A\n",
        "def test_it():\n    A()\n",
        "each needs the other when it is defined: A → (B → A|A)",
    ),
    (
        "words",
        WORDS,
        "def test_it():\n    unheard_of()\n",
        "the test uses unheard_of, which no mod",
    ),
    (
        "words",
        WORDS,
        "def later():\n    Box()\n",
        "later is a name of the test and of a definition",
    ),
]


@pytest.mark.parametrize(("module", "text", "body", "message"), REFUSED)
def test_what_makes_no_file_is_refused_in_one_line(
    made: Path, module: str, text: str, body: str, message: str
) -> None:
    (made / f"{module}.py").write_text(text)
    with pytest.raises(ComposeError, match=message) as raised:
        composed(body)
    assert "\n" not in str(raised.value)
