"""Python's hold on a partition and its log. A method that may wait for a device lets go of the GIL meanwhile."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from typing_extensions import Buffer

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory

ROLES: tuple[str, ...]
STATES: tuple[str, ...]

class AppendResult(NamedTuple):
    """`error` is Kafka's code; where it is not 0 the offsets are -1. `record_errors`: index in the batch and what is
    wrong.
    """

    error: int
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    error_message: str | None
    record_errors: list[tuple[int, str]]
    ack: tuple[int, int] | None  # a kind of `watch` and an offset: what an answer waits for

class ReadBytes(NamedTuple):
    error: int
    records: bytes
    first_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_id: int
    leader_epoch: int
    diverging_epoch: int
    diverging_end_offset: int
    aborted: list[tuple[int, int]]  # (producer id, first offset), of a read with isolation 1

class SegmentInfo(NamedTuple):
    base_offset: int
    size_bytes: int
    sealed: bool

class PartitionHandle:
    """One partition on one log directory. Costs no file until the first append.

    `topic_id` None: a log that has none on disk. Methods that say "blocking" must not run on a loop's thread.
    """

    def __init__(
        self,
        directory: LogDirectory,
        topic: str,
        index: int,
        topic_id: Uuid | None = None,
        settings: LogSettings | None = None,
    ) -> None: ...
    @property
    def directory(self) -> LogDirectory: ...
    @property
    def settings(self) -> LogSettings: ...
    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def topic_id(self) -> Uuid: ...
    @property
    def role(self) -> str:
        """One of ROLES."""

    @property
    def state(self) -> str:
        """One of STATES."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Offset of the next record."""

    @property
    def synced_offset(self) -> int:
        """All records below survive a power loss."""

    @property
    def recovery_point(self) -> int:
        """What recovery-point-offset-checkpoint says: where a recovery after a crash must begin."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def moved_log_start_offset(self) -> int:
        """The log start where no segment tells it by its base offset; else -1."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def is_behind(self) -> bool:
        """A leader whose high watermark is not where its epoch begins as yet (KIP-207)."""

    @property
    def last_stable_offset(self) -> int: ...
    def satisfies(self, kind: int, at: int) -> bool:
        """Whether a wait of that kind (of `watch`) would be over."""

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Epochs and their start offsets, oldest first."""

    def segments(self) -> list[SegmentInfo]:
        """Oldest first; none while the log is lazy."""

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int = 0,
        followers: Sequence[tuple[int, bool]] = (),
        min_isr: int = 1,
    ) -> bool:
        """Leads from now on. `followers`: broker id and whether in sync, of every other replica. False: an older
        epoch.
        """

    def become_follower(self, leader_id: int, leader_epoch: int, partition_epoch: int = 0) -> bool:
        """Follows `leader_id` (-1: nobody leads). False: an older epoch, nothing changed."""

    def configure(self, settings: LogSettings) -> None:
        """Another configuration from now on."""

    def close(self, gone: bool = False) -> None:
        """No more appends; whoever waits is told. `gone`: the partition is deleted."""

    def restore_high_watermark(self, offset: int) -> None:
        """From replication-offset-checkpoint, after `load` and before a role: within the log."""

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """For a log that has none yet: partition.metadata is written before this returns. Blocking. Raises OSError."""

    def truncate_to(self, offset: int) -> None:
        """The log ends at `offset` (or where it ended before). Blocking. Raises OSError when the directory is
        offline.
        """

    def truncate_fully(self, offset: int) -> None:
        """Drops everything and begins anew at `offset`. Blocking. Raises OSError when the directory is offline."""

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Records below `offset` (-1: below the high watermark) go: error and low watermark. Blocking."""

    def delete_old_segments(self) -> int:
        """Retention as configured: how many segments went. Blocking. Raises OSError when the directory is offline."""

    def shut(self) -> None:
        """The end of an orderly run: everything on disk, a producer snapshot at the end, no more appends. Blocking.
        OSError.
        """

    def retire(self) -> None:
        """Deleted, or not ours any more: afterwards its directory may be renamed or removed. Blocking."""

    def fail(self, error: int) -> None:
        """Its directory failed with an errno: whoever waits is told KAFKA_STORAGE_ERROR."""

    def expire_producers(self) -> int:
        """producer.id.expiration.ms: how many are forgotten."""

    @property
    def unflushed_since_ms(self) -> int:
        """When the oldest byte that is not synced was appended (monotonic clock); -1 when all is."""

    def open_ahead(self) -> None:
        """Starts to open a leader's log if the next append would wait for it. A Produce of many partitions does so."""

    def append(self, records: Buffer, acks: int = 1, wait: bool = True, coordinator: bool = False) -> AppendResult:
        """Produce: one batch, validated and stamped with offsets. Blocking: waits for the log to open or roll, and with
        `wait` for the acknowledgement that `acks` asks for; without, `ack` is what it would have waited for.
        `coordinator`: a batch of this node's own, which may be a transaction's marker."""

    def append_now(self, records: bytearray, acks: int = 1) -> AppendResult | None:
        """`append` of a batch of this node's own, stamped in place, that waits for no device:
        None when the log is being opened or rolled first, which is on its way then."""

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendResult:
        """Whole batches that carry their offsets, of epochs up to `leader_epoch`. Blocking as `append`."""

    def flush(self, timeout_ms: int = -1) -> bool:
        """Everything appended so far is on the disk when this returns True. Blocking."""

    def flush_soon(self) -> None:
        """Syncs everything appended so far in the committer's next round; returns at once (watch.SYNCED tells when)."""

    def read(
        self,
        offset: int,
        max_bytes: int = 1048576,
        isolation: int = 3,
        min_one: bool = True,
        current_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> ReadBytes:
        """Fetch: whole and perhaps one cut batch, as stored. Blocking. `isolation`: 0 up to the high watermark, 1 up to
        the last stable offset, 2 to the log's end (all three from a leader), 3 to the end whoever leads. Raises
        OSError."""

    def offset_by_time(self, timestamp_ms: int, bound: int | None = None) -> tuple[int, int, int]:
        """Offset, timestamp and leader epoch of the first record at or after a time, below `bound` (the high
        watermark); -1s when there is none. Blocking. Raises OSError when the directory is offline."""

    def offset_of_max_timestamp(self) -> tuple[int, int, int]:
        """The same for the record with the greatest timestamp (KIP-734). Blocking."""

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """KIP-101: epoch and end offset of the largest epoch at or below `epoch`; -1, -1 when unknown."""

def new_partitions(
    directory: LogDirectory, topic: str, topic_id: Uuid, indexes: Iterable[int], settings: LogSettings
) -> list[PartitionHandle]:
    """A handle for each index, as PartitionHandle makes one."""

def lead_alone(handles: list[PartitionHandle], leader_id: int, leader_epoch: int, partition_epoch: int) -> None:
    """`become_leader` of partitions that have no other replica."""
