"""Lockstep up to renaming of blocks."""

from dataclasses import replace
from random import Random

from kvproof.levels.renaming import Renaming
from model.manager.events import Response
from model.manager.program import ManagerProgram
from model.manager.session import Session
from model.pool import Pool
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from model.snapshot import Snapshot
from specs.manager.generator import draw_program

DIALECT = replace(DIALECTS["vllm-0.33.0"], name="test")


def steps_of(
    program: ManagerProgram, allocator: ReferenceAllocator
) -> list[tuple[Response, Snapshot]]:
    session = Session(program.configuration, allocator)
    return [(session.do(action), session.snapshot()) for action in program.actions]


def reversed_queue(allocator: ReferenceAllocator) -> ReferenceAllocator:
    """The same allocator, whose blocks wait in the other order at the start."""
    allocator.state.gpu.free.reverse()
    allocator.state.host.free.reverse()
    return allocator


def agree(program: ManagerProgram, other: ReferenceAllocator) -> bool:
    ours = steps_of(program, ReferenceAllocator(program.configuration, DIALECT))
    renaming = Renaming(program.configuration.hisparse)
    theirs = steps_of(program, other)
    return all(renaming.agrees(mine, its) for mine, its in zip(ours, theirs, strict=True))


def drawn(seed: int, actions: int = 40) -> ManagerProgram:
    return draw_program(Random(seed), DIALECT, actions)


def test_an_allocator_agrees_with_itself_up_to_renaming() -> None:
    for seed in range(40):
        program = drawn(seed)
        assert agree(program, ReferenceAllocator(program.configuration, DIALECT))


def test_other_block_ids_are_no_difference_until_a_block_is_evicted() -> None:
    agreed = 0
    for seed in range(60):
        program = drawn(seed, actions=12)
        other = reversed_queue(ReferenceAllocator(program.configuration, DIALECT))
        agreed += agree(program, other)
    assert agreed > 40


def test_a_rule_that_differs_is_still_a_difference() -> None:
    flipped = replace(DIALECT, unpin_release_tail_first=False, adopt_at="commit")
    differing = sum(
        not agree(program, ReferenceAllocator(program.configuration, flipped))
        for program in (drawn(seed, 60) for seed in range(60))
    )
    assert differing > 0


def test_a_lost_block_is_still_a_difference() -> None:
    class LeakyPool(Pool):
        def release(self, blocks: object) -> None:
            """Forgets every block."""

    program = drawn(3, 60)
    other = ReferenceAllocator(program.configuration, DIALECT)
    other.state.gpu.__class__ = LeakyPool
    assert not agree(program, other)
