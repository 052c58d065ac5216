"""An immutable map that consists of parts, called shards. A writer makes a new version of the map, and copies only the
shards that it changes. Readers can use an old version as long as they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

SHARD_ENTRIES: Final = 256  # the average number of entries in a shard


class ShardedMap(Generic[K, V]):
    """An immutable map. Do not rely on the order of iteration, because hashes differ between processes."""

    __slots__ = ("_mask", "_shards", "_size")

    def __init__(self, shards: tuple[dict[K, V], ...] = ({},), size: int = 0) -> None:
        self._shards = shards
        self._mask = len(shards) - 1
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & self._mask]

    def __getitem__(self, key: K) -> V:
        return self._shards[hash(key) & self._mask][key]

    def get(self, key: K) -> V | None:
        return self._shards[hash(key) & self._mask].get(key)

    def __iter__(self) -> Iterator[K]:
        for shard in self._shards:
            yield from shard

    def items(self) -> Iterator[tuple[K, V]]:
        for shard in self._shards:
            yield from shard.items()

    def edit(self) -> ShardedEdit[K, V]:
        return ShardedEdit(self)


class ShardedEdit(Generic[K, V]):
    """A modified copy of a map. `freeze` returns the result as an immutable map. The original map does not change."""

    __slots__ = ("_base", "_mask", "_owned", "_shards", "_size")

    def __init__(self, base: ShardedMap[K, V]) -> None:
        self._base: ShardedMap[K, V] | None = base
        self._shards: Sequence[dict[K, V]] = base._shards  # copied before the first change
        self._mask = base._mask
        self._size = base._size
        self._owned: set[int] = set()

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & self._mask]

    def get(self, key: K) -> V | None:
        return self._shards[hash(key) & self._mask].get(key)

    def _own(self, key: K) -> dict[K, V]:
        index = hash(key) & self._mask
        if index not in self._owned:
            if self._base is not None:
                self._shards, self._base = list(self._shards), None
            self._owned.add(index)
            self._shards[index] = self._shards[index].copy()  # type: ignore[index]
        return self._shards[index]

    def __setitem__(self, key: K, value: V) -> None:
        shard = self._own(key)
        if key not in shard:
            self._size += 1
            if self._size > SHARD_ENTRIES * len(self._shards):
                self._grow()
                shard = self._own(key)
        shard[key] = value

    def pop(self, key: K) -> V | None:
        if key not in self:
            return None
        self._size -= 1
        return self._own(key).pop(key)

    def _grow(self) -> None:
        count = len(self._shards) * 4
        shards: list[dict[K, V]] = [{} for _ in range(count)]
        for shard in self._shards:
            for key, value in shard.items():
                shards[hash(key) & (count - 1)][key] = value
        self._shards, self._mask, self._owned = shards, count - 1, set(range(count))

    def freeze(self) -> ShardedMap[K, V]:
        """Returns the result as an immutable map. If this edit changes more afterwards, it copies the shards again."""
        if self._base is None:
            self._shards = tuple(self._shards)
            self._base = ShardedMap(self._shards, self._size)
            self._owned = set()
        return self._base
