"""The Python handle of a partition and its log. A method that can wait for the disk releases the GIL while it waits."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from typing_extensions import Buffer

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory

Acknowledgement: TypeAlias = tuple[int, int, int]

ROLES: tuple[str, ...]
STATES: tuple[str, ...]
# The origins of a batch. "client": a client. "transaction": a client, in a transaction that its coordinator has
# verified. "coordinator": a coordinator, which may also write markers. "bumped marker" and "bumped transaction": the
# same with transaction.version 2, so the marker and the next transaction have new producer epochs.
ORIGINS: Mapping[str, int]

class AppendResult(NamedTuple):
    """The result of an append. `error` is a Kafka error code. The offsets are -1 if `error` is not 0. `record_errors`
    has a pair for each invalid record: the record's index in the batch, and its fault."""

    error: int
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    error_message: str | None
    record_errors: list[tuple[int, str]]
    # The acknowledgement to wait for: a kind of `partition_watch`, an offset, and the leadership in which the records
    # were appended.
    ack: Acknowledgement | None

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
    aborted: list[tuple[int, int]]  # (producer id, first offset); empty unless the isolation is 1
    in_older_segment: bool  # whether the records are in a segment that takes no more appends

class FollowerState(NamedTuple):
    """Another replica, as this leader knows it. The offsets are -1 until the replica has fetched in this leader
    epoch."""

    broker_id: int
    broker_epoch: int  # the broker epoch in its last fetch; -1 if there was none
    end_offset: int
    log_start_offset: int
    in_sync: bool  # in the committed ISR
    is_joining: bool  # only in the proposed ISR
    # Whether the replica may join the ISR. It must have caught up, and its broker must be neither fenced nor in a
    # controlled shutdown, and must not have restarted since its last fetch.
    may_join: bool
    lags: bool  # whether more than replica.lag.time.max.ms have passed since the replica last had all records
    must_leave: bool  # whether it is in the ISR, lagged when `PartitionEdges.check_lag` last ran, and still lags

class SegmentInfo(NamedTuple):
    base_offset: int
    size_bytes: int
    sealed: bool

class PartitionHandle:
    """One partition on one log directory. The partition has no files before its first append.

    `topic_id` is None for a log without a topic id. Do not call methods whose docstring says "Blocking" on the thread
    of an event loop.
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
        """The role of this broker, one of ROLES."""

    @property
    def state(self) -> str:
        """The state of the log, one of STATES."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def generation(self) -> int:
        """The number of this broker's leaderships so far. A leadership ends when the broker gets another role, and when
        the log is truncated."""

    @property
    def is_proposing(self) -> bool:
        """Whether an AlterPartition has been sent and has no answer yet."""

    @property
    def is_recovering(self) -> bool:
        """Whether this broker was elected leader uncleanly and has not reported the recovery to the controller yet
        (KIP-704)."""

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas; -1 while one of them has not fetched."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def synced_offset(self) -> int:
        """The offset below which all records survive a power loss."""

    @property
    def recovery_point(self) -> int:
        """The offset for recovery-point-offset-checkpoint. A recovery after a crash must begin there."""

    def recovery_point_to_write(self) -> int:
        """Returns the recovery point for a checkpoint that is about to be written. From now on, a truncation below this
        offset waits for another checkpoint."""

    @property
    def truncations(self) -> int:
        """The number of truncations of the log, and of its moves to another directory, since the node started."""

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether the log was truncated below its recovery point or its start in the checkpoint files. If so, it
        accepts no append until the files have lower offsets (`cuts`)."""

    @property
    def log_start_offset(self) -> int: ...
    def log_start_to_write(self) -> int:
        """Returns the offset for log-start-offset-checkpoint: the log start offset if it is above the base offset of
        the first segment, or above 0 in a log that has a directory but no segments. Otherwise returns -1. From now
        on, a truncation below this offset waits for another checkpoint."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def is_behind(self) -> bool:
        """Whether this broker leads and the high watermark has not reached the start of the leader epoch (KIP-207)."""

    @property
    def last_stable_offset(self) -> int: ...
    def satisfies(self, kind: int, at: int) -> bool:
        """Returns whether a waiter of this kind (see `partition_watch`) for the offset `at` would be satisfied now."""

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Returns the leader epochs and their start offsets, oldest first."""

    def segments(self) -> list[SegmentInfo]:
        """Returns the segments, oldest first. The list is empty while the log is lazy."""

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int = 0,
        followers: Sequence[tuple[int, bool]] = (),
        min_isr: int = 1,
        recovering: bool = False,
    ) -> bool:
        """Makes this broker the leader. If it already leads, changes its followers. `followers` has the broker id of
        every other replica, and whether that replica is in the committed ISR. `min_isr` is min.insync.replicas.
        `recovering` says that this leader was elected uncleanly. Returns False and changes nothing if one of the epochs
        is older than the partition's."""

    def become_follower(self, leader_id: int, leader_epoch: int, partition_epoch: int = 0) -> bool:
        """Makes this broker follow `leader_id` (-1: there is no leader). Returns False and changes nothing if one of
        the epochs is older than the partition's."""

    def report_to(self, edges: PartitionEdges) -> None:
        """Sets the queue to which the partition reports when its ISR may have to change. Call this once, before the
        partition has a role."""

    def propose_isr(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Notes that an AlterPartition with this ISR is being sent. From now on, the high watermark waits for the new
        members too (KIP-497). Returns False if this broker does not lead in this partition epoch, or if another
        proposal has no answer yet."""

    def withdraw_isr(self) -> None:
        """Ends the proposal. Call this only if it is certain that the controller has not applied the proposal."""

    def commit_isr(self, isr: Iterable[int], leader_epoch: int, partition_epoch: int, recovering: bool = False) -> bool:
        """Sets the ISR and the partition epoch that the AlterPartition response named, and ends the proposal. Returns
        False if the leader epoch differs, or if the partition epoch is older."""

    def followers(self) -> list[FollowerState]:
        """Returns the other replicas if this broker leads. The list is empty in other roles."""

    def readable_replicas(self, offset: int) -> list[int]:
        """Returns the other brokers from which a client may read `offset`, best first (KIP-392)."""

    def followed(
        self, broker_id: int, offset: int, broker_epoch: int = -1, current_epoch: int = -1, log_start_offset: int = 0
    ) -> int:
        """Notes a follower's fetch at `offset`. Returns 0 or the error code for the response."""

    def acknowledged(self, kind: int, at: int, generation: int) -> int | None:
        """Returns the state of an acknowledgement: 0 if the records are acknowledged, None if they are not yet, or a
        Kafka error code if they never can be. The error is NOT_LEADER_OR_FOLLOWER if the leadership has ended, even if
        this broker leads again."""

    def configure(self, settings: LogSettings) -> None:
        """Replaces the configuration."""

    throttled: int
    """Says whether the topic's configuration throttles this broker's replica as a leader, as a follower, or as both
    (KIP-73). The bits are BY_LEADER and BY_FOLLOWER of `replication_quota`."""

    fetch_lag: int
    """The leader's high watermark minus the end of this replica's log, in records, at this follower's last fetch; at
    least 0. -1 before the first fetch."""

    adds_replicas: bool
    """Whether a reassignment adds replicas to the partition."""

    def add_replicas(self, broker_ids: Sequence[int], node_id: int) -> None:
        """Sets the brokers that a reassignment adds. `node_id` is this broker, which may be one of them. Call this
        without brokers when the reassignment has ended."""

    def close(self, gone: bool = False) -> None:
        """Wakes all waiters, and from now on rejects appends. `gone` means that the partition is being deleted."""

    def restore_high_watermark(self, offset: int) -> None:
        """Restores the high watermark from replication-offset-checkpoint, limited to the log's offsets. Call this after
        the load and before the partition gets a role."""

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Sets the topic id of a log that has no topic id, and writes partition.metadata. Blocking. Raises OSError."""

    def truncate_to(self, offset: int) -> None:
        """Truncates the log to `offset`. Does nothing if the log already ends at or below `offset`. Blocking. Raises
        OSError if the directory is offline."""

    def truncate_fully(self, offset: int) -> None:
        """Removes all records and begins the log again at `offset`. Blocking. Raises OSError if the directory is
        offline."""

    def truncate_as_follower(self, offset: int, leader_epoch: int) -> int:
        """Truncates like `truncate_to`, on behalf of the leader of this epoch. If this broker does not follow that
        leader, changes nothing and returns FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
        Otherwise returns 0 or KAFKA_STORAGE_ERROR. Blocking."""

    def restart_as_follower(self, offset: int, leader_epoch: int) -> int:
        """Begins the log again like `truncate_fully`, on behalf of the leader of this epoch. Call this if this log ends
        before `offset`, where the leader's log begins. Returns the same codes as `truncate_as_follower`. Blocking."""

    def note_leader(self, leader_epoch: int, high_watermark: int, log_start_offset: int) -> int:
        """Applies the leader's Fetch response: adopts the leader's high watermark, limited to this log, and deletes the
        records below the leader's log start offset. Returns the same codes as `truncate_as_follower`. Blocking."""

    def delete_records(self, offset: int) -> tuple[int, int, Acknowledgement | None]:
        """Deletes the records below `offset` (-1: below the high watermark). Returns the error, the low watermark, and
        an acknowledgement. The acknowledgement is satisfied when all replicas have deleted the records. It is None if
        they already have. Blocking."""

    def drop_below(self, offset: int) -> int: ...
    def delete_old_segments(self) -> int:
        """Applies the configured retention. Returns the number of deleted segments. Blocking. Raises OSError if the
        directory is offline."""

    def shut(self) -> None:
        """Closes the log for an orderly stop: syncs everything, writes a producer snapshot at the log's end, and from
        then on rejects appends. Blocking. Raises OSError."""

    def retire(self) -> None:
        """Ends all work of a partition that is deleted or leaves this directory: wakes all waiters and from now on
        rejects appends. After this returns, the directory can be renamed or removed. If a job uses the log, waits until
        the job has ended. Blocking."""

    def fail(self, error: int) -> None:
        """Reports that the directory failed with an errno. Waiters get KAFKA_STORAGE_ERROR."""

    def expire_producers(self) -> int:
        """Removes the producers that were silent for producer.id.expiration.ms. Returns their number."""

    @property
    def unflushed_since_ms(self) -> int:
        """The time of the first append since all bytes were last synced (monotonic clock); -1 if all are synced."""

    def open_ahead(self) -> None:
        """Starts to open a leader's log if the next append would have to wait for that. When a Produce waits for one
        log, the broker calls this for the other partitions of the request."""

    def append(self, records: Buffer, acks: int = 1, wait: bool = True, origin: str = "client") -> AppendResult:
        """Appends one batch as Produce does: validates the batch and sets its offsets. Blocking: waits until the log is
        opened or rolled, and, with `wait`, until the acknowledgement that `acks` demands. Without `wait`, the result's
        `ack` names that acknowledgement. `origin` is a key of ORIGINS."""

    def append_now(self, records: bytearray, acks: int = 1) -> AppendResult | None:
        """Appends one of this node's own batches, and sets the offsets of the batch in place. Does not wait for the
        disk. If the log must first be opened or rolled, starts this work and returns None; then call `append`, which
        waits for the work."""

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendResult:
        """Appends whole batches that already have their offsets, with leader epochs up to `leader_epoch`. Returns the
        errors of `truncate_as_follower`. Blocking, like `append`."""

    def append_replicated(self, records: Buffer, most_epoch: int) -> AppendResult:
        """Like `append_as_follower`, but in any role. The caller must be the only writer of the log, as with the
        metadata log."""

    def append_replicated_now(self, records: Buffer, most_epoch: int) -> AppendResult | None:
        """Like `append_replicated`, but returns None if the log must first be opened or rolled, as `append_now`
        does."""

    def flush(self, timeout_ms: int = -1) -> bool:
        """Returns True when all records appended so far are on the disk, or False after `timeout_ms`. Blocking."""

    def flush_soon(self) -> None:
        """Requests that the committer's next round syncs all records appended so far. Returns at once. A watch for
        SYNCED reports when the sync is done."""

    def read(
        self,
        offset: int,
        max_bytes: int = 1048576,
        isolation: int = 3,
        min_one: bool = True,
        current_epoch: int = -1,
        last_fetched_epoch: int = -1,
        any_replica: bool = False,
        follower: tuple[int, int, int] | None = None,
        notes: bool = True,
    ) -> ReadBytes:
        """Reads as Fetch does. Returns the batches as they are stored. The last one may be incomplete. Blocking.
        `isolation` is 0 to read up to the high watermark, 1 up to the last stable offset, and 2 or 3 up to the log end.
        With 0, 1 or 2, this broker must lead the partition. With `any_replica`, it may also follow. With 3, its role
        does not matter. `follower` is the broker id, the broker epoch (or -1) and the log start offset of the follower
        that sent the request. With `notes`, the read also notes that follower's position. Raises OSError. Only with 3,
        it also raises OSError if a look-up finds no free file descriptor. Otherwise such a read returns
        KAFKA_STORAGE_ERROR, which clients retry."""

    def offset_by_time(self, timestamp_ms: int, bound: int | None = None) -> tuple[int, int, int]:
        """Returns offset, timestamp and leader epoch of the first record at or after `timestamp_ms` and below `bound`
        (by default the high watermark). Returns -1 three times if there is none. Blocking. Raises OSError if the
        directory is offline."""

    def offset_of_max_timestamp(self) -> tuple[int, int, int]:
        """Returns offset, timestamp and leader epoch of the first record with the greatest timestamp (KIP-734), or -1
        three times for an empty log. Blocking. Raises OSError if the directory is offline."""

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch at or below `epoch`, and its end offset (KIP-101). Returns -1, -1 if `epoch` is
        above all epochs of the log."""

def new_partitions(
    directory: LogDirectory, topic: str, topic_id: Uuid, indexes: Iterable[int], settings: LogSettings
) -> list[PartitionHandle]:
    """Creates a PartitionHandle for each index of one topic."""

def become_rows(
    handles: list[PartitionHandle],
    node_id: int,
    rows: Buffer,
    min_isrs: Buffer,
    width: int,
    leader: Buffer,
    leader_epoch: Buffer,
    partition_epoch: Buffer,
    replicas: Buffer,
    isr: Buffer,
    recovery: Buffer,
) -> bytearray:
    """Gives each partition the role that its row in the columns describes: this node leads or follows. `rows` and
    `min_isrs` (array("i")) have an item for each handle. An item of `rows` is the index of the partition's row. The
    other arguments are the columns of a chunk of metadata.partitions. Returns a byte for each partition: 1 if the
    partition took its role, or 0 if it already has newer epochs."""
