"""Put the shadow beside a running engine: in the engine's interpreter, through the recorder."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from invariants.conformance.mirror import Mirror
from invariants.conformance.shadow import Shadow
from kvproof.engines.vllm.inside.agreement import Agreement
from kvproof.engines.vllm.inside.capture import Capture
from kvproof.engines.vllm.inside.missing import require
from kvproof.engines.vllm.inside.names import KeyNames
from kvproof.engines.vllm.inside.recorder import (
    HISPARSE,
    POOL,
    PREDICTOR,
    RECORDED,
    SCHEDULER,
    Installation,
    Tap,
    engine_class,
)
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from model.dialect import Dialect
from model.releases import DIALECTS
from model.request import Request
from model.scheduler.configuration import configuration_of
from model.snapshot import Snapshot

SHADOWED = ("full", "hisparse")
"""Caches that the model has."""
BY_UPDATES = ("take_residency_updates", "advance_scheduled")
BY_TABLES = ("take_block_table_updates",)
MOVED = (*BY_UPDATES, *BY_TABLES)
"""How workers hear of residency: of what changed (later releases), or whole tables."""
OBSERVED = (
    (PREDICTOR, "get_num_blocks_to_allocate"),
    (POOL, "get_new_blocks"),
    (HISPARSE, "_publish_host_blocks_if_ready"),
    (SCHEDULER, "schedule"),
)
"""What the recorder notes beside the calls themselves."""
CALLS = "which calls the allocator gets"


def shadow_of(engine: EngineScheduler, dialect: Dialect) -> Shadow | None:
    """A shadow of an engine that did nothing yet; None if the model has no such cache.

    The process must have an ``Installation`` of the recorder, made once before.
    """
    if engine.setup.cache not in SHADOWED:
        return None
    configuration = configuration_of(engine.setup)

    def capture(
        requests: Sequence[Request], scheduled: Mapping[int, int], deferred: Sequence[int]
    ) -> Snapshot:
        return state.snapshot(requests, scheduled, [tap.retained[number] for number in deferred])

    def agrees(mirror: Mirror) -> bool:
        return agreement.holds(mirror)

    shadow = Shadow(configuration, dialect, capture, agrees)
    tap = Tap(engine.manager, shadow.feed, own_classes=False, number=int, strict=True)
    names, name = tap.names, KeyNames(tap.names.hashes)
    state = Capture(engine.view, names.numbers, name)
    agreement = Agreement(engine.view, names.numbers, tap.retained, name)
    return shadow


def install() -> Installation:
    """Watch the engine's classes; ``remove`` gives them back.

    Raises ``EngineUnlikeError`` for an engine with a call that the model would never hear of.
    """
    for place, methods in RECORDED.items():
        owner = _class_of(place)
        require(owner, *[name for name in methods if name not in MOVED], why=CALLS)
    for place, name in OBSERVED:
        require(_class_of(place), name, why=CALLS)
    coordinator = _class_of(HISPARSE)
    by_updates = hasattr(coordinator, "take_residency_updates")
    told = BY_UPDATES if by_updates else BY_TABLES
    require(coordinator, *told, why=CALLS)
    return Installation()


def _class_of(place: tuple[str, str]) -> Any:
    owner = engine_class(place)
    if owner is None:
        require(import_module(place[0]), place[1], why=CALLS)
    return owner


class Shadows:
    """Shadows of the engines of one process: the engine's classes are watched from the first."""

    def __init__(self) -> None:
        self._installation: Installation | None = None

    def new(self, engine: EngineScheduler, dialect: str) -> Shadow | None:
        """A shadow of an engine that did nothing yet; None if the model has no such cache."""
        if engine.setup.cache not in SHADOWED:
            return None
        self._installation = self._installation or install()
        return shadow_of(engine, DIALECTS[dialect])
