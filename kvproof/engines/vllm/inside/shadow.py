"""Put the shadow beside a running engine: in the engine's interpreter, through the recorder."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from invariants.conformance.mirror import Mirror
from invariants.conformance.shadow import Shadow
from kvproof.engines.vllm.inside.agreement import Agreement, Name
from kvproof.engines.vllm.inside.capture import Capture
from kvproof.engines.vllm.inside.recorder import Installation, Tap
from kvproof.engines.vllm.inside.scheduler import EngineScheduler
from model.dialect import Dialect
from model.releases import DIALECTS
from model.request import Request
from model.scheduler.configuration import configuration_of
from model.snapshot import Snapshot

SHADOWED = ("full", "hisparse")
"""Caches that the model has."""


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
    names = tap.names
    state = Capture(engine.manager, engine.coordinator, names.numbers, names.hashes)
    agreement = Agreement(
        engine.manager, engine.coordinator, names.numbers, tap.retained, key_names(names.hashes)
    )
    return shadow


def key_names(contents: Mapping[bytes, int]) -> Name:
    """Names of the keys of the engine's hash map, remembered."""
    utils = import_module("vllm.v1.core.kv_cache_utils")
    known: dict[Any, tuple[int, int]] = {}

    def name(key: Any) -> tuple[int, int]:
        found = known.get(key)
        if found is None:
            content = contents[bytes(utils.get_block_hash(key))]
            found = known[key] = (int(utils.get_group_id(key)), content)
        return found

    return name


def install() -> Installation:
    """Watch the engine's classes; ``remove`` gives them back."""
    return Installation()


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
