"""Places new replicas in stripes over racks and brokers, as Kafka's StripedReplicaPlacer does.

The first replica of each partition is in the rack that follows the rack of the previous partition's first replica.
Whenever a rack's turn comes, the next broker of the rack gets the replica. When each unfenced broker has had one first
replica, the brokers are shuffled again. The other replicas of a partition come from the racks in turn. A fenced broker
never gets the first replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

_MANY_REPLICAS: Final = 10_000


class UsableBroker(NamedTuple):
    """A broker that can get replicas. A `fenced` broker can follow, but not lead."""

    broker_id: int
    rack: str | None
    fenced: bool


class PlacementError(ValueError):
    """No placement is possible. The response then has INVALID_REPLICATION_FACTOR."""


def replicas_problem(replicas: Sequence[int], registered: Collection[int]) -> str | None:
    """Returns the first problem with the replicas in a request. The replicas are checked in the order of their ids, as
    in Kafka. If a list has thousands more replicas than there are brokers, only its beginning is checked, because the
    beginning already contains an error."""
    if not replicas:
        return "The manual partition assignment includes an empty replica list."
    counts = Counter(replicas[: len(registered) + _MANY_REPLICAS])
    wrong = min((each for each, count in counts.items() if count > 1 or each not in registered), default=None)
    if wrong is None:
        return None
    if wrong not in registered:
        return f"The manual partition assignment includes broker {wrong}, but no such broker is registered."
    return f"The manual partition assignment includes the broker {wrong} more than once."


class _Ring:
    """The fenced or the unfenced brokers of one rack, which are used in turn. Each new partition starts at the next
    broker."""

    def __init__(self, brokers: list[int], random: Random) -> None:
        self.brokers = sorted(brokers)
        self._index = 0
        self._epoch = 0
        self._offset = random.randrange(len(brokers)) if brokers else 0

    def next(self, epoch: int) -> int:
        """Returns the next broker for the partition with the number `epoch`, or -1 if every broker has already been
        used for this partition."""
        if not self.brokers:
            return -1
        if self._epoch != epoch:
            self._epoch, self._index = epoch, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return -1
        self._index += 1
        return self.brokers[(self._index - 1 + self._offset) % len(self.brokers)]


class _Rack:
    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self.fenced = _Ring([each.broker_id for each in brokers if each.fenced], random)
        self.unfenced = _Ring([each.broker_id for each in brokers if not each.fenced], random)

    def next(self, epoch: int) -> int:
        found = self.unfenced.next(epoch)
        return found if found >= 0 else self.fenced.next(epoch)


class _Stripes:
    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        self._random = random
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack(by_rack[name], random) for name in names]
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._epoch = 0
        self._offset = random.randrange(len(self._racks))

    def place(self, replication_factor: int) -> list[int]:
        if self._epoch == self._unfenced and self._unfenced > 1:
            self._shuffle()
        racks, count = self._racks, len(self._racks)
        if self._offset == count:
            self._offset = 0
        first = self._offset
        while True:
            leader = racks[first].unfenced.next(self._epoch)
            if leader >= 0:
                break
            first = (first + 1) % count
        replicas, index, skip = [leader], self._offset, first
        while len(replicas) < replication_factor:
            found = -1
            # This rack has already provided the leader, so it is skipped once.
            if index == skip:
                skip = -1
            else:
                found = racks[index].next(self._epoch)
            index = (index + 1) % count
            if found >= 0:
                replicas.append(found)
        self._epoch += 1
        self._offset += 1
        return replicas

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.fenced.brokers)
            self._random.shuffle(rack.unfenced.brokers)
        self._epoch = 0


def place(brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: Random) -> list[list[int]]:
    """Returns the replicas of each new partition, the preferred leader first. Raises PlacementError."""
    usable = list(brokers)
    unfenced = sum(not broker.fenced for broker in usable)
    if replication_factor <= 0:
        raise PlacementError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if unfenced == 0:
        raise PlacementError("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(usable):
        raise PlacementError(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(usable) == 1:
        return [[usable[0].broker_id]] * partitions
    stripes = _Stripes(usable, random)
    return [stripes.place(replication_factor) for _ in range(partitions)]
