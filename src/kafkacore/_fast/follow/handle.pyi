"""The Python interface of a fetcher: its requests to a leader, and the effects of the answers."""

from typing import NamedTuple

from typing_extensions import Buffer

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.world.environment import Environment

FETCH_VERSIONS: tuple[int, int]
LIST_OFFSETS_VERSIONS: tuple[int, int]
STATES: tuple[str, ...]
EVENTS: tuple[str, ...]

class FetcherEvent(NamedTuple):
    """An event of a followed partition. `kind` is one of EVENTS. `_fast/follow/followed.pxd` describes the numbers of
    each kind."""

    kind: str
    topic: str
    partition: int
    first: int
    second: int

class FetcherCounts(NamedTuple):
    requests: int
    bytes: int  # the bytes of appended records
    most_lag: int  # in records; 0 while no lag is known
    partitions: int
    failed: int  # the number of partitions that wait for a new role

class FetcherHandle:
    """Fetches partitions that one other broker leads. Only one thread may use the handle. Sizes are in bytes. Times are
    in ms of a monotonic clock. `fileno` becomes readable when `deliver` has something to do."""

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
        quota: ReplicationQuota | None = None,
    ) -> None:
        """The keywords are the replica.fetch.* settings. Raises OSError if no file descriptor is left."""

    def fileno(self) -> int: ...
    def deliver(self) -> None:
        """Processes the reports of the I/O threads. After this, `fileno` signals the next report."""

    def follow(self, partition: PartitionHandle, leader_epoch: int) -> None:
        """Begins to follow a partition from the end of its log. If the fetcher already follows the partition in this
        epoch, nothing changes."""

    def stop(self, partition: PartitionHandle) -> None:
        """Stops fetching a partition. A truncation that has begun is still completed."""

    def stop_all(self) -> None: ...
    def state(self, partition: PartitionHandle) -> str | None:
        """Returns the partition's state, one of STATES, or None if this fetcher does not have the partition."""

    def lag(self, partition: PartitionHandle) -> int:
        """Returns the number of records that the partition lacks up to the leader's high watermark, or -1 if it is not
        known."""

    @property
    def partitions(self) -> int:
        """The number of partitions that are followed or must still be removed from the leader's session."""

    @property
    def jobs(self) -> int:
        """The number of running truncations. Do not drop the handle until it is 0."""

    @property
    def session(self) -> tuple[int, int, int]:
        """The fetch session: its id, the epoch of its next request, and its number of partitions."""

    def connected(self, fetch_version: int, list_offsets_version: int, broker_epoch: int) -> None:
        """Sets the versions of the next requests, and the broker epoch that they name. Raises ValueError if a version
        is not supported."""

    def ask(self) -> tuple[int, int, bytes] | None:
        """Returns API key, version and body of the next request. Returns None if no request is needed or the last one
        has no answer yet. Raises MemoryError."""

    def absorb(self, body: Buffer) -> int:
        """Applies the body of the answer and returns its error code. Raises ProtocolError if the body cannot be read.
        After this error, the caller must end the connection and call `failed`."""

    def failed(self) -> None:
        """Reports that no answer will come. The next request begins a new session."""

    def advance(self, now_ms: int) -> None:
        """Ends the pauses that are over at `now_ms`, so that their partitions fetch again."""

    @property
    def due_ms(self) -> int:
        """The time at which the next pause ends, or -1 if there is none. Read this after `ask`, which lets the
        partitions pause that a replication quota holds back."""

    def events(self) -> list[FetcherEvent]:
        """Returns the first 64 events since the last call."""

    def count(self) -> None:
        """Updates the counts of lag and partitions."""

    def counts(self) -> FetcherCounts:
        """Returns the counts; any thread may call this. Lag and partitions were counted by the last `count`."""
