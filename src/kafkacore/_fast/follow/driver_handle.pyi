"""The Python interface of a fetcher that a processor drives."""

from collections.abc import Iterable

from kafkacore._fast.follow.handle import FetcherCounts, FetcherEvent
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.plane.plane import NativePlane
from kafkacore._fast.plane.processor import NativeProcessor

LINKS: tuple[str, ...]

class DriverHandle:
    """Fetches partitions that one other broker leads. The fetcher runs on a processor.

    Any thread may call `counts`, `hold` and `disconnect`. Only one thread may use the rest of the handle. A method that
    changes something sends an order to the processor. The processor executes the oldest order first. `fileno` becomes
    readable when there is news, which means that a property has changed. Then call `heed` and read the properties."""

    def __init__(
        self,
        plane: NativePlane,
        processor: NativeProcessor,
        node_id: int,
        client_id: str,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        response_max_bytes: int = 10485760,
        max_bytes: int = 1048576,
        backoff_ms: int = 1000,
        quota: ReplicationQuota | None = None,
        timeout_ms: int = 30000,
    ) -> None:
        """The memory of answers counts against the plane's budget. The keywords are the replica.fetch.* settings and
        replica.socket.timeout.ms. Raises OSError if no file descriptor is left."""

    def fileno(self) -> int: ...
    def heed(self) -> None:
        """Acknowledges the news. After this, `fileno` signals the next news."""

    @property
    def link(self) -> str:
        """The state of the connection, one of LINKS. "wanted" means that the caller should open a connection and call
        `attach`. "ended" follows `shut`."""

    @property
    def losses(self) -> int:
        """The number of connections that have been lost so far."""

    @property
    def lost_why(self) -> str:
        """The reason why the last connection was lost, as text."""

    @property
    def lost_kind(self) -> str:
        """The kind of that reason: "closed", "malformed", "memory", "timeout", "ordered" or "socket"."""

    @property
    def answered(self) -> int:
        """The number of connections that have had an answer without an error."""

    @property
    def refusals(self) -> int:
        """The number of consecutive answers with a top-level error."""

    @property
    def refusal(self) -> int:
        """The error code of the last answer with a top-level error."""

    @property
    def orders(self) -> int:
        """The number of orders that have been executed. Orders are numbered from 1."""

    @property
    def jobs(self) -> int:
        """The number of running truncations."""

    def look(self) -> int:
        """Sends an order that only makes the driver post its news. Returns the number of the order."""

    def follow(self, partitions: Iterable[tuple[PartitionHandle, int]]) -> None:
        """Fetches each partition from the end of its log, in the given leader epoch. If a partition is already followed
        in this epoch, nothing changes for it."""

    def stop(self, partitions: Iterable[PartitionHandle]) -> None:
        """Stops fetching these partitions. A truncation that has begun is still completed."""

    def attach(self, handle: int, fetch_version: int, list_offsets_version: int, broker_epoch: int) -> int:
        """Passes a connected socket and this broker's epoch to the driver. From now on only the driver may close the
        socket. Gives news when the order is executed. Returns the number of the order. Raises ValueError if a version
        is not supported."""

    def know_broker_epoch(self, broker_epoch: int) -> None: ...
    def disconnect(self) -> None:
        """Ends the connection. If there is something to fetch, the link becomes "wanted" again."""

    def hold(self, *, reads: bool, writes: bool) -> None:
        """Simulates a broken link, for tests. With `reads`, the processor no longer reads from the present connection
        and all later ones. With `writes`, it no longer writes to them."""

    def shut(self) -> None:
        """Ends the connection and all fetching. Wait for the link "ended" before you drop the handle or the
        partitions."""

    def events(self) -> list[FetcherEvent]:
        """Returns the first 64 events since the last call."""

    def counts(self) -> FetcherCounts:
        """Returns the counts; any thread may call this. Lag and partitions are counted about once a second while the
        fetcher runs."""

def live() -> int:
    """Returns the number of drivers that have not been freed."""
