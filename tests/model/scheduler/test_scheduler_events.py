"""Events of the scheduler level: read by name, and plain in JSON and digests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from model.scheduler import events
from model.scheduler.events import Event, plain, read

PLAIN: list[tuple[Event, tuple[Any, ...]]] = [
    (events.Idle(), ("idle",)),
    (events.Arrived(3, 8, 2, 4), ("arrived", 3, 8, 2, 4)),
    (events.Ended(0, "length"), ("ended", 0, "length")),
    (events.StepScheduled(2, ((0, 4, 1),), (1,)), ("step", 2, ((0, 4, 1),), (1,))),
    (events.OutputProcessed(2), ("output", 2)),
    (events.TransfersCompleted((4, 5)), ("transferred", (4, 5))),
    (events.LoadEnded(1, None), ("loaded", 1, None)),
    (events.CacheReset(True, False), ("reset", True, False)),
]


@pytest.mark.parametrize(("event", "told"), PLAIN)
def test_an_event_is_plain_in_json_and_is_read_back(event: Event, told: tuple[Any, ...]) -> None:
    assert plain((event,)) == (told,)
    assert read(json.loads(json.dumps([told]))) == (event,)


@pytest.mark.parametrize(
    "told", [5, [5], [[]], [["admitted", 1]], [["ended", 1]], [["output", 1, 2]], [[["a"], 1]]]
)
def test_what_is_no_event_cannot_be_read(told: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        read(told)
