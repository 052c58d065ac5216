"""Implements move.pxd: moves a log to another directory (ReplicaAlterLogDirsThread,
LogManager.replaceCurrentWithFutureLog).
"""

from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport strdup

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE
from kafkacore._fast.base.atomics cimport load64, store32, store64, store_ptr
from kafkacore._fast.wait.io cimport LogDir, LogDirectory
from kafkacore._fast.log.log cimport (
    EPOCHS_BEHIND, LOG_BLOCKED, LOG_CLOSED, LOG_FAILED, LOG_LAZY, LOG_OPEN, LOG_OPENING, LOG_ROLLING, Log, LogConfig,
    Segment, SegmentList, config_release, log_block, log_fail_in, log_hold_config, recent_clear,
)
from kafkacore._fast.log.append cimport AppendInfo
from kafkacore._fast.log.roll cimport log_start_roll
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.log.delete cimport log_advance_start
from kafkacore._fast.log.shut cimport log_go_on, log_has_jobs, log_hold_still
from kafkacore._fast.log.truncate cimport log_truncate_fully
from kafkacore._fast.wait.park cimport Waiter, WakeList, park_release, wake_all
from kafkacore._fast.log.partition cimport (
    READ_LOCAL, FetchView, Partition, ReadAsked, partition_append_replicated, partition_read, read_asked_init,
)
from kafkacore._fast.log.settings cimport LogSettings
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.segment cimport SEGMENT_DELETED, file_of, segment_release
from kafkacore._fast.wait.sleeper cimport Sleeper, sleep_until_woken, sleeper_new
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

cdef enum:
    BLOCK_BYTES = 1 << 20        # the number of bytes to copy at once; a larger batch is still copied as a whole
    ANY_EPOCH = 0x7FFFFFFF


# --- copying ---

cdef int64_t locked(Log *log, const int64_t *field) noexcept nogil:
    cdef int64_t value
    mutex_lock(&log.lock)
    value = field[0]
    mutex_unlock(&log.lock)
    return value


cdef bint has_files(Log *log) noexcept nogil:
    cdef bint has
    mutex_lock(&log.lock)
    has = log.segments != NULL
    mutex_unlock(&log.lock)
    return has


cdef int begin_at(Log *into, int64_t offset, Sleeper *sleeper) noexcept nogil:
    cdef int result = LOG_BLOCKED
    while result == LOG_BLOCKED:
        result = log_truncate_fully(into, offset, NULL, &sleeper.waiter)
        if result == LOG_BLOCKED:
            sleep_until_woken(sleeper, -1)
    return result


cdef int look(Partition *source, int64_t offset, int64_t max_bytes, ReadResult *found) noexcept nogil:
    cdef ReadAsked asked
    cdef FetchView view
    cdef WakeList wakes
    read_asked_init(&asked, offset, max_bytes, READ_LOCAL)
    asked.min_one = asked.slowly = True
    return partition_read(source, &asked, found, &view, &wakes)


cdef int begin(Partition *source, Partition *into, Sleeper *sleeper) noexcept nogil:
    """Starts the copy at the source's log start offset, or at the base offset of the batch that contains this offset.
    If compaction has removed the records at the log start offset, the first batch begins after this offset, but the
    copy still starts at this offset."""
    cdef int64_t offset = locked(&source.log, &source.log.log_start_offset)
    cdef ReadResult found
    cdef int result = look(source, offset, 1, &found)
    if result != 0:
        return result
    result = begin_at(&into.log, min(offset, found.first_offset) if found.size > 0 else offset, sleeper)
    segment_release(found.segment)
    return result


cdef inline int64_t refused(int error) noexcept nogil:
    """Returns a Kafka error code as a negative result. UNKNOWN_SERVER_ERROR, which is already -1, means that memory ran
    out."""
    return -error if error > 0 else -ENOMEM


cdef inline bint is_truncated(Partition *source, int64_t truncations) noexcept nogil:
    return locked(&source.log, &source.log.truncations) != truncations


cdef int64_t append(Partition *into, const uint8_t *block, int64_t size, Sleeper *sleeper) noexcept nogil:
    cdef AppendInfo info
    cdef WakeList wakes
    cdef int64_t before = load64(&into.log.total_bytes)
    cdef int error = LOG_BLOCKED
    while error == LOG_BLOCKED:
        error = partition_append_replicated(into, block, <size_t> size, ANY_EPOCH, &sleeper.waiter, &info, &wakes)
        wake_all(&wakes)
        if error == LOG_BLOCKED:
            sleep_until_woken(sleeper, -1)
    return refused(error) if error != 0 else load64(&into.log.total_bytes) - before


cdef int64_t copy_found(Partition *source, Partition *into, int64_t truncations, const ReadResult *found,
                        Sleeper *sleeper) noexcept nogil:
    cdef uint8_t *block = <uint8_t *> malloc(<size_t> found.size)
    cdef int64_t result
    if block == NULL:
        return -ENOMEM
    result = found.segment.disk.pread(found.segment.disk.self, file_of(found.segment), block, <size_t> found.size,
                                      found.position)
    if is_truncated(source, truncations):
        # The truncation may have removed records that `into` still has. If newer bytes were appended after such
        # records, the leader epochs would no longer show where these records begin.
        result = LOG_TRUNCATED
    elif result == found.size:
        result = append(into, block, result, sleeper)
    elif result >= 0:
        result = -EIO
    free(block)
    return result


cdef int64_t copy_block(Partition *source, Partition *into, int64_t truncations, int64_t max_bytes,
                        Sleeper *sleeper) noexcept nogil:
    cdef ReadResult found
    cdef int64_t copied = 0
    cdef int64_t offset = locked(&into.log, &into.log.end_offset)
    cdef int64_t start = locked(&source.log, &source.log.log_start_offset)
    cdef LogConfig *config = log_hold_config(&into.log)
    cdef int64_t limit = min(max_bytes, config.segment_bytes, <int64_t> BLOCK_BYTES)
    cdef int error = look(source, max(offset, start), limit, &found)
    config_release(config)
    if error == 0 and offset < start and (found.size == 0 or found.first_offset > offset):
        # The source has deleted the record at `offset`. (If the log start is in the middle of a batch that contains
        # `offset`, the source still has that whole batch, and the copy gets it.)
        segment_release(found.segment)
        error = OFFSET_OUT_OF_RANGE
    if error != 0:
        return refused(error)
    if found.size > 0:
        copied = copy_found(source, into, truncations, &found, sleeper)
    segment_release(found.segment)
    return copied


cdef int follow_start(Partition *source, Partition *into) noexcept nogil:
    """Deletes from the copy the records that the source deleted after they were copied."""
    cdef int64_t offset = min(locked(&source.log, &source.log.log_start_offset),
                              locked(&into.log, &into.log.end_offset))
    return log_advance_start(&into.log, offset)


cdef int64_t empty_end(Log *log) noexcept nogil:
    """Returns the log end offset if the last segment is empty and begins at this offset. Returns -1 otherwise."""
    cdef int64_t end = -1
    mutex_lock(&log.lock)
    if log.active != NULL and log.active.size == 0 and log.active.base_offset == log.end_offset:
        end = log.end_offset
    mutex_unlock(&log.lock)
    return end


cdef int roll_to(Log *into, int64_t end, Waiter *blocked) noexcept nogil:
    """Makes `into` end at `end`, with an empty segment that begins there. Does nothing if `into` already ends at or
    after `end`. Call this with the lock held."""
    if into.end_offset >= end:
        return 0
    if into.state == LOG_FAILED or into.state == LOG_CLOSED:
        return KAFKA_STORAGE_ERROR
    if into.state != LOG_OPEN:
        log_block(into, blocked)
        return LOG_BLOCKED
    if into.active.base_offset == end:
        into.end_offset = end
        return 0
    return log_start_roll(into, end, blocked)


cdef int follow_end(Partition *into, int64_t end, Sleeper *sleeper) noexcept nogil:
    """Gives the copy an empty last segment if the source has one, so that both logs have the same structure. Runs when
    all records below `end` have been copied. `end` is the result of `empty_end` for the source."""
    cdef int result = LOG_BLOCKED
    while result == LOG_BLOCKED:
        mutex_lock(&into.log.lock)
        result = roll_to(&into.log, end, &sleeper.waiter)
        mutex_unlock(&into.log.lock)
        if result == LOG_BLOCKED:
            sleep_until_woken(sleeper, -1)
    return result


cdef bint is_overtaken(Partition *source, Partition *into) noexcept nogil:
    """Returns whether the copy has no files yet, or the source has deleted the records to copy next."""
    return not has_files(&into.log) or (
        locked(&into.log, &into.log.end_offset) < locked(&source.log, &source.log.log_start_offset))


cdef int64_t log_copy(Partition *source, Partition *into, int64_t truncations, int64_t max_bytes,
                      Sleeper *sleeper) noexcept nogil:
    cdef int64_t copied = 0
    cdef int64_t more = 1
    cdef int64_t end = -1
    cdef bint begun = is_overtaken(source, into)
    cdef int error = 0
    if not has_files(&source.log):
        return 0
    if begun:
        error = begin(source, into, sleeper)
    while error == 0 and more > 0 and copied < max_bytes:
        # `empty_end` is called before the look-up, because after the look-up for the last records, the source may get
        # more records and then an empty segment.
        end = empty_end(&source.log)
        more = copy_block(source, into, truncations, max_bytes - copied, sleeper)
        if more > 0:
            copied += more
        elif more < 0 and not begun and is_overtaken(source, into):
            # The source deleted these records just before they were to be copied.
            begun = True
            more = 1
            error = begin(source, into, sleeper)
    if error == 0 and more == 0:
        error = follow_end(into, end, sleeper)
    if error == 0 and more >= 0:
        error = follow_start(source, into)
    if is_truncated(source, truncations):
        return LOG_TRUNCATED
    if more < 0:
        return more
    return copied if error == 0 else refused(error)


# --- replacing the current log ---

cdef void drop(SegmentList *list) noexcept nogil:
    """Marks the segments as deleted. If a reader still uses one of them and does not find its files, the reader reads
    the log's list of segments again."""
    cdef int32_t i
    if list != NULL:
        for i in range(list.count):
            store32(&list.items[i].dropped, SEGMENT_DELETED)


cdef void exchange(Log *log, Log *fresh) noexcept nogil:
    """Exchanges the files of the two logs. Call this with the lock of `log` held. No other thread may know `fresh`."""
    cdef SegmentList *segments = log.segments
    cdef Segment *active = log.active
    cdef LogDir *dir = log.dir
    cdef char *path = log.path
    cdef int64_t total_bytes = load64(&log.total_bytes)
    drop(segments)
    log.segments = fresh.segments
    log.active = fresh.active
    log.path = fresh.path
    store_ptr(<void **> &log.dir, fresh.dir)
    store64(&log.total_bytes, load64(&fresh.total_bytes))
    fresh.segments = segments
    fresh.active = active
    if segments == NULL:
        fresh.state = LOG_LAZY
    fresh.path = path
    store_ptr(<void **> &fresh.dir, dir)
    store64(&fresh.total_bytes, total_bytes)


cdef int log_adopt(Log *log, Log *fresh, Waiter *blocked) noexcept nogil:
    cdef int result = 0
    mutex_lock(&log.lock)
    if log.state != LOG_ROLLING and log.state != LOG_OPENING:
        result = KAFKA_STORAGE_ERROR
    elif log_has_jobs(log):
        # A role change may have started the job that writes the leader-epoch-checkpoint file.
        log_block(log, blocked)
        result = LOG_BLOCKED
    else:
        exchange(log, fresh)
        if log.recent != NULL:
            recent_clear(log)
        log.cuts += 1
        log.truncations += 1
        log.snapshot_offset = fresh.snapshot_offset
        log.checkpointed_offset = max(log.checkpointed_offset, fresh.checkpointed_offset)
        store64(&log.last_aborted_offset, fresh.last_aborted_offset)
        log.epochs_dirty = EPOCHS_BEHIND
        if log.segments != NULL:
            # All records are synced, because the shutdown of the future log synced them.
            log.synced_offset = log.commit_offset = log.end_offset
            log.unflushed_since_ns = -1
    mutex_unlock(&log.lock)
    return result


# --- the Python interface ---

def new_future(LogDirectory directory not None, str topic not None, int32_t index, topic_id, LogSettings settings,
               str suffix not None):
    """Creates the partition of a future log, which has no leader. The name of its directory consists of topic, index
    and `suffix`."""
    cdef bytes encoded = suffix.encode()
    cdef PartitionHandle handle = PartitionHandle(directory, topic, index, topic_id, settings)
    if encoded:
        handle.partition.log.suffix = strdup(encoded)
        if handle.partition.log.suffix == NULL:
            raise MemoryError
    return handle


def copy(PartitionHandle source not None, PartitionHandle into not None, int64_t max_bytes, int64_t truncations):
    """Copies about `max_bytes` bytes of records that the future log `into` lacks. Returns the number of copied bytes. A
    number below `max_bytes` means that `into` now has all records. The caller first reads `truncations` of the source,
    then removes from `into` the records that the source no longer has, and passes the count that it read. If the count
    has changed, stops and returns None: the caller must then remove such records again. Blocking. Raises OSError if one
    of the directories is offline, or if the records of the source cannot be copied."""
    cdef Sleeper *sleeper = sleeper_new(into.directory.dir)
    cdef int64_t copied
    with nogil:
        copied = log_copy(source.partition, into.partition, truncations, max_bytes, sleeper)
        park_release(&sleeper.parked)
    if copied == LOG_TRUNCATED:
        return None
    if copied < 0:
        raise OSError(f"{source.topic}-{source.index} cannot be copied from {source.directory.path} to "
                      f"{into.directory.path}: error {-copied}")
    return copied


def fail(PartitionHandle handle not None, LogDirectory directory not None, int error):
    """Takes `directory` offline because of the errno `error`. Also makes the log fail, unless it was closed or has
    moved to another directory in the meantime. In these two cases, an ENOENT has no effect."""
    with nogil:
        log_fail_in(&handle.partition.log, directory.dir, error)


def hold_still(PartitionHandle handle not None):
    """Waits until no job works on the log. After that, appends wait until `go_on` is called. Blocking. Raises OSError
    if the log is closed or its directory is offline."""
    cdef Sleeper *sleeper = sleeper_new(handle.directory.dir)
    cdef int result = LOG_BLOCKED
    with nogil:
        while result == LOG_BLOCKED:
            result = log_hold_still(&handle.partition.log, &sleeper.waiter)
            if result == LOG_BLOCKED:
                sleep_until_woken(sleeper, -1)
        park_release(&sleeper.parked)
    if result != 0:
        raise OSError(f"{handle.topic}-{handle.index}: the log is closed, or {handle.directory.path} is offline")


def go_on(PartitionHandle handle not None):
    """Ends `hold_still`. Appends continue."""
    with nogil:
        log_go_on(&handle.partition.log)


def adopt(PartitionHandle handle not None, PartitionHandle fresh not None):
    """Makes `handle` use the files of `fresh`. Call this after `hold_still` on `handle`, when both logs end at the same
    offset. Blocking. Raises OSError if `handle` was closed in the meantime, if its directory is offline, or if `fresh`
    ends at another offset."""
    cdef Sleeper *sleeper
    cdef int result = LOG_BLOCKED
    if handle.end_offset != fresh.end_offset:
        raise OSError(f"{fresh.directory.path}: {handle.topic}-{handle.index} ends at {fresh.end_offset}, "
                      f"not at {handle.end_offset}")
    hold_still(fresh)
    sleeper = sleeper_new(handle.directory.dir)
    with nogil:
        while result == LOG_BLOCKED:
            result = log_adopt(&handle.partition.log, &fresh.partition.log, &sleeper.waiter)
            if result == LOG_BLOCKED:
                sleep_until_woken(sleeper, -1)
        park_release(&sleeper.parked)
    if result != 0:
        raise OSError(f"{handle.topic}-{handle.index}: the log is closed, or {handle.directory.path} is offline")
    handle.directory, fresh.directory = fresh.directory, handle.directory
