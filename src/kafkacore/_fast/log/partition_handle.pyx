"""Implements partition_handle.pxd: the Python handle of a partition and its log."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport load32, load64, load_ptr, store32, store_ptr
from kafkacore._fast.wait.io cimport LogDirectory, io_pause
from kafkacore._fast.log.log cimport (
    LOG_BLOCKED, SegmentList, config_hold, log_hold_segments, segments_release,
)
from kafkacore._fast.log.aborted cimport log_aborted
from kafkacore._fast.log.append cimport AppendInfo
from kafkacore._fast.log.commit cimport log_commit_soon, log_recovery_point
from kafkacore._fast.log.delete cimport log_advance_start, log_delete_old
from kafkacore._fast.log.jobs cimport is_short_of_files
from kafkacore._fast.log.shut cimport log_shut, log_stop
from kafkacore._fast.log.truncate cimport log_truncate_fully, log_truncate_to
from kafkacore._fast.log.read cimport ReadResult, log_offset_by_time, log_offset_of_max_timestamp
from kafkacore._fast.wait.park cimport WakeList, park_release, wake_all
from kafkacore._fast.log.partition cimport (
    READ_COMMITTED, READ_LOCAL, ROLE_GONE, ROLE_NONE, WAIT_SYNCED, Acknowledgement, FetchView, Follower, FollowerFetch,
    Partition, ReadAsked, partition_acknowledged, partition_append, partition_append_as_follower,
    partition_append_replicated, partition_assign_topic_id, partition_close, partition_delete_records,
    partition_dismiss_readers, partition_epoch_end, partition_expire_producers, partition_fail, partition_followed,
    partition_high_watermark, partition_is_behind, partition_low_watermark, partition_monotonic_ms, partition_new,
    partition_open_ahead, partition_read, partition_release, partition_restore, partition_satisfies, partition_unwait,
    partition_wait, partition_wait_for_ack, read_asked_init,
)
from kafkacore._fast.log.partition_edges cimport PartitionEdges
from kafkacore._fast.log.partition_role cimport (
    LeaderRole, partition_commit_isr, partition_delete_as_follower, partition_follow, partition_lead,
    partition_note_leader, partition_propose_isr, partition_report_to, partition_restart_as_follower,
    partition_set_config, partition_truncate_as_follower, partition_withdraw_isr,
)
from kafkacore._fast.log.replicas cimport replicas_lags, replicas_may_join, replicas_must_leave, replicas_readable
from kafkacore._fast.log.segment cimport file_of, segment_release
from kafkacore._fast.wait.sleeper cimport Sleeper, sleep_until_woken, sleeper_new
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.txn_index cimport AbortedTransaction
from kafkacore._fast.record.validate cimport (
    ORIGIN_BUMPED_MARKER, ORIGIN_BUMPED_TRANSACTION, ORIGIN_CLIENT, ORIGIN_COORDINATOR, ORIGIN_TRANSACTION,
)

from os import strerror

from kafkacore._fast.base.uuid import Uuid
from typing import NamedTuple


class AppendResult(NamedTuple):
    error: int
    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    error_message: str | None
    record_errors: list[tuple[int, str]]
    ack: tuple[int, int, int] | None


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
    aborted: list[tuple[int, int]]
    in_older_segment: bool


class FollowerState(NamedTuple):
    broker_id: int
    broker_epoch: int
    end_offset: int
    log_start_offset: int
    in_sync: bool
    is_joining: bool
    may_join: bool
    lags: bool
    must_leave: bool


class SegmentInfo(NamedTuple):
    base_offset: int
    size_bytes: int
    sealed: bool


ROLES = ("none", "leader", "follower", "gone")
STATES = ("lazy", "opening", "open", "rolling", "failed", "closed")
ORIGINS = {
    "client": ORIGIN_CLIENT, "transaction": ORIGIN_TRANSACTION, "coordinator": ORIGIN_COORDINATOR,
    "bumped marker": ORIGIN_BUMPED_MARKER, "bumped transaction": ORIGIN_BUMPED_TRANSACTION,
}

ctypedef fused Field:
    int32_t
    int64_t


cdef Field locked(Partition *p, Field *field) noexcept:
    cdef Field value
    with nogil:
        mutex_lock(&p.log.lock)
        value = field[0]
        mutex_unlock(&p.log.lock)
    return value


cdef int32_t *ids_of(ids, int32_t *count) except NULL:
    """Returns the broker ids as a malloc'ed block."""
    cdef tuple held = tuple(ids)
    cdef int32_t *made = <int32_t *> malloc((len(held) + 1) * sizeof(int32_t))
    if made == NULL:
        raise MemoryError
    count[0] = 0
    try:
        for each in held:
            made[count[0]] = each
            count[0] += 1
    except BaseException:
        free(made)
        raise
    return made


cdef object ack_of(int error, const Acknowledgement *ack):
    return (ack.kind, ack.at, ack.generation) if error == 0 and ack.at >= 0 else None


cdef int append_and_wait(Partition *p, uint8_t *data, size_t size, int acks, int origin, bint wait, Sleeper *sleeper,
                         AppendInfo *info, Acknowledgement *ack) noexcept nogil:
    cdef WakeList wakes
    cdef int error
    while True:
        error = partition_append(p, data, size, acks, origin, &sleeper.waiter, info, ack, &wakes)
        wake_all(&wakes)
        if error != LOG_BLOCKED:
            break
        sleep_until_woken(sleeper, -1)
    if error == 0 and wait and ack.at >= 0:
        while partition_wait_for_ack(p, ack, &sleeper.waiter):
            sleep_until_woken(sleeper, -1)
            partition_unwait(p, &sleeper.waiter)
        error = partition_acknowledged(p, ack)
    return error


cdef enum:
    RETIRE_PAUSE_NS = 20000000

cdef enum:
    TRUNCATE = 0
    TRUNCATE_FULLY = 1
    DELETE_OLD = 2
    SHUT = 3
    STOP = 4
    TRUNCATE_AS_FOLLOWER = 5
    RESTART_AS_FOLLOWER = 6


cdef int change_log(Partition *p, int what, int64_t offset, int32_t leader_epoch, Sleeper *sleeper) noexcept nogil:
    cdef int result
    while True:
        if what == TRUNCATE:
            result = log_truncate_to(&p.log, offset, NULL, &sleeper.waiter)
        elif what == TRUNCATE_FULLY:
            result = log_truncate_fully(&p.log, offset, NULL, &sleeper.waiter)
        elif what == TRUNCATE_AS_FOLLOWER:
            result = partition_truncate_as_follower(p, offset, leader_epoch, &sleeper.waiter)
        elif what == RESTART_AS_FOLLOWER:
            result = partition_restart_as_follower(p, offset, leader_epoch, &sleeper.waiter)
        elif what == DELETE_OLD:
            result = log_delete_old(&p.log, partition_high_watermark(p), &sleeper.waiter)
        elif what == SHUT:
            result = log_shut(&p.log, &sleeper.waiter)
        else:
            result = log_stop(&p.log, &sleeper.waiter)
        if result != LOG_BLOCKED:
            return result
        sleep_until_woken(sleeper, -1)


# --- partitions ---

@cython.no_gc  # it is part of no reference cycle, and its directory must outlive the partition
cdef class PartitionHandle:
    """One partition on one log directory. The partition has no files before its first append.

    `topic_id` is a Uuid, or None for a log without a topic id (`__cluster_metadata`). Do not call methods whose
    docstring says "Blocking" on the thread of an event loop.
    """

    def __init__(self, LogDirectory directory not None, str topic not None, int32_t index, topic_id=None,
                 LogSettings settings=None):
        if self.partition != NULL:
            raise ValueError(f"{self!r} was initialized before")
        raw = bytes(topic_id) if topic_id is not None else bytes(16)
        self.make(directory, topic.encode(), index, raw, topic_id is not None, settings or LogSettings())

    cdef int make(self, LogDirectory directory, bytes name, int32_t index, bytes topic_id, bint named,
                  LogSettings settings) except -1:
        self.directory = directory
        self.settings = settings
        self.partition = partition_new(directory.dir, &directory.environment.env.clock, settings.config, name,
                                       <int32_t> len(name), <const uint8_t *> <char *> topic_id, index, named)
        if self.partition == NULL:
            raise MemoryError
        return 0

    def __dealloc__(self):
        if self.partition != NULL:
            with nogil:
                # Fetch sessions do not keep the disk and the directory of the partition alive. So no session may use
                # the partition after this.
                partition_dismiss_readers(self.partition)
                partition_release(self.partition)

    # --- state ---

    @property
    def topic(self):
        return self.partition.topic[:self.partition.topic_size].decode()

    @property
    def index(self):
        return self.partition.index

    @property
    def topic_id(self):
        cdef unsigned char topic_id[16]
        with nogil:
            mutex_lock(&self.partition.log.lock)
            memcpy(topic_id, self.partition.topic_id, 16)
            mutex_unlock(&self.partition.log.lock)
        return Uuid(topic_id[:16])

    @property
    def role(self):
        return ROLES[locked(self.partition, &self.partition.role)]

    @property
    def state(self):
        return STATES[locked(self.partition, &self.partition.log.state)]

    @property
    def leader_epoch(self):
        return locked(self.partition, &self.partition.leader_epoch)

    @property
    def partition_epoch(self):
        return locked(self.partition, &self.partition.partition_epoch)

    @property
    def leader_id(self):
        return locked(self.partition, &self.partition.leader_id)

    @property
    def generation(self):
        return locked(self.partition, &self.partition.generation)

    @property
    def is_proposing(self):
        return bool(locked(self.partition, &self.partition.is_proposing))

    @property
    def is_recovering(self):
        return bool(locked(self.partition, &self.partition.is_recovering))

    @property
    def low_watermark(self):
        cdef int64_t low
        with nogil:
            low = partition_low_watermark(self.partition)
        return low

    @property
    def size_bytes(self):
        return load64(&self.partition.log.total_bytes)

    @property
    def end_offset(self):
        """The offset of the next record."""
        return locked(self.partition, &self.partition.log.end_offset)

    @property
    def synced_offset(self):
        """The offset below which all records survive a power loss."""
        return locked(self.partition, &self.partition.log.synced_offset)

    @property
    def recovery_point(self):
        """The offset for recovery-point-offset-checkpoint. It is the synced offset, or the base offset of an earlier
        segment if the indexes of that segment, or the producer snapshot after it, might not be on disk."""
        cdef int64_t point
        with nogil:
            mutex_lock(&self.partition.log.lock)
            point = log_recovery_point(&self.partition.log)
            mutex_unlock(&self.partition.log.lock)
        return point

    def recovery_point_to_write(self):
        cdef int64_t point
        with nogil:
            mutex_lock(&self.partition.log.lock)
            point = log_recovery_point(&self.partition.log)
            self.partition.log.checkpointed_offset = max(self.partition.log.checkpointed_offset, point)
            mutex_unlock(&self.partition.log.lock)
        return point

    @property
    def awaits_checkpoint(self):
        cdef bint awaits
        with nogil:
            mutex_lock(&self.partition.log.lock)
            awaits = self.partition.log.awaits_checkpoint
            mutex_unlock(&self.partition.log.lock)
        return bool(awaits)

    @property
    def truncations(self):
        return locked(self.partition, &self.partition.log.truncations)

    @property
    def log_start_offset(self):
        return locked(self.partition, &self.partition.log.log_start_offset)

    def log_start_to_write(self):
        """Returns the offset for log-start-offset-checkpoint: the log start offset if it is above the base offset of
        the first segment, or above 0 in a log that has a directory but no segments. Otherwise returns -1."""
        cdef int64_t moved = -1
        with nogil:
            mutex_lock(&self.partition.log.lock)
            if self.partition.log.segments != NULL and self.partition.log.segments.count:
                if self.partition.log.log_start_offset > self.partition.log.segments.items[0].base_offset:
                    moved = self.partition.log.log_start_offset
            elif self.partition.log.log_start_offset > 0 and self.partition.log.path != NULL:
                moved = self.partition.log.log_start_offset
            self.partition.log.checkpointed_offset = max(self.partition.log.checkpointed_offset, moved)
            mutex_unlock(&self.partition.log.lock)
        return moved

    @property
    def high_watermark(self):
        return locked(self.partition, &self.partition.high_watermark)

    @property
    def is_behind(self):
        cdef bint behind
        with nogil:
            mutex_lock(&self.partition.log.lock)
            behind = partition_is_behind(self.partition)
            mutex_unlock(&self.partition.log.lock)
        return bool(behind)

    @property
    def last_stable_offset(self):
        return locked(self.partition, &self.partition.last_stable_offset)

    def satisfies(self, int kind, int64_t at):
        """Returns whether a waiter of this kind (see `partition_watch`) for the offset `at` would be satisfied now."""
        cdef bint satisfied
        with nogil:
            satisfied = partition_satisfies(self.partition, kind, at)
        return satisfied

    def leader_epochs(self):
        """Returns `[(epoch, start offset)]`, oldest first."""
        cdef list entries = []
        cdef int32_t i, count = 0
        cdef int64_t *copied = NULL
        with nogil:
            mutex_lock(&self.partition.log.lock)
            count = self.partition.log.epoch_count
            copied = <int64_t *> malloc(count * 16 + 1)
            if copied != NULL:
                for i in range(count):
                    copied[2 * i] = self.partition.log.epochs[i].epoch
                    copied[2 * i + 1] = self.partition.log.epochs[i].start_offset
            mutex_unlock(&self.partition.log.lock)
        if copied == NULL:
            raise MemoryError
        for i in range(count):
            entries.append((copied[2 * i], copied[2 * i + 1]))
        free(copied)
        return entries

    def segments(self):
        """Returns the segments of the log, oldest first."""
        cdef SegmentList *list
        cdef int32_t i
        cdef object found = []
        with nogil:
            list = log_hold_segments(&self.partition.log)
        if list == NULL:
            return found
        for i in range(list.count):
            found.append(SegmentInfo(list.items[i].base_offset, load64(&list.items[i].size), i + 1 < list.count))
        with nogil:
            segments_release(list)
        return found

    # --- role and configuration ---

    def report_to(self, PartitionEdges edges not None):
        with nogil:
            partition_report_to(self.partition, edges.edges)

    def become_leader(self, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch=0, followers=(),
                      int32_t min_isr=1, bint recovering=False):
        """Makes this broker the leader. `followers` has `(broker id, in sync)` for every other replica. Returns False
        and changes nothing if one of the epochs is older than the partition's."""
        cdef LeaderRole role
        cdef int32_t *replicas = ids_of([broker_id for broker_id, _ in followers], &role.replica_count)
        cdef int32_t *isr = NULL
        cdef bint changed
        cdef int error
        try:
            isr = ids_of([broker_id for broker_id, in_sync in followers if in_sync], &role.isr_count)
            role.leader_id, role.leader_epoch, role.partition_epoch = leader_id, leader_epoch, partition_epoch
            role.min_isr, role.is_recovering, role.replicas, role.isr = min_isr, recovering, replicas, isr
            with nogil:
                changed = partition_lead(self.partition, &role, &error)
        finally:
            free(replicas)
            free(isr)
        if error:
            raise MemoryError
        return bool(changed)

    def become_follower(self, int32_t leader_id, int32_t leader_epoch, int32_t partition_epoch=0):
        """Makes this broker follow `leader_id` (-1: there is no leader). Returns False and changes nothing if one of
        the epochs is older than the partition's."""
        cdef bint changed
        with nogil:
            changed = partition_follow(self.partition, leader_id, leader_epoch, partition_epoch)
        return bool(changed)

    def propose_isr(self, isr, int32_t partition_epoch):
        cdef int32_t count
        cdef int32_t *ids = ids_of(isr, &count)
        cdef bint proposes
        with nogil:
            proposes = partition_propose_isr(self.partition, ids, count, partition_epoch)
        free(ids)
        return bool(proposes)

    def withdraw_isr(self):
        with nogil:
            partition_withdraw_isr(self.partition)

    def commit_isr(self, isr, int32_t leader_epoch, int32_t partition_epoch, bint recovering=False):
        cdef int32_t count
        cdef int32_t *ids = ids_of(isr, &count)
        cdef bint commits
        with nogil:
            commits = partition_commit_isr(self.partition, ids, count, leader_epoch, partition_epoch, recovering)
        free(ids)
        return bool(commits)

    def followers(self):
        cdef Partition *p = self.partition
        cdef Follower *copied = NULL
        cdef uint8_t *marks
        cdef int32_t i, count
        cdef int64_t now_ms = partition_monotonic_ms(p)
        with nogil:
            mutex_lock(&p.log.lock)
            count = p.follower_count
            copied = <Follower *> malloc(count * (sizeof(Follower) + 1) + 1)
            marks = <uint8_t *> (copied + count)
            if copied != NULL:
                for i in range(count):
                    copied[i] = p.followers[i]
                    marks[i] = (replicas_may_join(p, &copied[i]) + 2 * replicas_lags(p, &copied[i], now_ms)
                                + 4 * replicas_must_leave(p, &copied[i], now_ms))
            mutex_unlock(&p.log.lock)
        if copied == NULL:
            raise MemoryError
        try:
            return [
                FollowerState(copied[i].broker_id, copied[i].broker_epoch, copied[i].end_offset,
                              copied[i].log_start_offset, bool(copied[i].in_sync), bool(copied[i].is_joining),
                              bool(marks[i] & 1), bool(marks[i] & 2), bool(marks[i] & 4))
                for i in range(count)
            ]
        finally:
            free(copied)

    def readable_replicas(self, int64_t offset):
        cdef int32_t broker_ids[32]
        cdef int32_t i, count
        with nogil:
            mutex_lock(&self.partition.log.lock)
            count = replicas_readable(self.partition, offset, broker_ids, 32)
            mutex_unlock(&self.partition.log.lock)
        return [broker_ids[i] for i in range(count)]

    def followed(self, int32_t broker_id, int64_t offset, int64_t broker_epoch=-1, int32_t current_epoch=-1,
                 int64_t log_start_offset=0):
        """Notes a follower's fetch. Returns 0 or the error code for the response."""
        cdef FollowerFetch fetch
        cdef WakeList wakes
        cdef int error
        fetch = FollowerFetch(broker_id, broker_epoch, offset, log_start_offset, partition_monotonic_ms(self.partition))
        with nogil:
            error = partition_followed(self.partition, &fetch, current_epoch, &wakes)
            wake_all(&wakes)
        return error

    def acknowledged(self, int kind, int64_t at, int64_t generation):
        """Returns the state of an acknowledgement with these fields: 0 if the records are acknowledged, None if they
        are not yet, or a Kafka error code if they never can be."""
        cdef Acknowledgement ack = Acknowledgement(at, generation, kind)
        cdef int error
        with nogil:
            error = partition_acknowledged(self.partition, &ack)
        return None if error == LOG_BLOCKED else error

    def configure(self, LogSettings settings not None):
        """Replaces the configuration."""
        config_hold(settings.config)
        self.settings = settings
        with nogil:
            partition_set_config(self.partition, settings.config)

    @property
    def throttled(self):
        return load32(&self.partition.throttled)

    @throttled.setter
    def throttled(self, int32_t bits):
        store32(&self.partition.throttled, bits)

    @property
    def fetch_lag(self):
        return load64(&self.partition.fetch_lag)

    @property
    def adds_replicas(self):
        return load_ptr(<void *const *> &self.partition.adding) != NULL

    def add_replicas(self, broker_ids, int32_t node_id):
        cdef int32_t *adding = NULL
        cdef int32_t *before
        cdef list ids = [<int32_t> each for each in broker_ids]
        cdef int32_t i, count = <int32_t> len(ids)
        cdef bint is_added = node_id in ids
        if count:
            adding = <int32_t *> malloc((count + 1) * sizeof(int32_t))
            if adding == NULL:
                raise MemoryError
            adding[0] = count
            for i in range(count):
                adding[1 + i] = ids[i]
        with nogil:
            mutex_lock(&self.partition.log.lock)
            before = self.partition.adding
            store_ptr(<void **> &self.partition.adding, adding)
            self.partition.is_added = is_added
            mutex_unlock(&self.partition.log.lock)
            free(before)

    def close(self, bint gone=False):
        """Wakes all waiters, and from now on rejects appends. `gone` means that the partition is being deleted."""
        with nogil:
            partition_close(self.partition, ROLE_GONE if gone else ROLE_NONE)

    # --- files; all of these methods are blocking ---

    def restore_high_watermark(self, int64_t offset):
        """Restores the high watermark from replication-offset-checkpoint, limited to the log's offsets. Call this
        after the load and before the partition gets a role."""
        with nogil:
            partition_restore(self.partition, offset)

    def assign_topic_id(self, topic_id):
        """Sets the topic id of a log that has no topic id, and writes partition.metadata. Raises OSError."""
        cdef bytes raw = bytes(topic_id)
        cdef const uint8_t *native = <const uint8_t *> <char *> raw
        cdef Sleeper *sleeper = sleeper_new(self.directory.dir)
        cdef int result
        with nogil:
            while True:
                result = partition_assign_topic_id(self.partition, native, &sleeper.waiter)
                if result != LOG_BLOCKED:
                    break
                sleep_until_woken(sleeper, -1)
            park_release(&sleeper.parked)
        if result < 0:
            raise OSError(-result, f"{self.topic}-{self.index} in {self.directory.path}: {strerror(-result)}")

    def truncate_to(self, int64_t offset):
        """Truncates the log to `offset`. Does nothing if the log already ends at or below `offset`. Raises OSError if
        the directory is offline."""
        self.change(TRUNCATE, offset)

    def truncate_fully(self, int64_t offset):
        """Removes all records and begins the log again at `offset`. Callers use this for a full truncation, and after
        they have fetched a metadata snapshot."""
        self.change(TRUNCATE_FULLY, offset)

    def truncate_as_follower(self, int64_t offset, int32_t leader_epoch):
        return self.change(TRUNCATE_AS_FOLLOWER, offset, leader_epoch)

    def restart_as_follower(self, int64_t offset, int32_t leader_epoch):
        return self.change(RESTART_AS_FOLLOWER, offset, leader_epoch)

    def note_leader(self, int32_t leader_epoch, int64_t high_watermark, int64_t log_start_offset):
        cdef bint start_is_behind
        cdef WakeList wakes
        cdef int error
        with nogil:
            error = partition_note_leader(self.partition, leader_epoch, high_watermark, log_start_offset,
                                          &start_is_behind, &wakes)
            wake_all(&wakes)
            if error == 0 and start_is_behind:
                error = partition_delete_as_follower(self.partition, log_start_offset, leader_epoch)
        return error

    def delete_records(self, int64_t offset):
        """Deletes the records below `offset` (-1: below the high watermark). Returns `(error, low watermark,
        acknowledgement)`. The acknowledgement is satisfied when all replicas have deleted the records. It is None if
        this has already happened."""
        cdef int error
        cdef int64_t low_watermark
        cdef Acknowledgement deleted
        with nogil:
            error = partition_delete_records(self.partition, offset, &low_watermark, &deleted)
        return error, low_watermark, ack_of(error, &deleted)

    def drop_below(self, int64_t offset):
        """Deletes the records below `offset` in any role. The log's owner calls this when it no longer needs the
        records. Returns 0 or a Kafka error code. Blocking."""
        cdef int error
        with nogil:
            error = log_advance_start(&self.partition.log, offset)
        return error

    def delete_old_segments(self):
        """Applies the configured retention. Returns the number of deleted segments. Raises OSError if the directory is
        offline."""
        return self.change(DELETE_OLD, 0)

    def shut(self):
        """Closes the log for an orderly stop: syncs everything, writes a producer snapshot at the log's end, and from
        then on rejects appends. Raises OSError."""
        self.change(SHUT, 0)

    def retire(self):
        """Ends all work of a partition that is deleted or leaves this directory: wakes all waiters and from now on
        rejects appends. After this returns, the directory can be renamed or removed. If a job uses the log, waits until
        the job has ended."""
        cdef int result = LOG_BLOCKED
        with nogil:
            partition_close(self.partition, ROLE_GONE)
        while result == LOG_BLOCKED:
            with nogil:
                result = log_stop(&self.partition.log, NULL)
            if result == LOG_BLOCKED:
                try:
                    result = self.change(STOP, 0)
                except MemoryError:
                    with nogil:
                        io_pause(RETIRE_PAUSE_NS)

    def fail(self, int error):
        """Reports that the directory failed with an errno. Waiters get KAFKA_STORAGE_ERROR."""
        with nogil:
            partition_fail(self.partition, error)

    def expire_producers(self):
        """Removes the producers that were silent for producer.id.expiration.ms. Returns their number."""
        cdef int gone
        with nogil:
            gone = partition_expire_producers(self.partition)
        return gone

    @property
    def unflushed_since_ms(self):
        """The time of the first append since all bytes were last synced (monotonic clock); -1 if all are synced."""
        since_ns = locked(self.partition, &self.partition.log.unflushed_since_ns)
        return since_ns // 1000000 if since_ns >= 0 else -1

    def flush_soon(self):
        """Requests that the committer's next round syncs all records appended so far. Returns at once."""
        cdef int64_t end_offset = self.end_offset
        with nogil:
            log_commit_soon(&self.partition.log, end_offset)

    def change(self, int what, int64_t offset, int32_t leader_epoch=-1):
        """Makes the change that `what` names (`TRUNCATE` and so on). Tries again while another change of the log is in
        progress."""
        cdef Sleeper *sleeper = sleeper_new(self.directory.dir)
        cdef int result
        with nogil:
            result = change_log(self.partition, what, offset, leader_epoch, sleeper)
            park_release(&sleeper.parked)
        if what >= TRUNCATE_AS_FOLLOWER:
            return result
        if result < 0 or (result > 0 and what != DELETE_OLD):
            raise OSError(f"{self.topic}-{self.index}: the log is closed, or {self.directory.path} is offline")
        return result

    # --- appends ---

    def open_ahead(self):
        """Starts to open the log if the next append would have to wait for that. When a Produce waits for one log, the
        broker calls this for the other partitions of the request."""
        with nogil:
            partition_open_ahead(self.partition)

    def append(self, records, int acks=1, bint wait=True, str origin="client"):
        """Appends one batch as Produce does: validates the batch and sets its offsets. Blocking: waits until the log is
        opened or rolled, and, with `wait`, until the acknowledgement that `acks` demands. Without `wait`, the result's
        `ack` names that acknowledgement (a kind of `partition_watch`, an offset and a generation), or is None if there
        is nothing to wait for. `origin` is a key of ORIGINS."""
        cdef bytearray copy = bytearray(records)
        cdef Py_buffer view
        cdef Sleeper *sleeper = sleeper_new(self.directory.dir)
        cdef AppendInfo info
        cdef Acknowledgement ack
        cdef int native_origin = ORIGINS[origin]
        cdef int error
        ack.at = -1
        PyObject_GetBuffer(copy, &view, PyBUF_SIMPLE)
        with nogil:
            error = append_and_wait(self.partition, <uint8_t *> view.buf, <size_t> view.len, acks, native_origin, wait,
                                    sleeper, &info, &ack)
            park_release(&sleeper.parked)
        PyBuffer_Release(&view)
        return append_result(error, &info, ack_of(error, &ack))

    def append_now(self, bytearray records, int acks=1):
        """Appends one of this node's own batches, and sets the offsets of the batch in place. Waits only for memory and
        the page cache. If the log must first be opened or rolled, starts this work and returns None; then call
        `append`, which waits for the work."""
        cdef Py_buffer view
        cdef AppendInfo info
        cdef Acknowledgement ack
        cdef WakeList wakes
        cdef int error
        ack.at = -1
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        with nogil:
            error = partition_append(self.partition, <uint8_t *> view.buf, <size_t> view.len, acks, ORIGIN_COORDINATOR,
                                     NULL, &info, &ack, &wakes)
            wake_all(&wakes)
        PyBuffer_Release(&view)
        if error == LOG_BLOCKED:
            return None
        return append_result(error, &info, ack_of(error, &ack))

    def append_as_follower(self, records, int32_t leader_epoch):
        """Appends whole batches that already have their offsets, with leader epochs up to `leader_epoch`. Returns an
        error if this broker does not follow the leader of that epoch. Blocking, like `append`."""
        return self.append_whole(records, leader_epoch, True)

    def append_replicated(self, records, int32_t most_epoch):
        """Like `append_as_follower`, but in any role. The caller must be the only writer of the log."""
        return self.append_whole(records, most_epoch, False)

    def append_replicated_now(self, records, int32_t most_epoch):
        """Like `append_replicated`, but returns None if the log must first be opened or rolled, as `append_now`
        does."""
        cdef Py_buffer view
        cdef AppendInfo info
        cdef WakeList wakes
        cdef int error
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        with nogil:
            error = partition_append_replicated(self.partition, <const uint8_t *> view.buf, <size_t> view.len,
                                                most_epoch, NULL, &info, &wakes)
            wake_all(&wakes)
        PyBuffer_Release(&view)
        return None if error == LOG_BLOCKED else append_result(error, &info, None)

    def append_whole(self, records, int32_t epoch, bint follows):
        cdef Py_buffer view
        cdef Sleeper *sleeper = sleeper_new(self.directory.dir)
        cdef Partition *p = self.partition
        cdef AppendInfo info
        cdef WakeList wakes
        cdef int error = LOG_BLOCKED
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        with nogil:
            while error == LOG_BLOCKED:
                if follows:
                    error = partition_append_as_follower(p, <const uint8_t *> view.buf, <size_t> view.len, epoch,
                                                         &sleeper.waiter, &info, &wakes)
                else:
                    error = partition_append_replicated(p, <const uint8_t *> view.buf, <size_t> view.len, epoch,
                                                        &sleeper.waiter, &info, &wakes)
                wake_all(&wakes)
                if error == LOG_BLOCKED:
                    sleep_until_woken(sleeper, -1)
            park_release(&sleeper.parked)
        PyBuffer_Release(&view)
        return append_result(error, &info, None)

    def flush(self, int timeout_ms=-1):
        """Returns True when all records appended so far are on the disk, or False after `timeout_ms`. Blocking."""
        cdef Sleeper *sleeper = sleeper_new(self.directory.dir)
        cdef bint synced = True
        cdef int64_t end_offset
        with nogil:
            mutex_lock(&self.partition.log.lock)
            end_offset = self.partition.log.end_offset
            mutex_unlock(&self.partition.log.lock)
            sleeper.waiter.kind = WAIT_SYNCED
            sleeper.waiter.at = end_offset
            if partition_wait(self.partition, &sleeper.waiter):
                log_commit_soon(&self.partition.log, end_offset)
                sleep_until_woken(sleeper, timeout_ms)
                partition_unwait(self.partition, &sleeper.waiter)
            mutex_lock(&self.partition.log.lock)
            synced = self.partition.log.synced_offset >= end_offset
            mutex_unlock(&self.partition.log.lock)
            park_release(&sleeper.parked)
        return synced

    # --- reads ---

    def read(self, int64_t offset, int64_t max_bytes=1048576, int isolation=READ_LOCAL, bint min_one=True,
             int32_t current_epoch=-1, int32_t last_fetched_epoch=-1, bint any_replica=False, follower=None,
             bint notes=True):
        """Reads as Fetch does. Returns the batches as they are stored. The last one may be incomplete. Blocking.
        `isolation` is 0 to read up to the high watermark, 1 up to the last stable offset, and 2 or 3 up to the log end.
        With 0, 1 or 2, this broker must lead the partition. With `any_replica`, it may also follow. With 3, its role
        does not matter. `follower` is the broker id, the broker epoch (or -1) and the log start offset of the follower
        that sent the request. With `notes`, the read also notes that follower's position. Raises OSError if the bytes
        cannot be read. If a look-up finds no free file descriptor, raises OSError with 3, but otherwise returns
        KAFKA_STORAGE_ERROR, which clients retry."""
        cdef ReadAsked asked
        cdef FollowerFetch fetch
        cdef WakeList wakes
        cdef ReadResult found
        cdef FetchView view
        cdef bytes records = b""
        cdef int64_t got = 0
        cdef char *into
        cdef AbortedTransaction *aborted = NULL
        cdef int64_t aborted_count = 0
        cdef bint in_older_segment = False
        cdef int error
        read_asked_init(&asked, offset, max_bytes, isolation)
        asked.current_epoch, asked.last_fetched_epoch = current_epoch, last_fetched_epoch
        asked.min_one, asked.from_any_replica, asked.slowly = min_one, any_replica, True
        asked.counts = notes and isolation != READ_LOCAL
        if follower is not None:
            fetch = FollowerFetch(follower[0], follower[1], offset, follower[2],
                                  partition_monotonic_ms(self.partition))
            asked.follower, asked.notes = &fetch, notes
        while True:
            with nogil:
                error = partition_read(self.partition, &asked, &found, &view, &wakes)
                wake_all(&wakes)
            if error != 0 or found.size == 0:
                break
            records = PyBytes_FromStringAndSize(NULL, found.size)
            into = PyBytes_AS_STRING(records)
            in_older_segment = load32(&found.segment.sealed) != 0
            with nogil:
                got = found.segment.disk.pread(found.segment.disk.self, file_of(found.segment), into, found.size,
                                               found.position)
                if isolation == READ_COMMITTED:
                    aborted_count = log_aborted(&self.partition.log, offset, &found, &aborted)
            if load32(&found.segment.cuts) == found.cuts:
                break
            # A truncation may have put other records at this position, so read again. The follower's position has
            # already been recorded.
            asked.counts = False
            asked.notes = False
            got = aborted_count = 0
            in_older_segment = False
            records = b""
            with nogil:
                free(aborted)
                aborted = NULL
                segment_release(found.segment)
        with nogil:
            segment_release(found.segment)
        if isolation == READ_LOCAL and is_short_of_files(found.failure):
            raise OSError(-found.failure, f"a look-up in {self.topic}-{self.index} at offset {offset} failed")
        try:
            if got < 0 or aborted_count < 0:
                raise OSError(-min(got, aborted_count), f"reading {self.topic}-{self.index} at offset {offset} failed")
            listed = [(aborted[i].producer_id, aborted[i].first_offset) for i in range(aborted_count)]
        finally:
            free(aborted)
        return ReadBytes(error, records[:got], found.first_offset, view.high_watermark, view.last_stable_offset,
                         view.log_start_offset, view.leader_id, view.leader_epoch, view.diverging_epoch,
                         view.diverging_end_offset, listed, in_older_segment)

    def offset_by_time(self, int64_t timestamp_ms, bound=None):
        """Returns `(offset, timestamp, leader epoch)` of the first record at or after `timestamp_ms` and below `bound`
        (by default the high watermark). Returns -1 three times if there is none. Blocking. Raises OSError if the
        directory is offline."""
        cdef int64_t offset, found_ms, limit
        cdef int32_t epoch
        cdef int error
        limit = self.high_watermark if bound is None else bound
        with nogil:
            error = log_offset_by_time(&self.partition.log, timestamp_ms, limit, &offset, &found_ms, &epoch)
        if error:
            raise OSError(f"the log directory {self.directory.path} is offline")
        return offset, found_ms, epoch

    def offset_of_max_timestamp(self):
        """Returns `(offset, timestamp, leader epoch)` of the first record with the greatest timestamp (KIP-734), or -1
        three times for an empty log. Blocking. Raises OSError if the directory is offline."""
        cdef int64_t offset, found_ms
        cdef int32_t epoch
        cdef int error
        with nogil:
            error = log_offset_of_max_timestamp(&self.partition.log, &offset, &found_ms, &epoch)
        if error:
            raise OSError(f"the log directory {self.directory.path} is offline")
        return offset, found_ms, epoch

    def epoch_end(self, int32_t epoch):
        """Returns `(epoch, end offset)` of the largest epoch at or below `epoch` (KIP-101). Returns `(-1, -1)` if
        `epoch` is above all epochs of the log."""
        cdef int32_t found
        cdef int64_t end_offset
        with nogil:
            partition_epoch_end(self.partition, epoch, &found, &end_offset)
        return found, end_offset


def new_partitions(LogDirectory directory not None, str topic not None, topic_id, indexes,
                   LogSettings settings not None):
    """Creates a `PartitionHandle` for each index of one topic. With one call for many partitions, an event loop can
    create a thousand topics in one iteration."""
    cdef bytes name = topic.encode()
    cdef bytes raw = bytes(topic_id)
    cdef PartitionHandle handle
    cdef list made = []
    for index in indexes:
        handle = PartitionHandle.__new__(PartitionHandle)
        handle.make(directory, name, index, raw, True, settings)
        made.append(handle)
    return made


# Columns of the partitions of the cluster, in the form of metadata.partitions: one array for each field, with one row
# for each partition. A row of `replicas` and of `isr` has `width` broker ids.
cdef struct RoleColumns:
    int32_t node_id
    int32_t width
    const int32_t *rows
    const int32_t *leader
    const int32_t *leader_epoch
    const int32_t *partition_epoch
    const int32_t *replicas
    const int32_t *isr
    const uint8_t *recovery
    const int32_t *min_isr


cdef bint become_row(Partition *p, const RoleColumns *columns, Py_ssize_t i, int *error) noexcept nogil:
    cdef LeaderRole role
    cdef int32_t row = columns.rows[i]
    if columns.leader[row] != columns.node_id:
        return partition_follow(p, columns.leader[row], columns.leader_epoch[row], columns.partition_epoch[row])
    role.leader_id = columns.node_id
    role.leader_epoch = columns.leader_epoch[row]
    role.partition_epoch = columns.partition_epoch[row]
    role.min_isr = columns.min_isr[i]
    role.is_recovering = columns.recovery[row]
    role.replicas = columns.replicas + <Py_ssize_t> row * columns.width
    role.isr = columns.isr + <Py_ssize_t> row * columns.width
    role.replica_count = role.isr_count = columns.width
    return partition_lead(p, &role, error)


def become_rows(list handles not None, int32_t node_id, const int32_t[::1] rows not None,
                const int32_t[::1] min_isrs not None, int32_t width, const int32_t[::1] leader not None,
                const int32_t[::1] leader_epoch not None, const int32_t[::1] partition_epoch not None,
                const int32_t[::1] replicas not None, const int32_t[::1] isr not None,
                const uint8_t[::1] recovery not None):
    """Gives each partition the role that its row in the columns describes: this node leads or follows. `rows` and
    `min_isrs` have an item for each handle. An item of `rows` is the index of the partition's row. The other arguments
    are the columns of a chunk of metadata.partitions. If a row has fewer than `width` replicas, its remaining ids are
    -1. Returns a byte for each partition: 1 if the partition took its role, or 0 if it already has newer epochs or
    is deleted."""
    cdef tuple held = tuple(handles)  # other threads may change the list after this thread has released the GIL
    cdef Py_ssize_t i, count = len(held)
    cdef Py_ssize_t known = leader.shape[0]
    cdef RoleColumns columns
    cdef bytearray changed = bytearray(count)
    cdef char *marks = changed
    cdef int error = 0
    cdef Partition **partitions
    if rows.shape[0] != count or min_isrs.shape[0] != count:
        raise ValueError(f"{count} partitions have {rows.shape[0]} rows and {min_isrs.shape[0]} minima")
    if min(leader_epoch.shape[0], partition_epoch.shape[0], recovery.shape[0]) < known or \
            min(replicas.shape[0], isr.shape[0]) < known * width or width < 1:
        raise ValueError(f"the columns do not have {known} rows of {width} replicas")
    for i in range(count):
        if not 0 <= rows[i] < known:
            raise ValueError(f"row {rows[i]} is outside the {known} rows")
    if count == 0:
        return changed
    partitions = <Partition **> malloc(count * sizeof(Partition *))
    if partitions == NULL:
        raise MemoryError
    columns.node_id, columns.width, columns.rows, columns.min_isr = node_id, width, &rows[0], &min_isrs[0]
    columns.leader, columns.leader_epoch, columns.partition_epoch = &leader[0], &leader_epoch[0], &partition_epoch[0]
    columns.replicas, columns.isr, columns.recovery = &replicas[0], &isr[0], &recovery[0]
    try:
        for i in range(count):
            partitions[i] = (<PartitionHandle?> held[i]).partition
        with nogil:
            for i in range(count):
                marks[i] = become_row(partitions[i], &columns, i, &error)
                if error:
                    break
    finally:
        free(partitions)
    if error:
        raise MemoryError
    return changed


cdef object append_result(int error, AppendInfo *info, ack):
    cdef int i
    errors = []
    if error:
        for i in range(info.validated.error_count):
            errors.append((info.validated.errors[i].batch_index, info.validated.errors[i].message.decode()))
    message = info.validated.message.decode() if error and info.validated.message != NULL else None
    return AppendResult(error, info.first_offset, info.last_offset, info.log_append_time_ms, info.log_start_offset,
                        bool(info.duplicate), message, errors, ack)
