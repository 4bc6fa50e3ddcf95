"""Programs made by hand whose size is one number: how does the time per action grow with it?"""

from collections.abc import Iterator
from dataclasses import dataclass

from model.dialect import Dialect
from model.manager.actions import Action, Admit, Arrive, CompleteTransfers, EndStep, Extend, Finish
from model.manager.configuration import Configuration
from model.manager.program import ManagerProgram
from model.program import Program
from model.startup import minimum_blocks, minimum_host_blocks

BLOCK_SIZE = 4
EVERYTHING = 1_000_000
"""More tokens or transfers than there are: the session takes what is possible."""
LIVES = 60
"""Requests that come and go in a program of the pool family."""
CHUNK_PAGES = 8
"""Pages that one step of a program of the context family computes."""
DECODES = 8
"""Tokens that the long request generates before the second one comes."""


@dataclass(frozen=True, slots=True)
class Family:
    title: str
    unit: str
    sizes: tuple[int, ...]

    def program(self, size: int, dialect: Dialect) -> ManagerProgram:
        return pool_program(size) if self is POOL else context_program(size, dialect)


POOL = Family(
    f"Growth with pool size: {LIVES} short requests, one after the other, two of them alike",
    "GPU blocks",
    (16, 64, 256, 1024, 4096),
)
CONTEXT = Family(
    f"Growth with context length: a prefill in chunks of {CHUNK_PAGES} pages, {DECODES} decodes, "
    "then a second request that hits",
    "pages",
    (8, 16, 32, 64, 128, 256, 512),
)


def pool_program(num_blocks: int) -> ManagerProgram:
    """The same few requests at a time, in two pools of this size: most blocks lie free."""
    configuration = Configuration(
        block_size=BLOCK_SIZE, num_blocks=num_blocks, num_host_blocks=num_blocks
    )
    return Program(configuration, tuple(_short_lives()))


def _short_lives() -> Iterator[Action]:
    for life in range(LIVES):
        yield Arrive(family=life // 2, shared=16, prompt=18)
        yield Admit(tokens=EVERYTHING)
        yield EndStep()
        yield CompleteTransfers(count=EVERYTHING)
        yield Extend()
        yield EndStep()
        yield Finish()


def context_program(pages: int, dialect: Dialect) -> ManagerProgram:
    """Requests as long as the engine takes them, in pools somewhat above its start-up minimum."""
    shape = Configuration(
        block_size=BLOCK_SIZE,
        max_model_len=pages * BLOCK_SIZE,
        max_num_batched_tokens=CHUNK_PAGES * BLOCK_SIZE,
    )
    configuration = Configuration(
        block_size=BLOCK_SIZE,
        max_model_len=shape.max_model_len,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        num_blocks=minimum_blocks(shape, dialect) + pages,
        num_host_blocks=minimum_host_blocks(shape, dialect) + 2 * pages,
    )
    return Program(configuration, tuple(_long_lives(pages)))


def _long_lives(pages: int) -> Iterator[Action]:
    tokens = pages * BLOCK_SIZE
    prompt = tokens - DECODES - BLOCK_SIZE
    step = (EndStep(), CompleteTransfers(count=EVERYTHING))
    yield Arrive(shared=tokens, prompt=prompt)
    yield from (Admit(tokens=EVERYTHING), *step)
    for _ in range(prompt // (CHUNK_PAGES * BLOCK_SIZE) + DECODES):
        yield from (Extend(tokens=EVERYTHING), *step)
    yield Arrive(shared=tokens, prompt=prompt)
    yield from (Admit(tokens=EVERYTHING), *step)
    yield from (Extend(0), Extend(1), *step)
    yield from (Finish(), Finish())
