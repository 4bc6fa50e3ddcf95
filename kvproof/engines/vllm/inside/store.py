"""An external KV store as the engine's scheduler sees it; what it answers is set from outside.

The scheduler half of a connector, for the engine's own factory.  It moves no data: it says which
loads are to be made, and the driver makes them and reports their end.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from model.scheduler.plan import External, Load


@dataclass
class StoreMetadata(KVConnectorMetadata):
    """Loads that start with this step."""

    loads: tuple[Load, ...]


class StoreConnector(KVConnectorBase_V1, SupportsHMA):
    """Answers from ``contents``, by request; counts how often "not known yet" was answered."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.contents: dict[int, External] = {}
        self.loading: set[int] = set()
        """Asynchronous loads that started and were not reported as received."""
        self._delayed: dict[int, int] = {}
        self._matched: dict[int, tuple[int, bool]] = {}
        self._starting: deque[Load] = deque()

    @property
    def requires_kv_delivery(self) -> bool:
        """A cache, which may lose what it was to store; it hands nothing over."""
        return False

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        number = int(request.request_id)
        external = self.contents.get(number, External())
        delayed = self._delayed.get(number, 0)
        if delayed < external.delays:
            self._delayed[number] = delayed + 1
            return None, False
        tokens = _usable(external, request) - num_computed_tokens
        if tokens <= 0:
            self._matched.pop(number, None)
            return 0, False
        self._matched[number] = (num_computed_tokens, external.asynchronous)
        return tokens, external.asynchronous

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        number = int(request.request_id)
        matched = self._matched.pop(number, None)
        if num_external_tokens == 0 or matched is None:
            return
        start, asynchronous = matched
        table = tuple([tuple(row) for row in blocks.get_block_ids()])
        self._starting.append(Load(number, start, num_external_tokens, table, asynchronous))
        if asynchronous:
            self.loading.add(number)

    def build_connector_meta(self, scheduler_output: Any) -> StoreMetadata:
        metadata = StoreMetadata(tuple(self._starting))
        self._starting.clear()
        return metadata

    def update_connector_output(self, connector_output: Any) -> None:
        self.loading.difference_update(map(int, connector_output.finished_recving or ()))

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        number = int(request.request_id)
        self.contents.pop(number, None)
        self._delayed.pop(number, None)
        self._matched.pop(number, None)
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return self.request_finished(request, block_ids)

    def reset_cache(self) -> bool:
        """What other engines stored stays; the driver takes it away if it should be gone."""
        return True

    def worker_half(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("loads are made outside the engine")

    start_load_kv = wait_for_layer_load = save_kv_layer = wait_for_save = worker_half


def _usable(external: External, request: Any) -> int:
    """Tokens that a load may bring: a synchronous one leaves the last token to be computed."""
    return min(external.tokens, int(request.num_tokens) - (not external.asynchronous))
