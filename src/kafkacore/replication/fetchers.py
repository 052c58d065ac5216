"""Distributes the partitions that this broker follows over fetchers (kafka.server.AbstractFetcherManager).

For each source broker there are up to num.replica.fetchers fetchers. A partition's name decides which of them fetches
it, as in Apache Kafka. A fetcher without partitions has no connection.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.log.partition_handle import PartitionHandle

_INT32: Final = 1 << 32


class Address(NamedTuple):
    """Where a broker's inter-broker listener is."""

    host: str
    port: int


class Follow(NamedTuple):
    """A partition that this broker follows. Its log has taken that role (`become_follower`) already."""

    partition: PartitionHandle
    leader_id: int
    leader_epoch: int


class FetcherMeasures(NamedTuple):
    """`most_lag` counts records. `failed` partitions are not fetched until they get a new role."""

    source_id: int
    number: int
    address: Address | None
    requests: int
    appended_bytes: int
    most_lag: int
    partitions: int
    failed: int


class Fetcher(Protocol):
    """Fetches partitions from one broker. It carries out all calls soon and in order; `settled` returns when it has
    done so. `registered` hears of this broker's own epoch."""

    @property
    def measures(self) -> FetcherMeasures:
        """Any thread may ask."""

    def follow(self, partitions: list[Follow]) -> None: ...
    def stop(self, partitions: list[PartitionHandle]) -> None: ...
    def move(self, address: Address | None) -> None: ...
    def registered(self, broker_epoch: int) -> None: ...
    async def settled(self) -> None: ...
    async def close(self) -> None: ...


class MakeFetcher(Protocol):
    """Makes a fetcher that begins to fetch with its first partition. `address` is None while the broker's address is
    not known."""

    def __call__(self, source_id: int, number: int, address: Address | None, /) -> Fetcher: ...


class Fetchers:
    """All fetchers of a broker. Belongs to its data loop."""

    def __init__(self, count: int, make: MakeFetcher) -> None:
        """`count` is num.replica.fetchers."""
        self._count = count
        self._make = make
        self._addresses: dict[int, Address] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._of: dict[PartitionHandle, tuple[int, int]] = {}  # the fetcher of each partition
        self._followed: dict[PartitionHandle, Follow] = {}
        self._moving: dict[PartitionHandle, Follow] = {}  # from one fetcher to another of the same leader
        self._mover: asyncio.Task[None] | None = None

    def brokers(self, addresses: Mapping[int, Address], own_epoch: int) -> None:
        """The inter-broker listeners of all brokers that are not fenced, by broker id, and the epoch of this broker's
        registration. A broker with a new address gets a new connection. A broker that is missing from `addresses` gets
        one when it comes back."""
        before, self._addresses = self._addresses, dict(addresses)
        for (source_id, _), fetcher in self._fetchers.items():
            fetcher.registered(own_epoch)
            address = self._addresses.get(source_id)
            if address != before.get(source_id):
                fetcher.move(address)

    def follow(self, partitions: Iterable[Follow]) -> None:
        """Fetches each partition from its leader, from the end of its log on. A partition that another fetcher has
        moves to the right one. If the right fetcher has it in the same leader epoch already, nothing changes. Call this
        after `become_follower`, even if only the leader epoch rose."""
        chosen: dict[tuple[int, int], list[Follow]] = {}
        moved: list[PartitionHandle] = []
        for each in partitions:
            key = each.leader_id, fetcher_number(each.partition.topic, each.partition.index, self._count)
            chosen.setdefault(key, []).append(each)
            self._moving.pop(each.partition, None)
            if self._of.get(each.partition, key) != key:
                moved.append(each.partition)
        self.stop(moved)
        for key, group in chosen.items():
            for each in group:
                self._of[each.partition] = key
                self._followed[each.partition] = each
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = self._make(*key, self._addresses.get(key[0]))
            fetcher.follow(group)

    def stop(self, partitions: Iterable[PartitionHandle]) -> None:
        """Stops fetching these partitions. Call it before a partition becomes a leader, is deleted, or has no leader.
        Partitions that no fetcher has are ignored."""
        stopped: dict[tuple[int, int], list[PartitionHandle]] = {}
        for partition in partitions:
            self._moving.pop(partition, None)
            key = self._of.pop(partition, None)
            if key is not None:
                del self._followed[partition]
                stopped.setdefault(key, []).append(partition)
        for key, group in stopped.items():
            self._fetchers[key].stop(group)

    def resize(self, count: int) -> None:
        """num.replica.fetchers has changed: partitions move to the fetchers that their names choose now."""
        if count == self._count:
            return
        self._count = count
        followed = list(self._followed.values())
        self.stop([each.partition for each in followed])
        self._moving |= {each.partition: each for each in followed}
        if self._moving and self._mover is None:
            self._mover = asyncio.get_running_loop().create_task(self._move())

    async def _move(self) -> None:
        """Two fetchers must not change a log in the same leader epoch: the new one begins when the old ones have let
        go."""
        while self._moving:
            moving = dict(self._moving)
            for fetcher in tuple(self._fetchers.values()):
                await fetcher.settled()
            self.follow([each for partition, each in moving.items() if self._moving.get(partition) is each])
        self._mover = None

    def measures(self) -> list[FetcherMeasures]:
        """The measures of each fetcher. Any thread may ask."""
        return [fetcher.measures for fetcher in tuple(self._fetchers.values())]

    async def close(self) -> None:
        """Ends all connections. Nothing is appended or truncated when it returns."""
        if self._mover is not None:
            self._mover.cancel()
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._moving.clear()
        self._of.clear()
        self._followed.clear()
        for fetcher in fetchers:
            await fetcher.close()


def fetcher_number(topic: str, index: int, count: int) -> int:
    """Apache Kafka's choice (AbstractFetcherManager.getFetcherId)."""
    mixed = _signed(31 * _java_hash(topic) + index)
    return (0 if mixed == -_INT32 // 2 else abs(mixed)) % count


@functools.lru_cache(4096)
def _java_hash(topic: str) -> int:
    """java.lang.String.hashCode; a topic's name has ASCII letters only."""
    value = 0
    for letter in topic.encode():
        value = (31 * value + letter) % _INT32
    return value


def _signed(value: int) -> int:
    value %= _INT32
    return value - _INT32 if value >= _INT32 // 2 else value
