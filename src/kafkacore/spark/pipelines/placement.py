"""Chooses moves of replicas that balance the load of brokers. This module is plain Python and runs on the driver. Its
input is one row for each partition.

The plan makes few moves. It first takes replicas from the fullest brokers until no move lowers the maximum. Then it
changes the order of replicas to balance the preferred leaders, which moves no bytes. A move never leaves a partition on
fewer racks than before. The running time is proportional to (partitions moved) x (partitions of a broker).
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

TOLERANCE: Final = 0.02  # as a share of the mean: brokers within this distance from the mean count as balanced


class Partition(NamedTuple):
    """A partition: its replicas in their order, and the size of each replica in bytes. The first replica is the
    preferred leader."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    size: int


class Load(NamedTuple):
    """The result of a plan: the bytes and preferred leaders of each broker, and the bytes that the plan moves."""

    bytes: dict[int, int]
    leaders: dict[int, int]
    moved: int


class PlanError(ValueError):
    """The brokers cannot hold the replicas. The text explains why."""


def plan(
    partitions: Sequence[Partition], racks: Mapping[int, str | None], *, drained: Collection[int] = ()
) -> list[Partition]:
    """Returns the partitions whose replicas, or whose order of replicas, should change, with their new replicas.

    Args:
        partitions: all partitions of the cluster.
        racks: the rack of each broker that may hold replicas; None for a broker without a rack.
        drained: brokers that hold no replicas after the plan.

    Raises:
        PlanError: a partition has more replicas than there are brokers that may hold them, or has a replica on an
            unknown broker.
    """
    work = _Plan(partitions, racks, drained)
    work.drain()
    work.even_out_bytes()
    work.even_out_leaders()
    work.even_out_bytes(followers_only=True)  # moved leader replicas have changed the bytes of the brokers
    return work.changed()


def reassignment_json(changed: Sequence[Partition]) -> dict[str, Any]:
    """Returns the plan in the format that kafka-reassign-partitions reads."""
    moves = [
        {
            "topic": one.topic,
            "partition": one.number,
            "replicas": list(one.replicas),
            "log_dirs": ["any"] * len(one.replicas),
        }
        for one in changed
    ]
    return {"version": 1, "partitions": moves}


def load(before: Sequence[Partition], after: Sequence[Partition], brokers: Collection[int]) -> Load:
    """Returns the load of the cluster after the partitions in `after` have replaced those of the same name in
    `before`."""
    replaced = {(one.topic, one.number): one for one in after}
    held = dict.fromkeys(brokers, 0)
    leaders = dict.fromkeys(brokers, 0)
    moved = 0
    for old in before:
        new = replaced.get((old.topic, old.number), old)
        moved += old.size * len(set(new.replicas) - set(old.replicas))
        leaders[new.replicas[0]] = leaders.get(new.replicas[0], 0) + 1
        for broker in new.replicas:
            held[broker] = held.get(broker, 0) + old.size
    return Load(held, leaders, moved)


class _Plan:
    def __init__(
        self, partitions: Sequence[Partition], racks: Mapping[int, str | None], drained: Collection[int]
    ) -> None:
        self.before = partitions
        self.racks = racks
        self.drained = set(drained)
        self.targets = [broker for broker in racks if broker not in self.drained]
        self.replicas = [list(one.replicas) for one in partitions]
        self.held: dict[int, int] = dict.fromkeys(racks, 0)
        self.on: dict[int, set[int]] = {broker: set() for broker in racks}
        for index, one in enumerate(partitions):
            self._check(one)
            for broker in one.replicas:
                self.held[broker] += one.size
                self.on[broker].add(index)

    def _check(self, one: Partition) -> None:
        unknown = [broker for broker in one.replicas if broker not in self.racks]
        if unknown:
            raise PlanError(f"{one.topic}-{one.number} has a replica on broker {unknown[0]}, which is not registered")
        if len(one.replicas) > len(self.targets):
            raise PlanError(
                f"{one.topic}-{one.number} has {len(one.replicas)} replicas, but only {len(self.targets)} brokers may"
                " hold them"
            )

    # --- moves ---

    def spread(self, brokers: Sequence[int]) -> int:
        """Returns the number of racks of these brokers. A broker without a rack counts as its own rack."""
        return len({self.racks[broker] or broker for broker in brokers})

    def may_move(self, index: int, source: int, target: int) -> bool:
        current = self.replicas[index]
        if target in current:
            return False
        moved = [target if broker == source else broker for broker in current]
        return self.spread(moved) >= min(self.spread(current), self.spread(self.targets))

    def move(self, index: int, source: int, target: int) -> None:
        current, size = self.replicas[index], self.before[index].size
        current[current.index(source)] = target
        self.held[source] -= size
        self.held[target] += size
        self.on[source].discard(index)
        self.on[target].add(index)

    def drain(self) -> None:
        for broker in sorted(self.drained & set(self.racks)):
            # The largest replicas move first, because they then have the most brokers to choose from.
            for index in sorted(self.on[broker], key=lambda index: (-self.before[index].size, index)):
                allowed = [target for target in self.targets if self.may_move(index, broker, target)]
                if not allowed:
                    one = self.before[index]
                    raise PlanError(
                        f"{one.topic}-{one.number} cannot leave broker {broker} without losing a rack: no other broker"
                        " in a separate rack may hold the replica"
                    )
                self.move(index, broker, min(allowed, key=lambda target: (self.held[target], target)))

    def even_out_bytes(self, *, followers_only: bool = False) -> None:
        """Moves replicas away from the fullest broker that can give one. Stops when no move brings the loads of the
        giving and the receiving broker closer together."""
        if not self.targets:
            return
        limit = sum(self.held[broker] for broker in self.targets) / len(self.targets) * (1 + TOLERANCE)
        stuck: set[int] = set()
        while True:
            donors = [broker for broker in self.targets if broker not in stuck and self.held[broker] > limit]
            if not donors:
                return
            donor = max(donors, key=lambda broker: (self.held[broker], -broker))
            chosen = self._best_move(donor, followers_only=followers_only)
            if chosen is None:
                stuck.add(donor)
                continue
            self.move(chosen[0], donor, chosen[1])
            stuck.discard(chosen[1])

    def _best_move(self, donor: int, *, followers_only: bool) -> tuple[int, int] | None:
        """Returns the move that brings the loads of the two brokers closest together. Its size is nearest to half of
        their difference."""
        for target in sorted(self.targets, key=lambda broker: (self.held[broker], broker)):
            distance = self.held[donor] - self.held[target]
            fitting = [
                index
                for index in self.on[donor]
                if 0 < self.before[index].size < distance
                and not (followers_only and self.replicas[index][0] == donor)
                and self.may_move(index, donor, target)
            ]
            if fitting:
                nearest = min(fitting, key=lambda index: (abs(2 * self.before[index].size - distance), index))
                return nearest, target
        return None

    # --- leaders ---

    def even_out_leaders(self) -> None:
        """Evens out preferred leaders. A broker with too many hands a leadership to a broker that has a replica of the
        partition. That broker may hand another leadership on, along a chain that ends at a broker with too few. If no
        chain reaches a broker, it holds too few replicas to lead its share, so the smallest leader replicas move
        there."""
        led: dict[int, set[int]] = {broker: set() for broker in self.racks}
        for index, replicas in enumerate(self.replicas):
            led[replicas[0]].add(index)
        for broker in sorted(self.targets, key=lambda broker: -len(led[broker])):
            while (path := self._path(broker, led)) is not None:
                for index, source, target in reversed(path):
                    self._lead(index, target)
                    led[source].discard(index)
                    led[target].add(index)
        self._move_leaders(led)

    def _move_leaders(self, led: dict[int, set[int]]) -> None:
        """Moves one leader replica at a time away from the broker with the most leaders. The smallest leader moves
        first."""
        smallest = {
            broker: sorted(indexes, key=lambda index: (-self.before[index].size, index))
            for broker, indexes in led.items()
        }
        while donors := [broker for broker in self.targets if smallest[broker]]:
            donor = max(donors, key=lambda broker: (len(led[broker]), -broker))
            index = smallest[donor].pop()
            poor = [other for other in self.targets if len(led[other]) <= len(led[donor]) - 2]
            if not poor:
                return
            allowed = [other for other in poor if self.may_move(index, donor, other)]
            if allowed:
                target = min(allowed, key=lambda other: (len(led[other]), self.held[other], other))
                self.move(index, donor, target)
                led[donor].discard(index)
                led[target].add(index)

    def _path(self, start: int, led: Mapping[int, set[int]]) -> list[tuple[int, int, int]] | None:
        """Returns the shortest chain of hand-overs from `start` to a broker with at least two leaderships fewer.
        Returns None if there is no such chain."""
        came: dict[int, tuple[int, int, int]] = {}
        waiting = deque([start])
        while waiting:
            broker = waiting.popleft()
            for index in sorted(led[broker]):
                for other in self.replicas[index]:
                    if other == start or other in came:
                        continue
                    came[other] = (index, broker, other)
                    if len(led[other]) <= len(led[start]) - 2:
                        return self._chain(came, start, other)
                    waiting.append(other)
        return None

    @staticmethod
    def _chain(came: Mapping[int, tuple[int, int, int]], start: int, end: int) -> list[tuple[int, int, int]]:
        chain = []
        while end != start:
            chain.append(came[end])
            end = came[end][1]
        return chain[::-1]

    def _lead(self, index: int, broker: int) -> None:
        replicas = self.replicas[index]
        at = replicas.index(broker)
        replicas[0], replicas[at] = replicas[at], replicas[0]

    def changed(self) -> list[Partition]:
        return [
            one._replace(replicas=tuple(replicas))
            for one, replicas in zip(self.before, self.replicas, strict=True)
            if tuple(replicas) != one.replicas
        ]
