"""Python's face of a fetcher: its requests to a leader, and what the answers change."""

from typing import NamedTuple

from typing_extensions import Buffer

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.world.environment import Environment

FETCH_VERSIONS: tuple[int, int]
LIST_OFFSETS_VERSIONS: tuple[int, int]
STATES: tuple[str, ...]
EVENTS: tuple[str, ...]

class FetcherEvent(NamedTuple):
    """An event in the life of a partition. `kind` is one of EVENTS; `_fast/follow/followed.pxd` says what the numbers
    mean."""

    kind: str
    topic: str
    partition: int
    first: int
    second: int

class FetcherCounts(NamedTuple):
    requests: int
    bytes: int  # appended
    most_lag: int  # in records; 0 while no lag is known
    partitions: int
    failed: int  # partitions that wait for a new role

class FetcherHandle:
    """Fetches partitions that one other broker leads. One thread uses it. Sizes in bytes, times in ms of a clock that
    only goes forward. `fileno` becomes readable when `deliver` has something to do."""

    def __init__(
        self,
        environment: Environment,
        node_id: int,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        response_max_bytes: int = 10485760,
        max_bytes: int = 1048576,
        backoff_ms: int = 1000,
    ) -> None:
        """The keywords are the replica.fetch.* settings. Raises OSError when no file descriptor is left."""

    def fileno(self) -> int: ...
    def deliver(self) -> None:
        """Takes what the I/O threads report. Afterwards `fileno` signals the next report."""

    def follow(self, partition: PartitionHandle, leader_epoch: int) -> None:
        """Fetches it from the end of its log on. Goes on as before when it follows in this epoch already."""

    def stop(self, partition: PartitionHandle) -> None:
        """Fetches it no longer. A truncation under way goes on to its end."""

    def stop_all(self) -> None: ...
    def state(self, partition: PartitionHandle) -> str | None:
        """One of STATES; None when it does not know the partition."""

    def lag(self, partition: PartitionHandle) -> int:
        """Records up to the leader's high watermark; -1 when it is not known."""

    @property
    def partitions(self) -> int:
        """Those that are followed, and those that the leader's session has yet to forget."""

    @property
    def jobs(self) -> int:
        """Truncations under way. While there are any, the handle must not be dropped."""

    @property
    def session(self) -> tuple[int, int, int]:
        """Id, epoch of the next request, and number of partitions."""

    def connected(self, fetch_version: int, list_offsets_version: int, broker_epoch: int) -> None:
        """The versions for the next requests, and this broker's epoch in them. Raises ValueError."""

    def ask(self) -> tuple[int, int, bytes] | None:
        """API key, version and body of the next request; None when there is none now, or one is under way. Raises
        MemoryError."""

    def absorb(self, body: Buffer) -> int:
        """Takes the body of the answer. Returns its error code. Raises ProtocolError when it cannot be read; then end
        the connection and call `failed`."""

    def failed(self) -> None:
        """No answer comes: the next request begins a new session."""

    def advance(self, now_ms: int) -> int:
        """Partitions whose pause is over fetch again. Returns when the next pause ends, or -1."""

    def events(self) -> list[FetcherEvent]:
        """The first 64 events since the last call."""

    def count(self) -> None:
        """Brings the counts of lag and partitions up to date."""

    def counts(self) -> FetcherCounts:
        """Any thread may call it. Lag and partitions are as of the last `count`."""
