from collections.abc import Sequence

from kafkacore._fast.hot.fetch_session import FetchSessionCache
from kafkacore._fast.log.partition_table import Table
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.plane.plane import NativePlane

class HotState:
    def __init__(
        self,
        sessions: FetchSessionCache,
        fetch_max_bytes: int = 57671680,
        node_id: int = -1,
        selects_by_rack: bool = False,
        leader_quota: ReplicationQuota | None = None,
    ) -> None: ...
    def purgatories(self) -> dict[str, tuple[int, int]]:
        """Returns the numbers of waiting Produce and Fetch requests, each with the number of partitions that they
        watch. Any thread may call this method."""

    def publish_endpoints(
        self, plane: NativePlane, endpoints: Sequence[tuple[int, int, str, int, str | None]]
    ) -> None: ...

def publish_table(plane: NativePlane, table: Table) -> None: ...
