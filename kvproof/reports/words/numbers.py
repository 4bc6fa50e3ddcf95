"""Numbers with their nouns, and lists of them."""

from collections.abc import Iterable


def counted(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(numbers: Iterable[object]) -> str:
    return f"[{' '.join(map(str, numbers))}]"
