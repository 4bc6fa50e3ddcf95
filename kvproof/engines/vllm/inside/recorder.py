"""Record the calls that vLLM's scheduler makes into its KV-cache manager, one JSON line each.

One file, standard library only. Use it inside a live vLLM, before the engine is built:

    import kvproof_recorder
    kvproof_recorder.start("calls.ndjson")

or, where the engine runs in a process of its own, as a plugin: see ``register``.

No text leaves the engine: a request is a number, and each full block of a request is the number
of the class of all prefixes with the same tokens, the same cache salt and the same adapter. A
recorder that fails stops recording, says so in its log, and leaves the engine alone.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

FORMAT = 1
"""Version of the lines that this module writes."""
VARIABLE = "KVPROOF_RECORD"
"""Environment variable with the path of the log, for use as a plugin."""

MANAGER = ("vllm.v1.core.kv_cache_manager", "KVCacheManager")
PREDICTOR = ("vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator")
POOL = ("vllm.v1.core.block_pool", "BlockPool")
HISPARSE = ("vllm.v1.hisparse.coordinator", "HiSparseCoordinator")
SCHEDULER = ("vllm.v1.core.sched.scheduler", "Scheduler")

Record = dict[str, Any]
"""One line of the log: plain integers, words, lists and tuples."""
Sink = Callable[[Record], None]
OUT_OF_BLOCKS = "Cannot get "
"""How the message of a pool that has too few blocks starts."""


# What the calls are about, without text


class Known:
    """What the log already says of one request."""

    def __init__(self, number: int, request: Any, chain: bytes) -> None:
        self.number = number
        self.request = request
        self.chain = chain
        """Digest of the prefix that the last numbered block ends."""
        self.pages = 0
        """Full blocks that were numbered."""


class Names:
    """Numbers for requests and for contents, in the order in which they come up.

    Tokens are compared by digests with a salt that dies with the process. With ``own_classes``
    False the engine's own block hashes are trusted to tell contents apart, which is faster.
    """

    def __init__(self, block_size: int, own_classes: bool, number: Callable[[str], int] | None):
        self.block_size = block_size
        self.own_classes = own_classes
        self.known: dict[str, Known] = {}
        self.numbers: dict[str, int] = {}
        """Number of each request that a call was about, by the engine's id."""
        self.hashes: dict[bytes, int] = {}
        """Block hash of the engine → number."""
        self._classes: dict[bytes, int] = {}
        self._number = number
        self._count = 0
        self._salt = os.urandom(16)

    def of(self, request: Any) -> Known:
        known = self.known.get(request.request_id)
        if known is None or known.request is not request:
            number = self._count if self._number is None else self._number(request.request_id)
            self._count += 1
            known = Known(number, request, self._root(request))
            self.known[request.request_id] = known
            self.numbers[request.request_id] = number
        return known

    def number(self, request_id: str) -> int:
        """The number of a request by its id; -1 if no call was about it so far."""
        return self.numbers.get(request_id, -1)

    def forget(self, request: Any) -> None:
        """The request ended: its number stays, its tokens need not."""
        known = self.known.get(request.request_id)
        if known is not None:
            known.request = None

    def _root(self, request: Any) -> bytes:
        adapter = getattr(request, "lora_request", None)
        name = getattr(adapter, "lora_name", None)
        text = repr((getattr(request, "cache_salt", None), name))
        return self._digest(self._salt, text.encode())

    @staticmethod
    def _digest(before: bytes, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=16, key=before).digest()

    def new_contents(self, known: Known, request: Any) -> Record:
        """Numbers of the full blocks that the log does not know yet, by tokens and by hash."""
        hashes = request.block_hashes
        pages = len(hashes) if hashes else request.num_tokens // self.block_size
        if pages < known.pages:
            raise ValueError("a request lost tokens")
        if pages == known.pages:
            return {}
        numbers = self.hashes
        new = hashes[known.pages : pages]
        by_hash = tuple([numbers.setdefault(bytes(h), len(numbers) + 1) for h in new])
        by_tokens = by_hash
        if self.own_classes and self._has_plain_tokens(request):
            by_tokens = self._by_tokens(known, request, pages)
        known.pages = pages
        if by_hash and by_hash != by_tokens:
            return {"contents": by_tokens, "hashes": by_hash}
        return {"contents": by_tokens} if by_tokens else {}

    @staticmethod
    def _has_plain_tokens(request: Any) -> bool:
        """Whether tokens alone tell contents apart, not images or embeddings between them."""
        features = getattr(request, "mm_features", None)
        return not features and getattr(request, "prompt_embeds", None) is None

    def _by_tokens(self, known: Known, request: Any, pages: int) -> tuple[int, ...]:
        size, tokens, classes = self.block_size, request.all_token_ids, self._classes
        found: list[int] = []
        for page in range(known.pages, pages):
            block = array("q", tokens[page * size : (page + 1) * size])
            known.chain = self._digest(known.chain, block.tobytes())
            found.append(classes.setdefault(known.chain, len(classes) + 1))
        return tuple(found)


# One engine


class Tap:
    """Turns the calls into one manager and its HiSparse coordinator into records."""

    def __init__(
        self,
        manager: Any,
        sink: Sink,
        own_classes: bool = True,
        number: Callable[[str], int] | None = None,
        strict: bool = False,
    ) -> None:
        """``strict``: what fails here is raised, not noted in the log. For tests of an engine."""
        self.manager = manager
        self.pool = manager.block_pool
        size = manager.kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        self.names = Names(size, own_classes, number)
        self.inside = False
        """Whether a recorded call is under way: what it calls is not recorded."""
        self.stopped = False
        self.promised: list[int] = []
        self.popped = 0
        self.published: list[str] = []
        self.retained: dict[int, list[Any]] = {}
        """Number of a deferred release → its blocks, in allocation order."""
        self._releases = 0
        self._sink = sink
        self._strict = strict
        for part in (manager, manager.coordinator, self.pool):
            part._kvproof_tap = self

    @property
    def managers(self) -> Any:
        return self.manager.coordinator.single_type_managers

    def host_pool(self) -> Any:
        """The host pool, None without one: the first group is bound to it after it was built."""
        pool = self.managers[0].block_pool
        return None if pool is self.pool else pool

    def emit(self, record: Record) -> None:
        """Hand out one record, with the free blocks of each pool after the call."""
        host = self.host_pool()
        free = self.pool.get_num_free_blocks()
        record["free"] = (free,) if host is None else (free, host.get_num_free_blocks())
        self._sink(record)

    def note(self, describe: Callable[[], Record | None]) -> None:
        """Record one call; a failure ends the recording, not the engine."""
        try:
            record = describe()
            if record is not None:
                self.emit(record)
        except Exception as error:
            if self._strict:
                raise
            self.stop(f"{type(error).__name__} in the recorder")

    def stop(self, reason: str) -> None:
        """Record no more, and say why."""
        self.stopped = True
        print(f"kvproof_recorder: stopped recording: {reason}", file=sys.stderr)
        try:
            self._sink({"call": "stopped", "reason": reason})
        except Exception as error:  # the log itself is what failed: the line above must do
            print(f"kvproof_recorder: {type(error).__name__} on the log", file=sys.stderr)

    def scheduled(self, tokens: Iterable[tuple[str, int]]) -> None:
        """A step is built: tokens that it computes, by request id, in the engine's order."""
        number = self.names.number
        counts = tuple([(number(key), count) for key, count in tokens])
        self.note(lambda: {"call": "scheduled", "tokens": counts})

    def view(self, request: Any) -> Record:
        """What the allocator sees of a request at this call."""
        known = self.names.of(request)
        return {
            "request": known.number,
            "status": request.status.name,
            "computed": request.num_computed_tokens,
            "in_flight": getattr(request, "num_in_flight_tokens", 0),
            "length": request.num_tokens,
            **self.names.new_contents(known, request),
        }

    def retain(self, blocks: list[Any]) -> int:
        """Number a deferred release."""
        self._releases += 1
        self.retained[self._releases] = blocks
        return self._releases

    def release_of(self, blocks: list[Any]) -> int | None:
        """The deferred release that these blocks, last first, are; None if they are none."""
        for number, retained in self.retained.items():
            same = len(retained) == len(blocks)
            if same and all(a is b for a, b in zip(reversed(retained), blocks, strict=True)):
                del self.retained[number]
                return number
        return None


def header(manager: Any, arguments: Record, version: str) -> Record:
    """The first line of a log: format, version, and what the engine was started with."""
    config = manager.kv_cache_config
    in_flight = arguments.get("max_in_flight_tokens")
    features = ("use_eagle", "num_prefill_lookahead", "num_hash_lookahead_tokens")
    sizes = ("dcp_world_size", "pcp_world_size")
    return {
        "kvproof_calls": FORMAT,
        "vllm": version,
        "num_blocks": config.num_blocks,
        "num_host_blocks": getattr(config, "hisparse_host_num_blocks", None) or 0,
        "max_model_len": manager.max_model_len,
        "max_in_flight_tokens": manager.max_model_len if in_flight is None else in_flight,
        "prefix_caching": bool(manager.enable_caching),
        "watermark_blocks": getattr(manager, "watermark_blocks", 0),
        "hash_block_size": arguments.get("hash_block_size"),
        "groups": [_group(group) for group in config.kv_cache_groups],
        "features": [name for name in features if arguments.get(name)]
        + [name for name in sizes if (arguments.get(name) or 1) > 1],
    }


def _group(group: Any) -> Record:
    role = getattr(group, "role", None)
    return {
        "kind": type(group.kv_cache_spec).__name__,
        "role": None if role is None else getattr(role, "name", str(role)),
        "block_size": group.kv_cache_spec.block_size,
        "hot_blocks": getattr(group.kv_cache_spec, "blocks_per_request", 0),
    }


# What each call is written as: (tap, receiver, arguments, result) → record


def ids(blocks: Iterable[Any]) -> tuple[int, ...]:
    return tuple([block.block_id for block in blocks])


def rows(blocks: Any) -> tuple[tuple[int, ...], ...]:
    """Block ids of each group."""
    return tuple([ids(group) for group in blocks.blocks])


def _lookup(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    request = a["request"]
    record = {"call": "lookup", **tap.view(request)}
    limit = a.get("max_cache_hit_length")
    if limit is not None and limit != request.num_tokens - 1:
        record["limit"] = limit
    if getattr(request, "skip_reading_prefix_cache", False):
        record["skipped"] = True
    if result is not None:
        blocks, tokens, *_ = result
        record.update(hit=tokens, blocks=rows(blocks))
    return record


# Arguments that the model does not know, with the value that means "not used".
_BEYOND = {
    "num_lookahead_tokens": 0,
    "num_external_computed_tokens": 0,
    "delay_cache_blocks": False,
    "num_encoder_tokens": 0,
    "reserved_blocks": 0,
}


def _allocate(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    hit = a.get("new_computed_blocks")
    record = {
        "call": "allocate",
        **tap.view(a["request"]),
        "new": a["num_new_tokens"],
        "hit": a.get("num_new_computed_tokens", 0),
        "hit_blocks": None if hit is None else rows(hit),
        "full": bool(a.get("full_sequence_must_fit", False)),
        "beside": bool(a.get("has_scheduled_reqs", True)),
        "promised": tuple(tap.promised),
        "popped": tap.popped,
        "blocks": None if result is None else rows(result),
    }
    beyond = [f"{name}={int(a[name])}" for name, unused in _BEYOND.items() if a.get(name, unused)]
    return {**record, "beyond": tuple(beyond)} if beyond else record


def _free(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    record = {"call": "free", **tap.view(a["request"])}
    if a["request"].is_finished():
        tap.names.forget(a["request"])
    return record


def _pop(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    record: Record = {"call": "pop", **tap.view(a["request"]), "release": 0}
    if result:
        host = tap.host_pool()
        on_host = [getattr(block, "pool", None) is host and host is not None for block in result]
        pairs = list(zip(result, on_host, strict=True))
        record["gpu"] = ids(b for b, host in pairs if not host and not b.is_null)
        record["host"] = ids(b for b, host in pairs if host and not b.is_null)
        record["release"] = tap.retain(result)
    if a["request"].is_finished():
        tap.names.forget(a["request"])
    return record


def _cache(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    return {"call": "cache", **tap.view(a["request"]), "tokens": a["num_computed_tokens"]}


def _evict(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    return {"call": "evict", "blocks": tuple(sorted(a["block_ids"]))}


def _reset(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    return {"call": "reset", "done": bool(result)}


def _common_prefix(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    number = tap.names.number(a["running_request_id"])
    return {"call": "common_prefix", "request": number, "shared": tuple(result or ())}


def _advance(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    number = tap.names.number
    scheduled = [(number(key), count) for key, count in a["requests"]]
    return {"call": "advance", "scheduled": tuple(scheduled)}


def _command(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    transfers = [] if result is None else result.page_transfers
    rows = [
        (
            t.transfer_id,
            tap.names.number(coordinator.pending_spills[t.transfer_id].page[0]),
            t.host_block_id,
            *t.resident_block_ids,
        )
        for t in transfers
    ]
    restored = [t.transfer_id for t in transfers if t.restore or not t.after_forward]
    return {"call": "command", "transfers": tuple(rows), "restored": tuple(restored)}


def _residency(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    number = tap.names.number
    updates = [
        (number(key), *update.pages, *(block for row in update.block_ids for block in row))
        for key, update in (result or {}).items()
    ]
    requests = tuple([number(key) for key in a["request_ids"]])
    return {"call": "residency", "requests": requests, "updates": tuple(updates)}


def _tables(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    number = tap.names.number
    updates = [
        (number(key), *(block for row in table for block in row))
        for key, table in (result or {}).items()
    ]
    return {"call": "tables", "updates": tuple(sorted(updates))}


def _report(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    return {
        "call": "report",
        "enqueued": tuple(sorted(a["enqueued_counts"].items())),
        "completed": tuple(sorted(a["completed_counts"].items())),
        "published": tuple([tap.names.number(key) for key in tap.published]),
    }


def _reclaimable(tap: Tap, coordinator: Any, a: Record, result: Any) -> Record:
    return {"call": "reclaimable", "pending": bool(result)}


def _step(tap: Tap, manager: Any, a: Record, result: Any) -> Record:
    return {"call": "step"}


def _released(tap: Tap, pool: Any, a: Record, result: Any) -> Record | None:
    blocks = a["ordered_blocks"]
    if not blocks:
        return None
    release = tap.release_of(blocks)
    if release is None:
        return {"call": "other", "name": "BlockPool.free_blocks"}
    return {"call": "free_popped", "release": release}


def _other(name: str, matters: Callable[[Any, Record, Any], bool]) -> Callable[..., Record | None]:
    """A call that changes the allocator's state and that a log only names."""

    def describe(tap: Tap, receiver: Any, a: Record, result: Any) -> Record | None:
        return {"call": "other", "name": name} if matters(receiver, a, result) else None

    return describe


def _always(receiver: Any, a: Record, result: Any) -> bool:
    return True


def _answers(receiver: Any, a: Record, result: Any) -> bool:
    return bool(result)


def _given(name: str) -> Callable[[Any, Record, Any], bool]:
    return lambda receiver, a, result: bool(a[name])


# Method → how it is written. Methods that a release lacks are left out.
RECORDED: dict[tuple[str, str], dict[str, Callable[..., Record | None]]] = {
    MANAGER: {
        "get_computed_blocks": _lookup,
        "allocate_slots": _allocate,
        "free": _free,
        "pop_blocks_for_free": _pop,
        "cache_blocks": _cache,
        "evict_blocks": _evict,
        "reset_prefix_cache": _reset,
        "get_num_common_prefix_blocks": _common_prefix,
        "new_step_starts": _step,
    },
    HISPARSE: {
        "advance_scheduled": _advance,
        "build_offload_command": _command,
        "take_residency_updates": _residency,
        "take_block_table_updates": _tables,
        "update_spills": _report,
        "has_pending_reclamation": _reclaimable,
        "finish_host_import": _other(
            "HiSparseCoordinator.finish_host_import",
            lambda coordinator, a, result: a["request_id"] in coordinator.request_states,
        ),
        "take_host_block_copies": _other("HiSparseCoordinator.take_host_block_copies", _answers),
        "release_completed_host_copies": _other(
            "HiSparseCoordinator.release_completed_host_copies", _given("dst_block_ids")
        ),
    },
    POOL: {
        "free_blocks": _released,
        "touch": _other("BlockPool.touch", _always),
        "evict_blocks": _other("BlockPool.evict_blocks", _always),
        "cache_full_blocks": _other("BlockPool.cache_full_blocks", _always),
        "unpin_blocks": _other("BlockPool.unpin_blocks", _always),
        "reset_prefix_cache": _other("BlockPool.reset_prefix_cache", _always),
    },
}
REQUIRED = {MANAGER: ("get_computed_blocks", "allocate_slots", "free", "cache_blocks")}
CONSUMED = {
    "advance_scheduled": "requests",
    "take_residency_updates": "request_ids",
    "free_blocks": "ordered_blocks",
    "release_completed_host_copies": "dst_block_ids",
}
"""Arguments that may be iterators: they are made lists, so that both may read them."""


# Putting it into the engine


class Arguments:
    """Names the arguments of a method's calls: faster than ``inspect.Signature.bind``."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._names = list(inspect.signature(method).parameters)[1:]

    def named(self, args: tuple[Any, ...], kwargs: Record) -> Record:
        return {**dict(zip(self._names, args, strict=False)), **kwargs}


def tap_of(receiver: Any) -> Tap | None:
    """The tap on a manager, pool or coordinator; None if it is not recorded (any more)."""
    found = getattr(receiver, "_kvproof_tap", None)
    if found is None and hasattr(receiver, "managers"):  # a HiSparse coordinator, seen first
        pools = [manager.block_pool for manager in receiver.managers]
        found = next((t for t in (getattr(p, "_kvproof_tap", None) for p in pools) if t), None)
        for part in (receiver, *pools):
            part._kvproof_tap = found
    return None if found is None or found.stopped else found


class Installation:
    """The wrapped methods of one process, and the way back."""

    def __init__(self, on_manager: Callable[[Any, Record], object] | None = None) -> None:
        """``on_manager`` hears of each manager that is built from now on."""
        self._originals: list[tuple[type, str, Any]] = []
        self._on_manager = on_manager
        manager = engine_class(MANAGER)
        if manager is None:
            raise RuntimeError("this vLLM has no vllm.v1.core.kv_cache_manager.KVCacheManager")
        if hasattr(manager.__init__, "_kvproof_original"):
            raise RuntimeError("a recorder is already at work in this process")
        for place, methods in RECORDED.items():
            self._wrap_class(place, methods)
        self._observe(PREDICTOR, "get_num_blocks_to_allocate", _note_promise)
        self._observe(POOL, "get_new_blocks", _note_popped)
        self._observe(HISPARSE, "_publish_host_blocks_if_ready", _note_published)
        self._replace(manager, "__init__", self._watch_construction(manager.__init__))
        scheduler = engine_class(SCHEDULER)
        if hasattr(scheduler, "schedule"):
            self._replace(scheduler, "schedule", _watch_schedule(scheduler.schedule))

    def remove(self) -> None:
        """Put the original methods back."""
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals = []

    def _replace(self, owner: type, name: str, wrapped: Any) -> None:
        original = owner.__dict__[name]
        wrapped._kvproof_original = original
        self._originals.append((owner, name, original))
        setattr(owner, name, wrapped)

    def _wrap_class(self, place: tuple[str, str], methods: dict[str, Any]) -> None:
        owner = engine_class(place)
        for name, describe in methods.items():
            if owner is not None and name in owner.__dict__:
                wrapped = _watch(owner.__dict__[name], describe, CONSUMED.get(name))
                self._replace(owner, name, wrapped)
            elif name in REQUIRED.get(place, ()):
                raise RuntimeError(f"this vLLM has no {place[1]}.{name}")

    def _observe(self, place: tuple[str, str], name: str, note: Callable[..., None]) -> None:
        """Note what a method did while a recorded call is under way."""
        owner = engine_class(place)
        if owner is None or name not in owner.__dict__:
            return
        original = owner.__dict__[name]

        @functools.wraps(original)
        def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            tap = tap_of(self)
            if tap is not None:
                note(tap, self, args, result)
            return result

        self._replace(owner, name, observed)

    def _watch_construction(self, original: Any) -> Any:
        arguments = Arguments(original)

        @functools.wraps(original)
        def construct(manager: Any, *args: Any, **kwargs: Any) -> None:
            original(manager, *args, **kwargs)
            if self._on_manager is not None:
                self._on_manager(manager, arguments.named(args, kwargs))

        return construct


def engine_class(place: tuple[str, str]) -> Any:
    """A class of the engine, None if this release has none of that name."""
    try:
        return getattr(importlib.import_module(place[0]), place[1], None)
    except ModuleNotFoundError:
        return None


def _watch(original: Any, describe: Callable[..., Record | None], consumed: str | None) -> Any:
    """A method that does what it did, and is recorded when the scheduler calls it."""
    arguments = Arguments(original)

    @functools.wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        tap = tap_of(self)
        if tap is None or tap.inside:
            return original(self, *args, **kwargs)
        named = arguments.named(args, kwargs)
        if consumed is not None and consumed in named:
            named[consumed] = list(named[consumed])
        tap.inside, tap.promised, tap.popped, tap.published = True, [], 0, []
        try:
            result = original(self, **named)
        except Exception as error:
            raised = kind_of(error)
            tap.note(lambda: _raised(describe(tap, self, named, None), raised))
            raise
        finally:
            tap.inside = False
        tap.note(lambda: describe(tap, self, named, result))
        return result

    return watched


def kind_of(error: Exception) -> str:
    """What was raised, in a word."""
    return "OutOfBlocks" if str(error).startswith(OUT_OF_BLOCKS) else type(error).__name__


def _raised(record: Record | None, kind: str) -> Record:
    return {**(record or {"call": "other", "name": "a call"}), "raised": kind}


def _watch_schedule(original: Any) -> Any:
    @functools.wraps(original)
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        tap = tap_of(self.kv_cache_manager)
        if tap is not None:
            tap.scheduled(list(output.num_scheduled_tokens.items()))
        return output

    return schedule


def _note_promise(tap: Tap, coordinator: Any, args: tuple[Any, ...], result: Any) -> None:
    if tap.inside:
        tap.promised.append(result)


def _note_popped(tap: Tap, pool: Any, args: tuple[Any, ...], result: Any) -> None:
    if tap.inside:
        tap.popped += len(result) if pool is tap.pool else 0
    else:
        tap.note(lambda: {"call": "other", "name": "BlockPool.get_new_blocks"})


def _note_published(tap: Tap, coordinator: Any, args: tuple[Any, ...], result: Any) -> None:
    tap.published.extend(args[:1])


# Recording to a file


class Recorder:
    """Records every manager that is built from now on, each to a log of its own."""

    def __init__(self, path: str, version: str | None = None) -> None:
        self._path = os.path.abspath(path)
        self._version = engine_version() if version is None else version
        self._logs: list[TextIO] = []
        self._installation = Installation(self._begin)

    def stop(self) -> None:
        """Take the recorder out of the engine."""
        self._installation.remove()
        for log in self._logs:
            log.close()

    def _begin(self, manager: Any, arguments: Record) -> None:
        try:
            log = self._new_log()
            _write(log, header(manager, arguments, self._version))
        except Exception as error:
            print(f"kvproof_recorder: cannot record: {type(error).__name__}", file=sys.stderr)
            return
        self._logs.append(log)
        Tap(manager, lambda record: _write(log, record))

    def _new_log(self) -> TextIO:
        """The log at the path, or beside it with a number: a log is never overwritten."""
        for path in _free_paths(self._path):
            try:
                return open(path, "x", encoding="ascii", buffering=1)
            except FileExistsError:
                continue
        raise AssertionError("there is always another number")


def _free_paths(path: str) -> Iterator[str]:
    stem, suffix = os.path.splitext(path)
    yield path
    number = 1
    while True:
        yield f"{stem}-{number}{suffix}"
        number += 1


def _write(log: TextIO, record: Record) -> None:
    log.write(json.dumps(record, separators=(",", ":")) + "\n")


def engine_version() -> str:
    """The version of vLLM, "unknown" if it does not say."""
    version = getattr(sys.modules.get("vllm"), "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def start(path: str, version: str | None = None) -> Recorder:
    """Record all engines of this process that are built from now on.

    ``path`` is the log; further engines, and engines of other processes, get a number in its
    name. Raises RuntimeError if this vLLM is none that can be recorded.
    """
    os.environ[VARIABLE] = os.path.abspath(path)
    return Recorder(path, version)


def register() -> None:
    """Entry point of a vLLM general plugin: record if ``KVPROOF_RECORD`` names a log."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        Recorder(path)
    except Exception as error:  # a plugin must not keep an engine from starting
        print(f"kvproof_recorder: not recording: {error}", file=sys.stderr)
