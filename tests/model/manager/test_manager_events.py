"""Events of the manager level: read by name, and plain in JSON, digests and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model.manager import events
from model.manager.actions import Action, Admit, Arrive, CompleteTransfers, EndStep, Extend
from model.manager.events import Response, plain, read

PLAIN: list[tuple[Action, Response, tuple[Any, ...]]] = [
    (Arrive(), (events.Idle(),), (("idle",),)),
    (Arrive(), (events.Arrived(3, 8),), (("arrived", 3, 8),)),
    (
        Admit(),
        (events.Admitted(1, 16, (5, 4), 4, ((1,), ()), 12),),
        (("admitted", 1, 16, (5, 4), 4, ((1,), ()), 12),),
    ),
    (Extend(), (events.Extended(1, 2, (0,), 0, ((),)),), (("extended", 1, 2, (0,), 0, ((),)),)),
    (Admit(), (events.AdmissionRefused(2, 9, (7,), 4),), (("refused", 2, 9, (7,), 4),)),
    (Extend(), (events.ExtensionRefused(0, 4, (3,), 1),), (("refused", 0, 4, (3,), 1),)),
    (Extend(), (events.Raised("KeyError"),), (("raised", "KeyError"),)),
    (
        EndStep(),
        (events.StepEnded(1, ((4, 0, 9, 5),), (), (0,)), events.OutputProcessed(1)),
        (("step", 1, ((4, 0, 9, 5),), (), (0,)), ("output", 1)),
    ),
    (CompleteTransfers(), (events.TransfersCompleted((4, 5)),), (("completed", 4, 5),)),
]


@pytest.mark.parametrize(("action", "response", "told"), PLAIN)
def test_a_response_is_plain_in_json_and_is_read_back(
    action: Action, response: Response, told: tuple[Any, ...]
) -> None:
    assert plain(response) == told
    assert read(json.loads(json.dumps(told)), action) == response


def test_events_of_different_kinds_are_never_equal() -> None:
    of_a_request: list[events.Event] = [events.Ended(0), events.Preempted(0), events.Deferred(0)]
    refused: list[events.Event] = [
        events.AdmissionRefused(0, 1, (2,), 0),
        events.ExtensionRefused(0, 1, (2,), 0),
    ]
    assert len(set(of_a_request)) == 3
    assert len(set(refused)) == 2


@pytest.mark.parametrize(
    "told", [5, [5], [[]], [["flew", 1]], [["arrived", 1]], [["arrived", 1, 2, 3]], [[["a"], 1]]]
)
def test_what_is_no_event_cannot_be_read(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read(told, Arrive())
