"""Python's handle of a partition and its log. A method that may wait for a device releases the GIL meanwhile."""

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
# The origin of a batch: a client; a client in a transaction that its coordinator has verified; a coordinator, whose
# batch may be a marker; a coordinator whose markers carry a new producer epoch (transaction.version 2).
ORIGINS: Mapping[str, int]

class AppendResult(NamedTuple):
    """`error` is Kafka's code; the offsets are -1 unless it is 0. `record_errors` has the index in the batch and the
    fault of each invalid record."""

    error: int
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    error_message: str | None
    record_errors: list[tuple[int, str]]
    # the acknowledgement to wait for: a kind of `partition_watch`, an offset, and the leadership to which it belongs
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
    in_older_segment: bool  # the records lie in a segment that takes no more appends

class FollowerState(NamedTuple):
    """Another replica, as its leader knows it. The offsets are -1 until it has fetched in this leader epoch."""

    broker_id: int
    broker_epoch: int  # the broker epoch in its last fetch; -1 when it named none
    end_offset: int
    log_start_offset: int
    in_sync: bool  # in the committed ISR
    is_joining: bool  # in the proposed ISR alone
    may_join: bool  # it is caught up, and its broker is neither fenced nor leaving and has not restarted since
    lags: bool  # it was last caught up more than replica.lag.time.max.ms ago

class SegmentInfo(NamedTuple):
    base_offset: int
    size_bytes: int
    sealed: bool

class PartitionHandle:
    """One partition on one log directory. It has no file before its first append.

    `topic_id` is None for a log without one. Methods that say "blocking" must not run on a loop's thread.
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
    def partition_epoch(self) -> int: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def generation(self) -> int:
        """Counts the leaderships of this broker: one ends with another role and with a truncation."""

    @property
    def is_proposing(self) -> bool:
        """Whether an AlterPartition is under way."""

    @property
    def is_recovering(self) -> bool:
        """Whether this leader was elected uncleanly and has not said that it recovered (KIP-704)."""

    @property
    def low_watermark(self) -> int:
        """The lowest log start of all live replicas; -1 while one of them has not fetched."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int:
        """Offset of the next record."""

    @property
    def synced_offset(self) -> int:
        """All records below this offset survive a power loss."""

    @property
    def recovery_point(self) -> int:
        """The offset for recovery-point-offset-checkpoint, where a recovery after a crash must begin."""

    def recovery_point_to_write(self) -> int:
        """The same, for a checkpoint that is about to be written: a truncation below it will wait for another one."""

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether it was truncated below the recovery point in the checkpoint file, and takes no append until the file
        has a lower one (`cuts`)."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def moved_log_start_offset(self) -> int:
        """The log start offset when no segment begins there; else -1."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def is_behind(self) -> bool:
        """Whether this is a leader whose high watermark has not reached the start of its epoch (KIP-207)."""

    @property
    def last_stable_offset(self) -> int: ...
    def satisfies(self, kind: int, at: int) -> bool:
        """Whether a wait of this kind (see `partition_watch`) for `at` would be over."""

    def leader_epochs(self) -> list[tuple[int, int]]:
        """Epochs and their start offsets, oldest first."""

    def segments(self) -> list[SegmentInfo]:
        """Oldest first; empty while the log is lazy."""

    def become_leader(
        self,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int = 0,
        followers: Sequence[tuple[int, bool]] = (),
        min_isr: int = 1,
        recovering: bool = False,
    ) -> bool:
        """Makes this broker the leader, or lets it lead on with other followers. `followers`: broker id of every other
        replica, and whether it is in the committed ISR. `min_isr`: min.insync.replicas. `recovering` says that it was
        elected uncleanly. Returns False and changes nothing if the epoch is older."""

    def become_follower(self, leader_id: int, leader_epoch: int, partition_epoch: int = 0) -> bool:
        """Follows `leader_id` (-1: no leader). Returns False and changes nothing if the epoch is older."""

    def report_to(self, edges: PartitionEdges) -> None:
        """Sets the queue to which the partition reports that its ISR may have to change. Call it once, before the first
        role."""

    def propose_isr(self, isr: Iterable[int], partition_epoch: int) -> bool:
        """Notes that an AlterPartition for this ISR is under way: the high watermark then waits for the new members too
        (KIP-497). Returns False unless the partition leads in this partition epoch and no other proposal is under
        way."""

    def withdraw_isr(self) -> None:
        """Ends the proposal. Call it only when the controller has refused the proposal and cannot have applied it."""

    def commit_isr(self, isr: Iterable[int], leader_epoch: int, partition_epoch: int, recovering: bool = False) -> bool:
        """The ISR and partition epoch that AlterPartition answered; ends the proposal. Returns False for a leader of
        another epoch, and for an older partition epoch."""

    def followers(self) -> list[FollowerState]:
        """The other replicas of a leader; empty in other roles."""

    def readable_replicas(self, offset: int) -> list[int]:
        """The other brokers from which a client may read `offset`, best first (KIP-392)."""

    def followed(
        self, broker_id: int, offset: int, broker_epoch: int = -1, current_epoch: int = -1, log_start_offset: int = 0
    ) -> int:
        """Notes a follower's fetch at `offset`. Returns 0 or the error code of the answer."""

    def acknowledged(self, kind: int, at: int, generation: int) -> int | None:
        """The state of an acknowledgement: 0 when it is there, None while it is not, or Kafka's error code, such as
        NOT_LEADER_OR_FOLLOWER when its leadership has ended, even if this broker leads again."""

    def configure(self, settings: LogSettings) -> None:
        """Replaces the configuration."""

    throttled: int
    """BY_LEADER and BY_FOLLOWER of `replication_quota`: whether the topic's configuration throttles this broker's
    replica as a leader, as a follower, or as both (KIP-73)."""

    def close(self, gone: bool = False) -> None:
        """Refuses appends from now on and wakes all waiters. `gone`: the partition is deleted."""

    def restore_high_watermark(self, offset: int) -> None:
        """Restores the high watermark from replication-offset-checkpoint, limited to the log's offsets. Call it after
        the load and before the partition gets a role."""

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Sets the topic id of a log that has none: writes partition.metadata before it returns. Blocking. Raises
        OSError."""

    def truncate_to(self, offset: int) -> None:
        """Cuts the log so that it ends at `offset`, or where it ended before. Blocking. Raises OSError when the
        directory is offline."""

    def truncate_fully(self, offset: int) -> None:
        """Drops all records and begins anew at `offset`. Blocking. Raises OSError when the directory is offline."""

    def truncate_as_follower(self, offset: int, leader_epoch: int) -> int:
        """`truncate_to` as the leader of this epoch demands. Returns 0, or FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH
        or NOT_LEADER_OR_FOLLOWER unless this broker follows in that epoch, or KAFKA_STORAGE_ERROR. Blocking."""

    def restart_as_follower(self, offset: int, leader_epoch: int) -> int:
        """`truncate_fully` as the leader of this epoch demands: the leader's log begins at `offset`, after the end of
        this one. Returns as `truncate_as_follower`. Blocking."""

    def note_leader(self, leader_epoch: int, high_watermark: int, log_start_offset: int) -> int:
        """Applies the leader's Fetch answer: adopts its high watermark, limited to this log, and deletes the records
        below its log start. Returns an error code as `truncate_as_follower`. Blocking."""

    def delete_records(self, offset: int) -> tuple[int, int, Acknowledgement | None]:
        """Deletes the records below `offset` (-1: below the high watermark). Returns error, low watermark, and the
        condition under which all replicas have deleted them (None when they have already). Blocking."""

    def drop_below(self, offset: int) -> int: ...
    def delete_old_segments(self) -> int:
        """Applies the configured retention. Returns how many segments it deleted. Blocking. Raises OSError when the
        directory is offline."""

    def shut(self) -> None:
        """Ends an orderly run: syncs everything, with a producer snapshot at the end, and refuses appends. Blocking.
        Raises OSError."""

    def retire(self) -> None:
        """Ends all work of a partition that is deleted or leaves this directory: refuses appends and wakes all waiters.
        Its directory may be renamed or removed when this returns. Blocking."""

    def fail(self, error: int) -> None:
        """Reports that the directory failed with an errno. Waiters get KAFKA_STORAGE_ERROR."""

    def expire_producers(self) -> int:
        """Forgets the producers that were silent for producer.id.expiration.ms. Returns how many."""

    @property
    def unflushed_since_ms(self) -> int:
        """When the oldest unsynced byte was appended (monotonic clock); -1 when all bytes are synced."""

    def open_ahead(self) -> None:
        """Starts to open a leader's log if the next append would wait for it. A Produce of many partitions does so."""

    def append(self, records: Buffer, acks: int = 1, wait: bool = True, origin: str = "client") -> AppendResult:
        """Appends one batch as Produce does: validates it and stamps its offsets. Blocking: waits for the log to open
        or roll, and with `wait` for the acknowledgement that `acks` asks for. Without `wait`, the result's `ack` names
        that acknowledgement. `origin`: a key of ORIGINS."""

    def append_now(self, records: bytearray, acks: int = 1) -> AppendResult | None:
        """Appends a batch of this node's own, stamped in place, and waits for no device. Returns None when the log must
        open or roll first: this call starts that, and `append` waits for it."""

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendResult:
        """Appends whole batches that carry their offsets, of epochs up to `leader_epoch`. Refused as
        `truncate_as_follower` is. Blocking as `append`."""

    def append_replicated(self, records: Buffer, most_epoch: int) -> AppendResult:
        """As above in any role, for the only writer of the log (the metadata log, a copy)."""

    def flush(self, timeout_ms: int = -1) -> bool:
        """Returns True once everything appended so far is on the disk, False when `timeout_ms` pass first. Blocking."""

    def flush_soon(self) -> None:
        """Asks the committer to sync everything appended so far in its next round. Returns at once; a watch for SYNCED
        reports when it is done."""

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
        """Reads as Fetch does: whole batches as stored, the last one perhaps cut. Blocking. `isolation`: 0 reads up to
        the high watermark, 1 up to the last stable offset, 2 to the log's end (all three only from a leader, or with
        `any_replica` also from a follower), 3 to the log's end in any role. `follower`: broker id, broker epoch (or -1)
        and log start of the follower that asks; its position counts if `notes`. Raises OSError."""

    def offset_by_time(self, timestamp_ms: int, bound: int | None = None) -> tuple[int, int, int]:
        """Offset, timestamp and leader epoch of the first record at or after `timestamp_ms` and below `bound` (the high
        watermark); three times -1 when there is none. Blocking. Raises OSError when the directory is offline."""

    def offset_of_max_timestamp(self) -> tuple[int, int, int]:
        """The same for the record with the greatest timestamp (KIP-734). Blocking."""

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """KIP-101: epoch and end offset of the largest epoch at or below `epoch`; -1, -1 when unknown."""

def new_partitions(
    directory: LogDirectory, topic: str, topic_id: Uuid, indexes: Iterable[int], settings: LogSettings
) -> list[PartitionHandle]:
    """Makes a PartitionHandle for each index of one topic."""

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
    """Gives each partition the role of its row: this node leads it or follows. `rows` and `min_isrs` (array("i")) have
    an item for each handle; the others are the columns of a metadata chunk. Returns 1 for each partition that took its
    role, 0 for one that knows newer epochs."""
