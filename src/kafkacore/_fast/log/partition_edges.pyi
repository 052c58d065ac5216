"""The queue of a node's partitions whose ISR may have to change."""

from collections.abc import Iterable

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.world.environment import Environment

FENCED: int
LEAVING: int
ACTIVE: int

class PartitionEdges:
    """A bounded queue of partitions. A partition is in the queue at most once, however often it reports.

    After `PartitionHandle.report_to`, a partition enters the queue when a follower may join its ISR, when a member of
    its ISR has fallen behind (`check_lag`), and when its leader was elected uncleanly. The state of a follower's broker
    decides whether the follower may join (KIP-903).
    """

    def __init__(self, max_lag_ms: int, environment: Environment | None = None) -> None:
        """`max_lag_ms` is replica.lag.time.max.ms."""

    max_lag_ms: int

    def set_brokers(self, brokers: Iterable[tuple[int, int, int]]) -> None:
        """Sets the registered brokers. Each tuple has the broker id, the state (FENCED, LEAVING or ACTIVE) and the
        broker epoch."""

    def check_lag(self, most: int = ...) -> int:
        """Checks the lag of the followers of up to `most` led partitions, beginning with the partitions that were
        checked least recently. Returns the number of partitions that it checked. Call this often enough to check each
        partition twice within replica.lag.time.max.ms."""

    def take(self, most: int) -> list[tuple[Uuid, int]]:
        """Removes up to `most` partitions from the queue, the oldest first, and returns their topic ids and indexes.
        While more are in the queue, `fileno` stays readable."""

    def fileno(self) -> int:
        """Returns the file descriptor that becomes readable when `take` has partitions to return."""

    def __len__(self) -> int:
        """Returns the number of partitions in the queue."""

    @property
    def leading(self) -> int:
        """The number of partitions that report to this queue, are led by this node and have followers."""
