"""Consoles that show what a file or a name holds as text, whatever that is."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_PICTURES = {
    code: chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t"
}


def shown(text: str) -> str:
    """The text with a picture in place of each control character, but ends of lines and tabs.

    What a case file or a log says must not move the cursor, or colour a verdict.
    """
    return text.translate(_PICTURES)


class SafeConsole(Console):
    """A console on which only the console itself controls the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown(segment.text))


def errors(**options: Any) -> SafeConsole:
    """The console of standard error."""
    return SafeConsole(stderr=True, **options)
