"""The partitions of a node whose ISR may have to change."""

from collections.abc import Iterable

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.world.environment import Environment

FENCED: int
LEAVING: int
ACTIVE: int

class PartitionEdges:
    """A bounded queue that coalesces: a partition stands in it at most once.

    A partition that reports to it (`report_to`) enters the queue when a follower may join its ISR, when a member has
    fallen behind (`check_lag`), and when its leader was elected uncleanly. The brokers decide whether a follower is
    eligible (KIP-903).
    """

    def __init__(self, max_lag_ms: int, environment: Environment | None = None) -> None:
        """`max_lag_ms`: replica.lag.time.max.ms."""

    max_lag_ms: int

    def set_brokers(self, brokers: Iterable[tuple[int, int, int]]) -> None:
        """All registered brokers: id, FENCED, LEAVING or ACTIVE, and broker epoch."""

    def check_lag(self, most: int = ...) -> int:
        """Looks at the lag of the followers of up to `most` leading partitions, first at those that were not looked at
        for the longest time. Returns how many it looked at. Call it so often that each partition is looked at twice
        within replica.lag.time.max.ms."""

    def take(self, most: int) -> list[tuple[Uuid, int]]:
        """Takes up to `most` partitions out of the queue, the oldest first: topic id and index. While more wait,
        `fileno` stays readable."""

    def fileno(self) -> int:
        """Becomes readable when `take` has partitions to return."""

    def __len__(self) -> int:
        """Number of partitions that wait to be taken."""

    @property
    def leading(self) -> int:
        """Number of partitions that report to it, lead and have followers."""
