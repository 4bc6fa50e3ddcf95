"""Names for the keys of an engine's hash map: the group and the number of the contents."""

from collections.abc import Mapping
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id


class KeyNames:
    """``contents`` numbers block hashes; it is the driver's and may grow."""

    def __init__(self, contents: Mapping[bytes, int]) -> None:
        self._contents = contents
        self._known: dict[Any, tuple[int, int]] = {}

    def __call__(self, key: Any) -> tuple[int, int]:
        name = self._known.get(key)
        if name is None:
            name = (int(get_group_id(key)), self._contents[bytes(get_block_hash(key))])
            self._known[key] = name
        return name
