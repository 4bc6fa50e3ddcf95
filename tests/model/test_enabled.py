"""What the session says is possible now is possible, and what it leaves out is idle."""

from random import Random

import pytest

from model.manager.actions import (
    Action,
    Admit,
    CompleteTransfers,
    EvictBlocks,
    Extend,
    Finish,
    Output,
    Preempt,
    Reset,
)
from model.manager.events import plain
from model.manager.session import Session
from model.reference import ReferenceAllocator
from model.releases import DIALECTS
from specs.exhaustive.checkpoint import Checkpoints
from specs.manager.generator import ReferenceSession, draw_action, draw_program

KINDS: tuple[Action, ...] = (
    Admit(), Extend(), Preempt(), Output(), CompleteTransfers(), Finish(), Reset(), EvictBlocks(),
)  # fmt: skip
DIALECT = DIALECTS["vllm-0.33.0"]


@pytest.mark.parametrize("number", range(12))
def test_what_is_not_enabled_is_idle(number: int) -> None:
    program = draw_program(Random(number), DIALECT, 1)
    session: ReferenceSession = Session(
        program.configuration, ReferenceAllocator(program.configuration, DIALECT)
    )
    random, idle = Random(number), 0
    for _ in range(60):
        enabled = session.enabled()
        for action in KINDS:
            if type(action) not in enabled and len(session.flight) < 2:
                refused = session.refused
                assert plain(session.do(action)) == (("idle",),), (action, enabled)
                session.refused = refused
                idle += 1
        session.do(draw_action(random, session))
    assert idle


def test_the_number_of_choices_is_that_of_requests_and_of_workers() -> None:
    random = Random(3)
    program = draw_program(random, DIALECT, 1, {"num_workers": 2, "num_host_blocks": 1})
    checkpoints = Checkpoints(program.configuration, DIALECT)
    session = checkpoints.start().session
    for _ in range(200):
        enabled = session.enabled()
        if Finish in enabled:
            assert enabled[Finish] == len(session.requests)
        if CompleteTransfers in enabled:
            busy = [w for w in range(2) if session.queued_transfers(w)]
            assert enabled[CompleteTransfers] == len(busy) > 0
        session.do(draw_action(random, session))
