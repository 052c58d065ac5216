"""Distributes the partitions that this broker follows over fetchers, as Apache Kafka's
kafka.server.AbstractFetcherManager does.

Each source broker has up to num.replica.fetchers fetchers. The name of a partition decides which fetcher fetches it, as
in Apache Kafka. A fetcher without partitions has no connection.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.replication.request_rates import RequestRates
from kafkacore.runtime.watched import watch

LOG: Final = logging.getLogger("kafkacore.replication")
RETRY_S: Final = 1.0  # the time until the next attempt to make a fetcher
_INT32: Final = 1 << 32
_TRUNCATION_LOOK_S: Final = 0.01


class Address(NamedTuple):
    """The address of a broker's inter-broker listener."""

    host: str
    port: int


class Follow(NamedTuple):
    """A partition that this broker follows. The log of the partition must already have the follower's role
    (`become_follower`).
    """

    partition: PartitionHandle
    leader_id: int
    leader_epoch: int


class FetcherMeasures(NamedTuple):
    """The metrics of one fetcher. `most_lag` is the greatest lag of a partition, in records. `failed` is the number of
    partitions that are not fetched until they get a new role.
    """

    source_id: int
    number: int
    address: Address | None
    requests: int
    appended_bytes: int
    most_lag: int
    partitions: int
    failed: int


class Fetcher(Protocol):
    """Fetches partitions from one broker. Calls return at once, and the fetcher executes them soon and in order;
    `settled` waits until all of them are executed and no truncation is running. `registered` sets the epoch of this
    broker's registration.
    """

    @property
    def measures(self) -> FetcherMeasures:
        """The metrics of this fetcher. Any thread may read them."""

    def follow(self, partitions: list[Follow]) -> None: ...
    def stop(self, partitions: list[PartitionHandle]) -> None: ...
    def move(self, address: Address | None) -> None: ...
    def registered(self, broker_epoch: int) -> None: ...
    async def settled(self) -> None: ...
    async def close(self) -> None: ...


class MakeFetcher(Protocol):
    """Makes a fetcher, which starts to fetch when it gets its first partition. `address` is None while the broker's
    address is not known. Raises OSError if no file descriptor is free."""

    def __call__(self, source_id: int, number: int, address: Address | None, /) -> Fetcher: ...


class Fetchers:
    """All fetchers of a broker. Belongs to the event loop of the replica manager."""

    def __init__(
        self,
        count: int,
        make: MakeFetcher,
        read_ns: Callable[[], int] = time.monotonic_ns,
        on_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """Creates the manager without fetchers. `count` is num.replica.fetchers. `read_ns` reads the clock for the
        rates. `on_fault` is called if the move of partitions between fetchers fails.
        """
        self._count = count
        self._make = make
        self._addresses: dict[int, Address] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._of: dict[PartitionHandle, tuple[int, int]] = {}  # for each partition, the key of its fetcher
        self._followed: dict[PartitionHandle, Follow] = {}
        # partitions that are moving to another fetcher of the same leader
        self._moving: dict[PartitionHandle, Follow] = {}
        self._mover: asyncio.Task[None] | None = None
        self._unmade: set[tuple[int, int]] = set()  # the fetchers that could not be made
        self._retry: asyncio.TimerHandle | None = None
        self._on_fault = on_fault
        self._closed = False
        self._rates = RequestRates(read_ns)

    def brokers(self, addresses: Mapping[int, Address], own_epoch: int) -> None:
        """Sets the inter-broker listeners of all unfenced brokers, by broker id, and the epoch of this broker's
        registration. If a broker has a new address, the fetchers that fetch from it reconnect. If a broker is missing
        from `addresses`, the fetchers that fetch from it wait until it has an address again."""
        before, self._addresses = self._addresses, dict(addresses)
        self.registered(own_epoch)
        for (source_id, _), fetcher in self._fetchers.items():
            address = self._addresses.get(source_id)
            if address != before.get(source_id):
                fetcher.move(address)

    def registered(self, own_epoch: int) -> None:
        """Sets the epoch of this broker's registration. The fetchers send this epoch in their Fetch requests. When a
        leader proposes this broker for an ISR, the leader sends the epoch to the controller (KIP-903)."""
        for fetcher in self._fetchers.values():
            fetcher.registered(own_epoch)

    def follow(self, partitions: Iterable[Follow]) -> None:
        """Fetches each partition from its leader, starting at the end of the partition's log. A partition that has the
        wrong fetcher moves to the right one. If the right fetcher already fetches the partition in the same leader
        epoch, nothing changes. Call this after `become_follower`, even if only the leader epoch has increased. After
        `close`, a call has no effect. Such calls happen, because metadata still arrives while the broker stops.
        """
        if self._closed:
            return
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
            fetcher = self._fetcher(key)
            if fetcher is not None:
                fetcher.follow(group)

    def _fetcher(self, key: tuple[int, int]) -> Fetcher | None:
        """Returns the fetcher with this key, or None if it cannot be made now. In that case `_follow_waiting` tries
        again."""
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            try:
                fetcher = self._fetchers[key] = self._make(*key, self._addresses.get(key[0]))
            except (OSError, MemoryError) as error:
                if key not in self._unmade:
                    self._unmade.add(key)
                    LOG.warning(
                        "fetcher %d of broker %d cannot be made: %r; this broker tries again", key[1], key[0], error
                    )
                if self._retry is None:
                    self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._follow_waiting)
            else:
                self._unmade.discard(key)
        return fetcher

    def _follow_waiting(self) -> None:
        self._retry = None
        self.follow([each for partition, each in self._followed.items() if self._of[partition] not in self._fetchers])

    def stop(self, partitions: Iterable[PartitionHandle]) -> None:
        """Stops fetching these partitions. Call this before a partition becomes a leader, is deleted, or has no leader.
        Partitions without a fetcher are ignored."""
        stopped: dict[tuple[int, int], list[PartitionHandle]] = {}
        for partition in partitions:
            self._moving.pop(partition, None)
            key = self._of.pop(partition, None)
            if key is not None:
                del self._followed[partition]
                stopped.setdefault(key, []).append(partition)
        for key, group in stopped.items():
            fetcher = self._fetchers.get(key)
            if fetcher is not None:
                fetcher.stop(group)

    def resize(self, count: int) -> None:
        """Moves the partitions to the fetchers that their names now select. Call this when num.replica.fetchers has
        changed.
        """
        if count == self._count:
            return
        self._count = count
        followed = list(self._followed.values())
        self.stop([each.partition for each in followed])
        self._moving |= {each.partition: each for each in followed}
        if self._moving and self._mover is None:
            self._mover = asyncio.get_running_loop().create_task(self._move())
            watch(self._mover, self._on_fault)

    async def _move(self) -> None:
        """Moves partitions to other fetchers. Two fetchers must not change a log in the same leader epoch, so the new
        fetcher starts when the old fetchers have released the partition."""
        try:
            while self._moving:
                moving = dict(self._moving)
                for fetcher in tuple(self._fetchers.values()):
                    await fetcher.settled()
                self.follow([each for partition, each in moving.items() if self._moving.get(partition) is each])
        finally:
            self._mover = None

    def measures(self) -> list[FetcherMeasures]:
        """Returns the measures of each fetcher that has partitions. Apache Kafka ends a fetcher without partitions, so
        the rate of such a fetcher does not count. Can be called on any thread."""
        every = [fetcher.measures for fetcher in tuple(self._fetchers.values())]
        return [each for each in every if each.partitions or each.failed]

    def source_of(self, partition: PartitionHandle) -> int:
        """Returns the broker from which the partition is fetched, or -1 if it is not fetched."""
        return self._of.get(partition, (-1, 0))[0]

    def followed(self) -> list[tuple[PartitionHandle, int, int]]:
        """Returns each partition with its source broker and the number of its fetcher. Can be called on any thread."""
        return [(partition, *key) for partition, key in self._of.copy().items()]

    def least_rate(self, measures: Iterable[FetcherMeasures]) -> float:
        """Returns the request rate of the slowest of these fetchers, in requests per second over the last minute, or 0
        without fetchers. Called on the thread that reads the metrics."""
        return self._rates.least({(each.source_id, each.number): each.requests for each in measures})

    async def close(self) -> None:
        """Closes all connections. After this returns, no fetcher appends to a log or truncates one."""
        self._closed = True
        for pending in (self._mover, self._retry):
            if pending is not None:
                pending.cancel()
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._moving.clear()
        self._of.clear()
        self._followed.clear()
        for fetcher in fetchers:
            await fetcher.close()


class Truncates(Protocol):
    @property
    def jobs(self) -> int:
        """The number of running truncations."""


async def until_truncated(native: Truncates) -> None:
    """Waits until no truncation is running. Otherwise a truncation could remove what another fetcher has appended."""
    while native.jobs:  # noqa: ASYNC110 - truncations are short, and they run on threads without an event
        await asyncio.sleep(_TRUNCATION_LOOK_S)


def fetcher_number(topic: str, index: int, count: int) -> int:
    """Returns the number of the fetcher that Apache Kafka chooses for the partition
    (AbstractFetcherManager.getFetcherId)."""
    mixed = _signed(31 * _java_hash(topic) + index)
    return (0 if mixed == -_INT32 // 2 else abs(mixed)) % count


@functools.lru_cache(4096)
def _java_hash(topic: str) -> int:
    """Computes java.lang.String.hashCode. The bytes are enough, because a topic's name has only ASCII characters."""
    value = 0
    for letter in topic.encode():
        value = (31 * value + letter) % _INT32
    return value


def _signed(value: int) -> int:
    value %= _INT32
    return value - _INT32 if value >= _INT32 // 2 else value
