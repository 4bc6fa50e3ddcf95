"""One block pool: reference counts, the free block queue, the hash map, reuse watchers."""

from collections.abc import Callable, Iterable, Sequence

NULL = 0
"""The null block: it stands for "no block here" in a row, and is never handed out."""

Key = tuple[int, int]
"""What a cached block is found by: (group, content id of the prefix that it ends)."""


class OutOfBlocksError(Exception):
    """More blocks were taken than the free queue holds. ``count`` is what was asked for."""

    def __init__(self, count: int) -> None:
        super().__init__(f"Cannot get {count} free blocks from the pool")
        self.count = count


class Pool:
    """Blocks 1 to ``size - 1`` and the null block.

    A block is held (count at least 1), or free in the queue. A free block may still be readable:
    it may be found by its key, and, if it was *unpinned*, it is still read by its former holders
    until it is handed out, when the reuse watcher tells them.
    """

    def __init__(
        self, size: int, caching: bool, null_counted: bool, on_reuse: Callable[[int], None]
    ) -> None:
        self.free = list(range(1, size))
        """The free block queue, next block to be handed out first."""
        self.counts = [0] * size
        """Reference counts by block. The null block's moves only where a dialect lets it."""
        self.keys: dict[int, Key] = {}
        self.index: dict[Key, list[int]] = {}
        """Blocks under each key, oldest first."""
        self.watched: set[int] = set()
        self.popped = 0
        """Blocks handed out so far."""
        self._caching = caching
        self._null_counted = null_counted
        self._on_reuse = on_reuse

    def take(self, count: int) -> list[int]:
        """Hand out the head of the queue: readers of watched blocks stop, keys are evicted.

        Raises OutOfBlocksError, without any change, if the queue is shorter.
        """
        if count > len(self.free):
            raise OutOfBlocksError(count)
        if not count:
            return []
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self._notify(block)
        for block in taken:
            self.evict(block)
            self.counts[block] += 1
        self.popped += count
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, which takes free ones out of the queue."""
        for block in blocks:
            if block == NULL:
                self.counts[NULL] += self._null_counted
                continue
            if self.counts[block] == 0:
                self.free.remove(block)
            self.counts[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each block, in eviction order.

        Blocks that become free go to the tail of the queue if they can be found by their key,
        else to its head.
        """
        first: list[int] = []
        last: list[int] = []
        for block in blocks:
            if block == NULL:
                self.counts[NULL] -= self._null_counted
                continue
            self.counts[block] -= 1
            if self.counts[block] == 0:
                (last if self._caching and block in self.keys else first).append(block)
        self.free = first + self.free + last

    def unpin(self, block: int) -> None:
        """Drop a reference to a block that stays readable until it is handed out."""
        self.counts[block] -= 1
        self.watched.add(block)
        if self.counts[block] == 0:
            self.free.append(block)

    def insert(self, key: Key, block: int) -> None:
        """Make a block findable by its key, behind older ones under the same key."""
        if self.keys.get(block) == key:
            return
        self.keys[block] = key
        self.index.setdefault(key, []).append(block)

    def find(self, key: Key) -> int | None:
        blocks = self.index.get(key)
        return blocks[0] if blocks else None

    def evict(self, block: int) -> None:
        """Make a block unfindable."""
        key = self.keys.pop(block, None)
        if key is None:
            return
        self.index[key].remove(block)
        if not self.index[key]:
            del self.index[key]

    def reset(self) -> bool:
        """Forget all keys and stop all reading of free blocks, unless any block is held."""
        if len(self.free) != len(self.counts) - 1:
            return False
        self.keys.clear()
        self.index.clear()
        for block in sorted(self.watched):
            self._notify(block)
        return True

    def num_free(self, blocks: Iterable[int]) -> int:
        """How many of these blocks have reference count 0."""
        return sum(1 for block in blocks if block != NULL and self.counts[block] == 0)

    def _notify(self, block: int) -> None:
        if block in self.watched:
            self.watched.discard(block)
            self._on_reuse(block)
