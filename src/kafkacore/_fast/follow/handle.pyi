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
    """Fetches partitions that one other broker leads. Only one thread may use it. Sizes are in bytes, times in ms of a
    monotonic clock. `fileno` becomes readable when `deliver` has something to do."""

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
        """Takes the reports of the I/O threads. Afterwards `fileno` signals the next report."""

    def follow(self, partition: PartitionHandle, leader_epoch: int) -> None:
        """Begins to follow a partition from the end of its log on. If it follows the partition in this epoch already,
        nothing changes."""

    def stop(self, partition: PartitionHandle) -> None:
        """Stops fetching a partition. A truncation under way still ends."""

    def stop_all(self) -> None: ...
    def state(self, partition: PartitionHandle) -> str | None:
        """The partition's state, one of STATES; None when this fetcher does not know the partition."""

    def lag(self, partition: PartitionHandle) -> int:
        """How many records the partition is behind the leader's high watermark; -1 when that is not known."""

    @property
    def partitions(self) -> int:
        """The number of partitions that are followed, or that the leader's session must still drop."""

    @property
    def jobs(self) -> int:
        """The number of truncations under way. Do not drop the handle until it is 0."""

    @property
    def session(self) -> tuple[int, int, int]:
        """The session: its id, the epoch of its next request, and its number of partitions."""

    def connected(self, fetch_version: int, list_offsets_version: int, broker_epoch: int) -> None:
        """Sets the versions of the next requests, and this broker's epoch in them. Raises ValueError."""

    def ask(self) -> tuple[int, int, bytes] | None:
        """API key, version and body of the next request; None when there is nothing to ask or a request is under way.
        Raises MemoryError."""

    def absorb(self, body: Buffer) -> int:
        """Takes the body of the answer. Returns its error code. Raises ProtocolError when the body cannot be read; then
        end the connection and call `failed`."""

    def failed(self) -> None:
        """Notes that no answer comes: the next request begins a new session."""

    def advance(self, now_ms: int) -> int:
        """Lets partitions whose pause is over fetch again. Returns the time at which the next pause ends, or -1."""

    def events(self) -> list[FetcherEvent]:
        """The first 64 events since the last call."""

    def count(self) -> None:
        """Brings the counts of lag and partitions up to date."""

    def counts(self) -> FetcherCounts:
        """Any thread may call it. Lag and partitions are as of the last `count`."""
