"""Ghost contents: the text of requests, and numbers for what a page of it stands for.

Equal numbers mean the same tokens after the same prefix, in the same group of the cache.
"""

from dataclasses import dataclass, field

from model.request import token_at

EMPTY = 0
"""Never written, or zeroed."""
TORN = 1
"""Written in the middle of something else."""

Meaning = tuple[int, int, tuple[int, ...]]
"""(group, number of the prefix before the page, tokens in the page so far)."""


@dataclass(slots=True)
class Contents:
    """Numbers for contents: equal numbers mean the same tokens after the same prefix."""

    block_size: int
    meanings: list[Meaning] = field(default_factory=lambda: [(-1, 0, ()), (-1, 1, ())])
    _numbers: dict[Meaning, int] = field(default_factory=dict)

    def number(self, group: int, prefix: int, tokens: tuple[int, ...]) -> int:
        meaning = (group, prefix, tokens)
        found = self._numbers.get(meaning)
        if found is None:
            found = self._numbers[meaning] = len(self.meanings)
            self.meanings.append(meaning)
        return found

    def meaning(self, number: int) -> str:
        """What a content stands for, in words."""
        if number < 0:
            return "what a failed load left"
        if number in (EMPTY, TORN):
            return "nothing" if number == EMPTY else "a page written in part over another"
        group, prefix, tokens = self.meanings[number]
        return f"tokens {list(tokens)} of group {group} after prefix {prefix}"

    def covers(self, found: int, expected: int) -> bool:
        """Whether a page holds all that is expected in it, and maybe more of the same text."""
        if found == expected or found <= TORN:
            return found == expected
        tokens = self.meanings[expected][2]
        return (
            self.meanings[found][:2] == self.meanings[expected][:2]
            and self.meanings[found][2][: len(tokens)] == tokens
        )

    def write(self, old: int, new: int, offset: int) -> int:
        """The content after a page that holds ``old`` was given the rows of ``new`` from
        ``offset`` on: whatever is equal already stays."""
        group, prefix, tokens = self.meanings[new]
        same_page = old > TORN and self.meanings[old][:2] == (group, prefix)
        there = self.meanings[old][2] if same_page else ()
        if len(there) > len(tokens) and there[: len(tokens)] == tokens:
            return old
        return new if there[:offset] == tokens[:offset] else TORN

    def overwrite(self, old: int, offset: int, source: int, rows: int) -> int:
        """The content after ``rows`` rows from ``offset`` on were copied from another page."""
        group, prefix, tokens = self.meanings[source]
        if group < 0 or len(tokens) < offset + rows:
            return TORN
        return self.write(old, self.number(group, prefix, tokens[: offset + rows]), offset)


@dataclass(slots=True)
class Text:
    """The whole text of a request, which is known in advance: its tokens are a function."""

    contents: Contents
    request: int
    family: int
    shared: int
    salt: int
    known: tuple[int, ...] = ()
    """Its first tokens, as far as they were asked for."""
    _prefixes: list[int] = field(default_factory=list)
    """Number of the prefix before each page."""
    _full: dict[int, list[int]] = field(default_factory=dict)
    """Group → content of each complete page."""
    _parts: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(group, page, filled) → content."""

    def __post_init__(self) -> None:
        self._prefixes = [self.contents.number(-2, self.salt, ())]

    def token(self, position: int) -> int:
        return self.tokens(position, position + 1)[0]

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        if end > len(self.known):
            known = range(len(self.known), 2 * end)
            self.known += tuple(
                [token_at(self.request, self.family, self.shared, position) for position in known]
            )
        return self.known[start:end]

    def pages(self, group: int, count: int) -> list[int]:
        """Contents of the first ``count`` complete pages in a group."""
        known = self._full.setdefault(group, [])
        while len(known) < count:
            page = len(known)
            known.append(self.contents.number(group, self.prefix(page), self._tokens_of(page)))
        return known[:count]

    def part(self, group: int, page: int, filled: int) -> int:
        """Content of a page with its first ``filled`` tokens, which may be all."""
        found = self._parts.get((group, page, filled))
        if found is None:
            first = page * self.contents.block_size
            tokens = self.tokens(first, first + filled)
            found = self.contents.number(group, self.prefix(page), tokens)
            self._parts[group, page, filled] = found
        return found

    def prefix(self, page: int) -> int:
        """The number of all that comes before a page; before the first that is the salt."""
        while len(self._prefixes) <= page:
            last = len(self._prefixes) - 1
            self._prefixes.append(
                self.contents.number(-2, self._prefixes[last], self._tokens_of(last))
            )
        return self._prefixes[page]

    def _tokens_of(self, page: int) -> tuple[int, ...]:
        size = self.contents.block_size
        return self.tokens(page * size, (page + 1) * size)
