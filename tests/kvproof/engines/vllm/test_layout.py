"""Generated code is laid out as a formatter would have it, and says what the values say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from formatted import assert_formatted

from kvproof.engines.vllm.export.layout import (
    Brackets,
    Code,
    argument,
    call,
    lines_of,
    listed,
    literal,
    plain,
    quoted,
    ranges,
)

LONG = call("use", *(f"argument_{n}" for n in range(10)))
LAID_OUT: list[tuple[Code, str]] = [
    ("pass", "pass"),
    (call("f", "1", argument("name", quoted("x"))), 'f(1, name="x")'),
    (argument("rows", listed(["1", "2"])), "rows=[1, 2]"),
    (ranges([3, 4, 5, 9]), "[*range(3, 6), *range(9, 10)]"),
    (ranges([]), "[]"),
    (literal(SimpleNamespace(a=1, b=SimpleNamespace(c="x", d=None))),
     'SimpleNamespace(a=1, b=SimpleNamespace(c="x", d=None))'),
    (literal(plain), "plain"),
    (literal(object()), "object()"),
    (literal(call("f")), "f()"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "text"), LAID_OUT, ids=[text for _, text in LAID_OUT])
def test_what_is_short_is_one_line(code: Code, text: str) -> None:
    assert list(lines_of(code)) == [text]


def test_what_is_long_has_a_line_for_each_argument_at_any_depth(tmp_path: Path) -> None:
    nested = call("result = outer", LONG, argument("names", Brackets("(", LONG.items, ")")))
    lines = list(lines_of(nested))
    assert lines[:3] == ["result = outer(", "    use(", "        argument_0,"]
    (tmp_path / "laid_out.py").write_text(
        "def outer(*_, **__): ...\ndef use(*_): ...\n".replace("\n", "\n\n\n")
        + "".join(f"{item} = 1\n" for item in LONG.items)
        + "\n".join(lines)
        + "\n"
    )
    assert_formatted(tmp_path)


def test_words_of_others_can_neither_end_a_docstring_nor_escape() -> None:
    assert plain('"""\n\\"x\x00') == "''' /'x "
