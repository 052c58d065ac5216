"""Chooses moves of replicas that balance the load of brokers. This module is plain Python and runs on the driver. Its
input is one row for each partition.

Each broker has two loads: the bytes that it holds, and the bytes per second that are appended to its replicas. The unit
of each load is its mean over all brokers. The excess of a load is the part above the mean plus TOLERANCE. The strain of
a broker is the sum of the squares of both excesses. So a move may add a little to one load if it takes much from the
other.

The plan makes few moves. It first takes replicas from the fullest brokers until no move reduces the strain. Then it
changes the order of replicas to balance the preferred leaders, which moves no bytes. A move never leaves a partition on
fewer racks than before. The running time is proportional to (partitions moved) x (partitions of a broker).

Only live brokers get replicas or leaders. A fenced broker usually comes back, so its replicas stay, unless the caller
drains the broker. An unregistered broker does not come back, so its replicas move, except those that no live broker may
hold. The balance leaves out replicas that stay on fenced or unregistered brokers.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

TOLERANCE: Final = 0.02  # as a share of the mean: brokers within this distance from the mean count as balanced
_LIMIT: Final = 1 + TOLERANCE
_GAIN: Final = 1e-9  # a smaller change of strain is an error of rounding


class Partition(NamedTuple):
    """A partition: its replicas in their order, the size of each replica in bytes, and the bytes per second that are
    appended to each replica. The first replica is the preferred leader."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    size: int
    rate: float = 0.0


class Load(NamedTuple):
    """The result of a plan: the bytes, the bytes per second and the preferred leaders of each broker, and the bytes
    that the plan moves."""

    bytes: dict[int, int]
    rates: dict[int, float]
    leaders: dict[int, int]
    moved: int


class PlanError(ValueError):
    """The brokers cannot hold the replicas. The text explains why."""


def plan(
    partitions: Sequence[Partition],
    racks: Mapping[int, str | None],
    *,
    drained: Collection[int] = (),
    fenced: Collection[int] = (),
) -> list[Partition]:
    """Returns the partitions whose replicas, or whose order of replicas, should change, with their new replicas.

    Args:
        partitions: all partitions of the cluster.
        racks: the rack of each registered broker; None for a broker without a rack.
        drained: brokers that hold no replicas after the plan.
        fenced: registered brokers that get no replicas.

    Raises:
        PlanError: a partition needs more replicas on live brokers than there are live brokers, or a drained broker is
        unknown.
    """
    work = _Plan(partitions, racks, drained, fenced)
    work.drain()
    work.leave_unregistered()
    work.even_out()
    work.even_out_leaders()
    work.even_out(followers_only=True)  # the moves of leader replicas have changed the brokers' loads
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
    """Returns the load of the cluster after each partition in `after` has replaced the partition of the same name in
    `before`.
    """
    replaced = {(one.topic, one.number): one for one in after}
    held = dict.fromkeys(brokers, 0)
    rates = dict.fromkeys(brokers, 0.0)
    leaders = dict.fromkeys(brokers, 0)
    moved = 0
    for old in before:
        new = replaced.get((old.topic, old.number), old)
        moved += old.size * len(set(new.replicas) - set(old.replicas))
        leaders[new.replicas[0]] = leaders.get(new.replicas[0], 0) + 1
        for broker in new.replicas:
            held[broker] = held.get(broker, 0) + old.size
            rates[broker] = rates.get(broker, 0.0) + old.rate
    return Load(held, rates, leaders, moved)


class _Plan:
    def __init__(
        self,
        partitions: Sequence[Partition],
        racks: Mapping[int, str | None],
        drained: Collection[int],
        fenced: Collection[int],
    ) -> None:
        self.before = partitions
        self.racks = racks
        self.drained = set(drained)
        self.targets = [broker for broker in racks if broker not in self.drained and broker not in fenced]
        self.replicas = [list(one.replicas) for one in partitions]
        self.on: dict[int, set[int]] = {broker: set() for broker in racks}
        for index, one in enumerate(partitions):
            for broker in one.replicas:
                self.on.setdefault(broker, set()).add(index)
        self._check()
        # The number of replicas of each partition that live brokers hold after the plan.
        staying = set(fenced) - self.drained
        self.counts = [
            min(sum(broker not in staying for broker in one.replicas), len(self.targets)) for one in partitions
        ]
        # The shares of each replica in both loads, and the loads of each broker. The unit is the mean of the brokers.
        sizes = self._shares([one.size for one in partitions])
        rates = self._shares([one.rate for one in partitions])
        self.shares = list(zip(sizes, rates, strict=True))
        # A move costs the bytes of the replica, and some work that is equal for all replicas. This work costs as much
        # as the bytes of a replica of mean size.
        self.mean_share = len(self.targets) / max(sum(self.counts), 1)
        self.held = {
            broker: (sum(sizes[index] for index in on), sum(rates[index] for index in on))
            for broker, on in self.on.items()
        }

    def _shares(self, values: Sequence[float]) -> list[float]:
        total = sum(value * count for value, count in zip(values, self.counts, strict=True))
        return [value * len(self.targets) / total if total else 0.0 for value in values]

    def _check(self) -> None:
        if unknown := sorted(self.drained - self.on.keys()):
            raise PlanError(f"broker {unknown[0]} cannot be drained: it is not registered and holds no replicas")
        must = self.drained.union(self.targets)
        for one in self.before:
            count = len(must.intersection(one.replicas))
            if count > len(self.targets):
                raise PlanError(
                    f"live brokers must hold {count} replicas of {one.topic}-{one.number}, but only"
                    f" {len(self.targets)} brokers may hold them"
                )

    # --- moves ---

    def spread(self, brokers: Sequence[int]) -> int:
        """Returns the number of racks of these brokers. A broker without a known rack counts as its own rack."""
        return len({self.racks.get(broker) or broker for broker in brokers})

    def may_move(self, index: int, source: int, target: int) -> bool:
        current = self.replicas[index]
        if target in current:
            return False
        moved = [target if broker == source else broker for broker in current]
        return self.spread(moved) >= min(self.spread(current), self.spread(self.targets))

    def strain(self, broker: int, index: int | None = None, sign: int = 1) -> float:
        """Returns how strained a broker is. With `index`, returns how strained it would be with one more replica of
        this partition, or with one fewer if `sign` is -1."""
        size, rate = self.held[broker]
        if index is not None:
            share = self.shares[index]
            size, rate = size + sign * share[0], rate + sign * share[1]
        above = 0.0
        if size > _LIMIT:
            above += (size - _LIMIT) * (size - _LIMIT)
        if rate > _LIMIT:
            above += (rate - _LIMIT) * (rate - _LIMIT)
        return above

    def room(self, index: int, broker: int) -> tuple[float, float, int]:
        """Returns a key that is least for the broker that has the most room for a replica of this partition."""
        return self.strain(broker, index) - self.strain(broker), max(self.held[broker]), broker

    def move(self, index: int, source: int, target: int) -> None:
        current, (size, rate) = self.replicas[index], self.shares[index]
        current[current.index(source)] = target
        self.held[source] = (self.held[source][0] - size, self.held[source][1] - rate)
        self.held[target] = (self.held[target][0] + size, self.held[target][1] + rate)
        self.on[source].discard(index)
        self.on[target].add(index)

    def drain(self) -> None:
        for broker in sorted(self.drained):
            if stuck := self._leave(broker):
                one = self.before[stuck[0]]
                raise PlanError(
                    f"{one.topic}-{one.number} cannot leave broker {broker} without losing a rack: no other broker"
                    " in a separate rack may hold the replica"
                )

    def leave_unregistered(self) -> None:
        for broker in sorted(self.on.keys() - self.racks.keys() - self.drained):
            self._leave(broker)

    def _leave(self, broker: int) -> list[int]:
        """Moves the replicas of a broker to live brokers. Returns the partitions that no live broker may take."""
        stuck = []
        # The largest replicas move first, because they then have the most brokers to choose from.
        for index in sorted(self.on[broker], key=lambda index: (-max(self.shares[index]), index)):
            allowed = [target for target in self.targets if self.may_move(index, broker, target)]
            if allowed:
                self.move(index, broker, min(allowed, key=lambda target: self.room(index, target)))
            else:
                stuck.append(index)
        return stuck

    def even_out(self, *, followers_only: bool = False) -> None:
        """Moves replicas away from the fullest broker that can give one. Stops when no move reduces the strain."""
        stuck: set[int] = set()
        moved = True
        while moved:  # after a move, a broker that was stuck may be able to give a replica
            stuck.clear()
            moved = False
            while (donor := self._fullest(stuck)) is not None:
                chosen = self._best_move(donor, followers_only=followers_only)
                if chosen is None:
                    stuck.add(donor)
                    continue
                self.move(chosen[0], donor, chosen[1])
                stuck.discard(chosen[1])
                moved = True

    def _fullest(self, stuck: Collection[int]) -> int | None:
        donors = [broker for broker in self.targets if broker not in stuck and max(self.held[broker]) > _LIMIT]
        return max(donors, key=lambda broker: (max(self.held[broker]), -broker), default=None)

    def _best_move(self, donor: int, *, followers_only: bool) -> tuple[int, int] | None:
        """Returns the best move from `donor`: the partition, and the broker that gets the replica. One of the two loads
        is larger on the donor. Among the brokers that can take a replica, chooses the broker with the least of this
        load. The best move to this broker is the one that reduces the strain most for its cost."""
        load = self.held[donor].index(max(self.held[donor]))
        before = self.strain(donor) - _GAIN
        gains = [
            (index, before - self.strain(donor, index, -1))
            for index in self.on[donor]
            if not (followers_only and self.replicas[index][0] == donor)
        ]
        for target in sorted(self.targets, key=lambda broker: (self.held[broker][load], broker)):
            now = self.strain(target)
            fitting = [
                ((gain + now - left) / (self.shares[index][0] + self.mean_share), -index)
                for index, gain in gains
                if (left := self.strain(target, index)) < gain + now and self.may_move(index, donor, target)
            ]
            if fitting:
                return -max(fitting)[1], target
        return None

    # --- leaders ---

    def even_out_leaders(self) -> None:
        """Evens out preferred leaders. A broker that leads too many partitions passes a leadership to a broker that has
        a replica of the partition. The second broker may pass on another leadership, along a chain that ends at a
        broker that leads too few. A broker that no chain reaches holds too few replicas to lead its share, so the
        smallest leader replicas move to this broker."""
        led: dict[int, set[int]] = {broker: set() for broker in self.on}
        for index, replicas in enumerate(self.replicas):
            led[replicas[0]].add(index)
        moved = True
        while moved:  # the move of a leader replica can make another chain possible
            self._hand_over_leaders(led)
            moved = self._move_leaders(led)

    def _hand_over_leaders(self, led: dict[int, set[int]]) -> None:
        for broker in sorted(self.targets, key=lambda broker: -len(led[broker])):
            while (path := self._path(broker, led)) is not None:
                for index, source, target in reversed(path):
                    self._lead(index, target)
                    led[source].discard(index)
                    led[target].add(index)

    def _move_leaders(self, led: dict[int, set[int]]) -> bool:
        """Moves one leader replica at a time away from the broker with the most leaders. The smallest leader replica
        moves first. Returns whether any leader replica moved."""
        moved = False
        smallest = {
            broker: sorted(indexes, key=lambda index: (-max(self.shares[index]), index))
            for broker, indexes in led.items()
        }
        while donors := [broker for broker in self.targets if smallest[broker]]:
            donor = max(donors, key=lambda broker: (len(led[broker]), -broker))
            index = smallest[donor].pop()
            poor = [other for other in self.targets if len(led[other]) <= len(led[donor]) - 2]
            if not poor:
                break
            allowed = [other for other in poor if self.may_move(index, donor, other)]
            if allowed:
                target = min(allowed, key=lambda other: (len(led[other]), *self.room(index, other)))
                self.move(index, donor, target)
                led[donor].discard(index)
                led[target].add(index)
                moved = True
        return moved

    def _path(self, start: int, led: Mapping[int, set[int]]) -> list[tuple[int, int, int]] | None:
        """Returns the shortest chain of hand-overs from `start` to a broker with at least two leaderships fewer.
        Returns None if there is no such chain."""
        came: dict[int, tuple[int, int, int]] = {}
        waiting = deque([start])
        while waiting:
            broker = waiting.popleft()
            for index in sorted(led[broker]):
                for other in self.replicas[index]:
                    if other == start or other in came or other not in self.targets:
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
