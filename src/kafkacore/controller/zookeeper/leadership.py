"""The leadership of a partition, and its assigned replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
INITIAL_LEADER_EPOCH: Final = 0
INITIAL_PARTITION_EPOCH: Final = 0
NO_LEADER_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2
RECOVERED: Final = 0
RECOVERING: Final = 1
MAX_LEADER_EPOCH: Final = (1 << 31) - 1  # the highest leader epoch that a request to a broker can contain
NO_NEXT_EPOCH: Final = f"its leader epoch is {MAX_LEADER_EPOCH}, the highest possible one; create the topic again"

Ids = tuple[int, ...]


class LeaderAndIsr(NamedTuple):
    """The content of a partition's state znode. `partition_epoch` is the version of that znode. `controller_epoch` is
    the epoch of the controller that wrote the znode."""

    leader: int
    leader_epoch: int
    isr: Ids
    recovery_state: int
    partition_epoch: int
    controller_epoch: int

    @property
    def has_next_epoch(self) -> bool:
        """Whether the leadership can change. It cannot if an administrator has written a state znode with the highest
        epoch."""
        return self.leader_epoch < MAX_LEADER_EPOCH

    # Thousands of partitions change at once. So these methods avoid `_replace`, which takes several times as long.

    def led_by(self, leader: int, isr: Ids, controller_epoch: int) -> LeaderAndIsr:
        """Returns the leadership in the next leader epoch, with this leader and ISR."""
        return LeaderAndIsr(
            leader, self.leader_epoch + 1, isr, self.recovery_state, self.partition_epoch, controller_epoch
        )

    def next_epoch(self, controller_epoch: int) -> LeaderAndIsr:
        """Returns the leadership with the same leader in its next leader epoch. The new epoch fences requests that
        contain the former epoch."""
        return self.led_by(self.leader, self.isr, controller_epoch)

    def written_as(self, partition_epoch: int) -> LeaderAndIsr:
        """Returns the same leadership with the version that the znode has after the write."""
        return LeaderAndIsr(
            self.leader, self.leader_epoch, self.isr, self.recovery_state, partition_epoch, self.controller_epoch
        )


def first_leadership(leader: int, isr: Ids, controller_epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, INITIAL_LEADER_EPOCH, isr, RECOVERED, INITIAL_PARTITION_EPOCH, controller_epoch)


class Assignment(NamedTuple):
    """The replicas of a partition, and the replicas that a reassignment adds and removes (KIP-455). During a
    reassignment `replicas` holds first the target replicas, then the replicas that will be removed."""

    replicas: Ids
    adding: Ids = ()
    removing: Ids = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> Ids:
        """The replicas before the reassignment."""
        return without(self.replicas, self.adding)

    @property
    def target(self) -> Ids:
        """The replicas after the reassignment."""
        return without(self.replicas, self.removing)

    def reassign_to(self, target: Iterable[int]) -> Assignment:
        """Returns the assignment that moves the partition from its original replicas to `target`. The new assignment
        replaces a reassignment in progress."""
        wanted, origin = tuple(target), self.origin
        replicas = tuple(dict.fromkeys(wanted + origin))
        return Assignment(replicas, without(replicas, origin), without(replicas, wanted))

    def without_replica(self, replica: int) -> Assignment:
        gone = (replica,)
        return Assignment(without(self.replicas, gone), without(self.adding, gone), without(self.removing, gone))


NO_ASSIGNMENT: Final = Assignment(())


def without(replicas: Ids, gone: Collection[int]) -> Ids:
    """Returns `replicas` without the members of `gone`. Returns `replicas` itself if nothing changes."""
    dropped = frozenset(gone)  # a request or a znode can name very many replicas
    if dropped.isdisjoint(replicas):
        return replicas
    return tuple(replica for replica in replicas if replica not in dropped)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
