"""What kvproof needs of an engine's insides, and what it says of an engine that lacks it.

A rename in a checkout is no defect of it, and no verdict on it either: the worker answers in one
line which piece is not there, who reads it and for what. Standard library only.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

INSIDE = Path(__file__).parent

WHY = {
    # Blocks and pools
    "block_hash": "which contents a block is found by",
    "block_id": "which block it is",
    "is_null": "that a block stands for none",
    "ref_cnt": "how many hold a block",
    "blocks": "all blocks of a pool",
    "cached_block_hash_to_block": "which blocks a lookup finds",
    "_cache": "which blocks a lookup finds",
    "free_block_queue": "which blocks are free, in which order",
    "get_all_free_blocks": "which blocks are free, in which order",
    "get_new_blocks": "how many blocks a call takes",
    "get_num_free_blocks": "how many blocks are free",
    "null_block": "which block stands for none",
    "_reuse_watchers": "which blocks are read although they are free",
    # Managers
    "block_pool": "which pool the blocks of a group come from",
    "coordinator": "what the groups of the cache hold",
    "get_num_blocks_to_allocate": "how many blocks a call is promised to take",
    "hot_required": "which requests ask for a hot region",
    "kv_cache_group_id": "which row of a block table is a group's",
    "num_cached_block": "how many pages of a request were given their hashes",
    "req_to_blocks": "which blocks a request has",
    "single_type_managers": "what the groups of the cache hold",
    # HiSparse
    "_owners": "who reads pages that are not pinned",
    "_retained_copies": "which copies on the host the workers have not reported",
    "copies": "which pages of the host have copies on the GPU",
    "get_residency_row": "where the pages of a request are",
    "hot_managers": "which requests ask for a hot region",
    "pending_spills": "which pages are on their way to the host",
    "request_states": "where the pages of a request are",
    "resident_managers": "where the pages of a request are",
    "spills_to_send": "which transfers the next step sends",
    # Requests and the scheduler
    "deferred_frees": "which blocks are freed when the steps in flight have ended",
    "num_computed_tokens": "how far a request is",
    "num_in_flight_tokens": "how far a request is",
    "num_output_placeholders": "how far a request is",
    "requests": "which requests there are",
    "status": "whether a request waits or runs",
}
"""Attribute of the engine → what it tells, in words that follow "to know"."""


class EngineUnlikeError(Exception):
    """The engine has not what kvproof needs to look at it, as the message says."""


def require(owner: Any, *names: str, why: str | None = None) -> None:
    """Raise ``EngineUnlikeError`` unless an object of the engine has attributes of these names.

    ``why``: what they tell, where ``WHY`` has no words for it.
    """
    for name in names:
        if not hasattr(owner, name):
            raise EngineUnlikeError(_sentence(name, owner, _reader(inspect.currentframe()), why))


def require_keywords(method: Callable[..., Any], *names: str) -> None:
    """Raise ``EngineUnlikeError`` unless a method of the engine takes arguments of these names."""
    for name in names:
        if name not in _parameters(getattr(method, "__func__", method)):
            reader = _reader(inspect.currentframe())
            raise EngineUnlikeError(
                f"this checkout's {method.__qualname__} takes no `{name}`: kvproof calls it with "
                f"one in {reader}"
            )


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def unlike(error: BaseException) -> str | None:
    """Why the engine is not as kvproof takes it to be; None if the error says nothing of that.

    It does where our own code, not the engine's, found that something is not there.
    """
    if isinstance(error, EngineUnlikeError):
        return str(error)
    file = _raised_in(error)
    if file is None:
        return None
    reader = f"inside/{file.name}"
    if isinstance(error, AttributeError) and _is_engine(error.obj):
        return _sentence(str(error.name), error.obj, reader)
    if isinstance(error, ImportError):
        return f"this checkout has not what kvproof imports in {reader}: {error}"
    return None


@contextmanager
def building(what: str) -> Iterator[None]:
    """Raise ``EngineUnlikeError`` where a class of the engine does not take what it is given."""
    try:
        yield
    except TypeError as error:
        file = _raised_in(error)
        if file is None:
            raise
        message = f"this checkout's {what} is not built as in inside/{file.name}: {error}"
        raise EngineUnlikeError(message) from error


def _raised_in(error: BaseException) -> Path | None:
    """The file of ours that raised; None if the engine did, or what it calls."""
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return files[-1] if files and files[-1].parent == INSIDE else None


def _reader(frame: Any) -> str:
    """The file that asked."""
    return f"inside/{Path(frame.f_back.f_code.co_filename).name}"


def _sentence(name: str, owner: Any, reader: str, why: str | None = None) -> str:
    if isinstance(owner, ModuleType):
        place = f"in {owner.__name__}"
    else:
        place = f"on {(owner if isinstance(owner, type) else type(owner)).__name__}"
    why = why or WHY.get(name)
    purpose = f" to know {why}" if why else ""
    return f"this checkout has no `{name}` {place}: kvproof reads it in {reader}{purpose}"


def _is_engine(owner: Any) -> bool:
    if isinstance(owner, ModuleType):
        return owner.__name__.startswith("vllm")
    return (owner if isinstance(owner, type) else type(owner)).__module__.startswith("vllm")
