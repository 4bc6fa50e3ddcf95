"""Sizes that follow from an engine's settings, the same at both levels."""

STEPS_IN_FLIGHT_ASYNC = 2


def steps_in_flight(asynchronous: bool) -> int:
    return STEPS_IN_FLIGHT_ASYNC if asynchronous else 1


def pages_of(tokens: int, block_size: int) -> int:
    """Pages that so many tokens need, the last of them perhaps in part."""
    return -(-tokens // block_size)
