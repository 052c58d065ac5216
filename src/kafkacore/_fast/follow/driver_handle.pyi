"""Python's face of a fetcher that a processor drives."""

from collections.abc import Iterable

from kafkacore._fast.follow.handle import FetcherCounts, FetcherEvent
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.plane.plane import NativePlane
from kafkacore._fast.plane.processor import NativeProcessor

LINKS: tuple[str, ...]

class DriverHandle:
    """Fetches partitions that one other broker leads, on a processor. One thread uses the handle; any
    thread may call `counts`, `hold` and `disconnect`. The processor carries out the orders in their order, and soon.
    `fileno` becomes readable when there is news: then call `heed` and look at the properties."""

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
        timeout_ms: int = 30000,
    ) -> None:
        """The plane's budget counts the memory of answers. The keywords are the replica.fetch.* settings, and
        replica.socket.timeout.ms. Raises OSError when no file descriptor is left."""

    def fileno(self) -> int: ...
    def heed(self) -> None:
        """Afterwards `fileno` signals the next news."""

    @property
    def link(self) -> str:
        """One of LINKS. "wanted" asks for a connection; "ended" follows `shut`."""

    @property
    def losses(self) -> int:
        """How many connections were lost so far."""

    @property
    def lost_why(self) -> str:
        """Why the last one was lost."""

    @property
    def lost_kind(self) -> str:
        """ "closed", "malformed", "memory", "timeout", "ordered" or "socket"."""

    @property
    def answered(self) -> int:
        """How many connections have had an answer without an error."""

    @property
    def refusals(self) -> int:
        """Answers in a row with an error of their own."""

    @property
    def refusal(self) -> int:
        """The error of the last one."""

    @property
    def orders(self) -> int:
        """How many orders are carried out. They are numbered from 1."""

    def look(self) -> int:
        """An order that only gives news when it is carried out; its number."""

    def follow(self, partitions: Iterable[tuple[PartitionHandle, int]]) -> None:
        """Fetches each from the end of its log on, in its leader epoch. One that is followed in this epoch goes on as
        before."""

    def stop(self, partitions: Iterable[PartitionHandle]) -> None:
        """Fetches them no longer. A truncation under way goes on to its end."""

    def attach(self, handle: int, fetch_version: int, list_offsets_version: int, broker_epoch: int) -> int:
        """Takes over a connected socket, which nobody else closes from now on, and this broker's epoch. Returns the
        order's number, and gives news when it is carried out. Raises ValueError for a version that is not spoken
        here."""

    def know_broker_epoch(self, broker_epoch: int) -> None: ...
    def disconnect(self) -> None:
        """Ends the connection; another one is wanted if there is something to fetch."""

    def hold(self, *, reads: bool, writes: bool) -> None:
        """For tests: a cut link. From now on the connection, and each later one, is not read or not written."""

    def shut(self) -> None:
        """Ends everything. Wait for the link "ended" before you drop the handle or its partitions."""

    def events(self) -> list[FetcherEvent]:
        """The first 64 events since the last call."""

    def counts(self) -> FetcherCounts:
        """Any thread may call it. Lag and partitions are as of the last second in which it fetched."""

def live() -> int:
    """Drivers that are not freed."""
