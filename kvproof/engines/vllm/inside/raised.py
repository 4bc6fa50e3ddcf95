"""What the engine raises, read in one place: it says "out of blocks" by a message only."""

import re

_OUT_OF_BLOCKS = re.compile(r"Cannot get \d+ free blocks from the pool")


def is_out_of_blocks(error: Exception) -> bool:
    """Whether a pool had too few blocks for what was popped from it."""
    return _OUT_OF_BLOCKS.search(str(error)) is not None
