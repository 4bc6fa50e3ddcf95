"""The wording of a state: named parts, small enough to stand beside those of another state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvproof.reports.words.numbers import listed
from model.groups import kinds_of
from model.request import Status
from model.snapshot import PoolState, RequestState, Snapshot

NOTHING = "-"


def differing_parts(*snapshots: Snapshot | None) -> list[tuple[str, tuple[str, ...]]]:
    """(part, its words in each state) wherever the states are not all alike.

    Blocks whose reference counts changed alike are one part.
    """
    states = [{} if snapshot is None else parts_of(snapshot) for snapshot in snapshots]
    blocks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for part in dict.fromkeys(part for state in states for part in state):
        words = tuple(state.get(part, NOTHING) for state in states)
        if len(set(words)) > 1:
            count = _REFERENCES.fullmatch(part)
            name = f"{count[1]} references of" if count else part
            blocks.setdefault((name, words), []).extend([count[2]] if count else [])
    return [
        (f"{name} {listed(numbers)}" if numbers else name, words)
        for (name, words), numbers in blocks.items()
    ]


_REFERENCES = re.compile(r"(gpu|host) block (\d+) references")


def parts_of(snapshot: Snapshot) -> dict[str, str]:
    """A state as named parts."""
    parts = dict(_pool_parts("gpu", snapshot.gpu))
    if snapshot.host is not None:
        parts |= _pool_parts("host", snapshot.host)
    for request in snapshot.requests:
        parts |= _request_parts(request)
    for content, *blocks in snapshot.copies:
        parts[f"copy of content {content}"] = listed(blocks)
    for block, request_id, page in snapshot.readers:
        parts[f"unpinned block {block} read by request {request_id}"] = f"page {page}"
    for t in snapshot.transfers:
        held = f"page {t.page} of request {t.request}, {listed(t.blocks)} to host {t.host_block}"
        done = f"{t.done} of {t.expected} done"
        lease = f", lease {listed(t.lease)}" if t.lease else ""
        parts[f"host write {t.id}"] = f"{held}, {done}{lease}"
    for name in ("unsent", "deferred", "deferred_host", "held"):
        if value := getattr(snapshot, name):
            parts[name.replace("_", " ")] = str(value)
    return parts


def _pool_parts(name: str, pool: PoolState) -> Iterator[tuple[str, str]]:
    yield f"{name} free queue", listed(pool.free)
    if pool.num_free != len(pool.free):
        yield f"{name} free count", str(pool.num_free)
    for block, count in enumerate(pool.counts):
        yield f"{name} block {block} references", str(count)
    for block, group, content in pool.keys:
        yield f"{name} block {block} hash", f"content {content} of group {group}"
    for group, content, *blocks in pool.cached:
        yield f"{name} hash map, content {content} of group {group}", listed(blocks)
    for block in pool.watched:
        yield f"{name} block {block} reuse watcher", "set"


def _request_parts(request: RequestState) -> dict[str, str]:
    head = f"request {request.id}"
    names = group_names(len(request.tables)) if len(request.tables) != 2 else ("host", "indexer")
    rows = {f"{name} table": row for name, row in zip(names, request.tables, strict=True)}
    rows |= {f"resident row {group}": row for group, row in enumerate(request.resident)}
    parts = {f"{head} {name}": listed(row) for name, row in rows.items() if row}
    parts[f"{head} status"] = Status(request.status).name.lower()
    for name in RequestState._fields:
        value = getattr(request, name)
        if name not in ("id", "status", "tables", "resident") and value not in (0, ()):
            text = listed(value) if isinstance(value, tuple) else str(value)
            parts[f"{head} {name.replace('_', ' ')}"] = text
    return parts


def group_names(groups: int) -> tuple[str, ...]:
    """What the groups of an engine at the manager level are, by their number."""
    pairs = (groups - 2) // 2
    kinds = kinds_of("full") if groups == 1 else kinds_of("hisparse", pairs)
    if pairs <= 1:
        return kinds
    return tuple([
        f"{kind} {row - kinds.index(kind)}" if kinds.count(kind) > 1 else kind
        for row, kind in enumerate(kinds)
    ])  # fmt: skip
