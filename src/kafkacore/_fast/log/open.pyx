"""First append, roll and commit of a log, as log_open.pxd says."""

from libc.errno cimport EEXIST, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memset, strlen

from kafkacore._fast.base.atomics cimport add32, load32, load64, store32, store64
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.wait.io cimport Dirty, Job, LogDir, io_dirty, io_submit
from kafkacore._fast.log.log cimport (
    EPOCHS_EMPTY, EPOCHS_SAVED, LOG_BLOCKED, LOG_OPEN, LOG_OPENING, LOG_ROLLING, Log, LogConfig, SegmentList,
    config_release, log_block, log_dir, log_directory_path, log_fail, log_fail_in, log_hold_config, log_now_ms,
    log_set_segments, log_wake_blocked, log_wake_changed, recent_clear, segments_release,
)
from kafkacore._fast.log.files cimport write_epochs, write_partition_metadata, write_producer_snapshot
from kafkacore._fast.wait.park cimport WAKE_READY, Waiter, WakeList, wake_all
from kafkacore._fast.log.producers cimport producers_new
from kafkacore._fast.log.segment cimport (
    Segment, file_of, segment_create, segment_end_times, segment_forget_indexes, segment_hold, segment_new,
    segment_release, segment_seal, segment_sync,
)
from kafkacore._fast.log.segment_end cimport segment_wake
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR, O_CLOEXEC

cdef enum:
    OFFSET_DIGITS = 20
    AHEAD_BYTES = 64 << 20
    NOT_LEADER_OR_FOLLOWER = 6


cdef Log *log_of_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).job)


cdef Log *log_of_epochs_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).epochs_job)


cdef Log *log_of_ahead_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).ahead_job)


cdef Log *log_of_dirty(Dirty *dirty) noexcept nogil:
    return <Log *> (<char *> dirty - <size_t> &(<Log *> NULL).dirty)


cdef int submit(Log *log, int32_t state, void (*run)(Job *job) noexcept nogil, Waiter *blocked) noexcept nogil:
    """Under the lock. LOG_BLOCKED: the job is on its way, holds a count until it is over, and wakes `blocked`. Else an
    error that clients retry, and nothing has changed: the directory closes, or no thread can be had for it now."""
    cdef int32_t before = log.state
    memset(&log.job, 0, sizeof(Job))
    log.job.run = run
    log.state = state
    log.hold(log)
    if io_submit(log.dir, &log.job) < 0:
        log.state = before
        log.release(log)
        return NOT_LEADER_OR_FOLLOWER
    log_block(log, blocked)
    return LOG_BLOCKED


# --- the first append ---

cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil:
    return submit(log, LOG_OPENING, run_open, blocked)


cdef int write_identity(Log *log, const char *path) noexcept nogil:
    cdef const Disk *disk = log.dir.disk
    cdef int result = 0
    if log.topic_id != NULL:
        # On disk before the first acknowledged append: recovery finds the records' topic by it (KIP-516).
        result = write_partition_metadata(disk, path, log.topic_id)
    if result == 0:
        result = write_epochs(log, path, True)
    if result == 0:
        result = disk.sync_directory(disk.self, log.dir.path)
    return result


cdef int64_t preallocated_bytes(Log *log) noexcept nogil:
    cdef LogConfig *config = log_hold_config(log)
    cdef int64_t size = config.segment_bytes if config.preallocate else 0
    config_release(config)
    return size


cdef int make_first_segment(Log *log, const char *path, Segment **made) noexcept nogil:
    cdef int result
    made[0] = segment_new(log.dir.disk, path, log.end_offset)
    if made[0] == NULL:
        return -ENOMEM
    result = segment_create(made[0], log_now_ms(log), True, preallocated_bytes(log))
    if result == 0:
        result = write_identity(log, path)  # syncs the directory, the segment's names with it
    made[0].entry_synced = True
    if result < 0:
        segment_release(made[0])
        made[0] = NULL
    return result


cdef int install_first(Log *log, char *path, Segment *segment) noexcept nogil:
    cdef int result
    mutex_lock(&log.lock)
    free(log.path)
    log.path = path
    if log.producers == NULL:
        log.producers = producers_new()
    result = -ENOMEM
    if log.producers != NULL:
        result = log_set_segments(log, &segment, 1)
    if result == 0 and log.state == LOG_OPENING:
        log.state = LOG_OPEN
        log_save_epochs(log)
    mutex_unlock(&log.lock)
    if result < 0:
        segment_release(segment)
    return result


cdef void run_open(Job *job) noexcept nogil:
    cdef Log *log = log_of_job(job)
    cdef const Disk *disk = log.dir.disk
    cdef char *path = log_directory_path(log)
    cdef Segment *segment = NULL
    cdef int result = -ENOMEM
    if path != NULL:
        result = disk.make_directory(disk.self, path)
        if result == 0 or result == -EEXIST:
            result = make_first_segment(log, path, &segment)
        if result == 0:
            result = install_first(log, path, segment)
        else:
            free(path)
    if result < 0:
        log_fail(log, -result)
    else:
        log_wake_blocked(log, WAKE_READY)
    log.release(log)


# --- rolls ---

cdef int log_start_roll(Log *log, int64_t base_offset, Waiter *blocked) noexcept nogil:
    log.roll_offset = base_offset
    return submit(log, LOG_ROLLING, run_roll, blocked)


cdef int append_segment(Log *log, Segment *segment) noexcept nogil:
    """The list with one more at its end; the sealed one's indexes leave memory."""
    cdef Segment *sealed = log.active
    cdef int32_t count = log.segments.count
    cdef int32_t i
    cdef int result
    cdef Segment **items = <Segment **> malloc((count + 1) * sizeof(Segment *))
    if items == NULL:
        return -ENOMEM
    for i in range(count):
        items[i] = log.segments.items[i]
        segment_hold(items[i])
    items[count] = segment
    result = log_set_segments(log, items, count + 1)
    if result < 0:
        for i in range(count):
            segment_release(items[i])
    else:
        segment_forget_indexes(sealed)
        recent_clear(log)
    free(items)
    return result


cdef int roll(Log *log) noexcept nogil:
    """Nothing is appended meanwhile; readers go on."""
    cdef Segment *segment
    cdef int result
    mutex_lock(&log.lock)
    segment = log.active
    segment_hold(segment)
    result = segment_end_times(segment)
    mutex_unlock(&log.lock)
    if result == 0:
        result = segment_seal(segment)
    segment_release(segment)
    if result == 0 and log.snapshot_offset < log.roll_offset:
        result = write_producer_snapshot(log, log.path, log.roll_offset, False)
    if result < 0:
        return result
    segment = segment_new(log.dir.disk, log.path, log.roll_offset)
    if segment == NULL:
        return -ENOMEM
    result = segment_create(segment, log_now_ms(log), False, preallocated_bytes(log))
    if result == 0:
        mutex_lock(&log.lock)
        result = append_segment(log, segment)
        if result == 0:
            log.snapshot_offset = log.roll_offset
            if log.state == LOG_ROLLING:
                log.state = LOG_OPEN
        mutex_unlock(&log.lock)
    if result < 0:
        segment_release(segment)
    return result


cdef void run_roll(Job *job) noexcept nogil:
    cdef Log *log = log_of_job(job)
    cdef int64_t base_offset = log.roll_offset  # the next roll may start as soon as this one is in place
    cdef int result = roll(log)
    if result < 0:
        log_fail(log, -result)
    else:
        log_wake_blocked(log, WAKE_READY)
        log_commit_soon(log, base_offset)  # the sealed segment, as Kafka flushes after a roll
    log.release(log)


cdef int log_start_wake(Log *log, Waiter *blocked) noexcept nogil:
    return submit(log, LOG_ROLLING, run_wake, blocked)


cdef int wake(Log *log) noexcept nogil:
    cdef Segment *segment
    cdef int result
    mutex_lock(&log.lock)
    segment = log.active
    segment_hold(segment)
    mutex_unlock(&log.lock)
    result = segment_wake(segment)
    mutex_lock(&log.lock)
    if result == 0:
        store32(&segment.sealed, 0)
        log_save_epochs(log)
    if result == 0 and log.state == LOG_ROLLING:
        log.state = LOG_OPEN
    mutex_unlock(&log.lock)
    segment_release(segment)
    return result


cdef void run_wake(Job *job) noexcept nogil:
    cdef Log *log = log_of_job(job)
    cdef int result = wake(log)
    if result < 0:
        log_fail(log, -result)
    else:
        log_wake_blocked(log, WAKE_READY)
    log.release(log)


# --- commits ---

cdef void log_commit_init(Log *log) noexcept nogil:
    log.dirty.commit = run_commit
    log.dirty.idle = end_commit


cdef void log_commit_soon(Log *log, int64_t offset) noexcept nogil:
    mutex_lock(&log.lock)
    log_want_synced(log, offset)
    mutex_unlock(&log.lock)
    log_call_committer(log)


cdef void log_want_synced(Log *log, int64_t offset) noexcept nogil:
    if log.commit_offset < offset:
        log.commit_offset = offset


cdef int64_t log_recovery_point(const Log *log) noexcept nogil:
    cdef int64_t point = log.synced_offset
    cdef int32_t i
    if log.segments == NULL:
        return point
    # All of them: a load may have rebuilt one in the middle, for want of an index.
    for i in range(log.segments.count - 1):
        if log.segments.items[i].base_offset >= point:
            break
        if not load32(&log.segments.items[i].wholly_synced):
            point = log.segments.items[i].base_offset
            break
    return point if point > log.log_start_offset else log.log_start_offset


cdef void log_call_committer(Log *log) noexcept nogil:
    log.hold(log)
    if not io_dirty(log_dir(log), &log.dirty):
        log.release(log)


cdef void end_commit(Dirty *dirty) noexcept nogil:
    cdef Log *log = log_of_dirty(dirty)
    log.release(log)


cdef char *path_beside(const Segment *segment, int64_t offset, const char *suffix) noexcept nogil:
    """Of the file that has the name of an offset in the segment's directory. The log may be elsewhere by now."""
    cdef size_t length = strlen(segment.path)
    cdef char *path = <char *> malloc(length + 16)
    if path != NULL:
        snprintf(path, length + 16, b"%.*s%020lld%s", <int> (length - OFFSET_DIGITS), segment.path, <long long> offset,
                 suffix)
    return path


cdef int sync_snapshot(Segment *segment, int64_t offset) noexcept nogil:
    """The producer snapshot that was taken when the segment at `offset` began."""
    cdef const Disk *disk = segment.disk
    cdef char *path = path_beside(segment, offset, b".snapshot")
    cdef int file, result
    if path == NULL:
        return -ENOMEM
    file = disk.open(disk.self, path, O_RDWR | O_CLOEXEC, 0)
    free(path)
    if file < 0:
        return 0 if file == -ENOENT else file
    result = disk.sync(disk.self, file)
    disk.close(disk.self, file)
    return result


cdef int log_sync_segment(Log *log, Segment *segment, int64_t next_base, int64_t cuts) noexcept nogil:
    """`next_base`: of the segment that follows, -1 for the last, whose size is told with the round's end. A dropped
    segment has nothing left to lose."""
    cdef int64_t size = load64(&segment.size)
    cdef int result = segment_sync(segment, load32(&segment.sealed) != 0)
    if result == 0 and next_base >= 0:
        result = sync_snapshot(segment, next_base)
    if result < 0:
        return 0 if load32(&segment.dropped) else result
    if next_base >= 0:
        mutex_lock(&log.lock)
        note_synced_size(log, segment, size, cuts)
        if log.cuts == cuts:
            store32(&segment.wholly_synced, 1)
        mutex_unlock(&log.lock)
    return 0


cdef void note_synced_size(Log *log, Segment *segment, int64_t size, int64_t cuts) noexcept nogil:
    if log.cuts == cuts and segment.synced_size < size:
        store64(&segment.synced_size, size)


cdef int sync_directory_of(Segment *segment) noexcept nogil:
    cdef char *path = path_beside(segment, 0, b"")
    cdef int result = -ENOMEM
    if path != NULL:
        path[strlen(path) - OFFSET_DIGITS - 1] = 0
        result = segment.disk.sync_directory(segment.disk.self, path)
        free(path)
    return 0 if load32(&segment.dropped) else result


cdef int sync_names(SegmentList *list) noexcept nogil:
    cdef int32_t i
    cdef int result = 0
    for i in range(list.count):
        if not list.items[i].entry_synced:
            result = sync_directory_of(list.items[i])
            break
    if result == 0:
        for i in range(list.count):
            list.items[i].entry_synced = True
    return result


cdef int sync_up_to(Log *log, SegmentList *list, int64_t synced_offset, int64_t until, int64_t cuts) noexcept nogil:
    """Every segment that has bytes between the two, those that were sealed since theirs were synced (for their indexes
    and the snapshot behind them), and the names of new ones."""
    cdef int64_t next_base
    cdef int32_t i
    cdef int result
    for i in range(list.count):
        next_base = list.items[i + 1].base_offset if i + 1 < list.count else -1
        if list.items[i].base_offset >= until or (
                0 <= next_base <= synced_offset and load32(&list.items[i].wholly_synced)):
            continue
        result = log_sync_segment(log, list.items[i], next_base, cuts)
        if result < 0:
            return result
    return sync_names(list)


cdef int run_commit(Dirty *dirty) noexcept nogil:
    # A truncation or a deletion meanwhile leaves open what of the offsets the sync was for; somebody may wait for them.
    while not commit_round(log_of_dirty(dirty)):
        pass
    return 0


cdef bint commit_round(Log *log) noexcept nogil:
    """False when segments went meanwhile, so that the sync says nothing. Two turns with the lock, since appends want it
    all the while."""
    cdef SegmentList *list
    cdef LogDir *dir
    cdef Segment *last = NULL
    cdef WakeList wakes
    cdef bint is_told, more
    cdef int64_t until, synced_offset, cuts
    cdef int64_t last_size = 0
    cdef int result
    mutex_lock(&log.lock)
    until = log.commit_offset
    synced_offset = log.synced_offset
    cuts = log.cuts
    dir = log.dir
    list = log.segments
    if list != NULL:
        add32(&list.refs, 1)
    if log.active != NULL and until > log.active.base_offset:
        # The active segment is synced as a whole.
        last = log.active
        last_size = last.size
        until = log.end_offset
    mutex_unlock(&log.lock)
    if list == NULL or load32(&dir.offline):
        segments_release(list)
        if load32(&dir.offline):
            # Another file's error: whoever waits for this one is told as well.
            log_fail_in(log, dir, load32(&dir.offline))
        return True
    result = sync_up_to(log, list, synced_offset, until, cuts)
    if result < 0:
        segments_release(list)
        log_fail_in(log, dir, -result)
        return True
    wakes.count = 0
    wakes.why = WAKE_READY
    mutex_lock(&log.lock)
    # What was synced before a truncation says nothing of what took its offsets since.
    is_told = log.cuts == cuts
    if is_told and log.synced_offset < until:
        log.synced_offset = until
    if last != NULL:
        note_synced_size(log, last, last_size, cuts)
    if log.synced_offset == log.end_offset:
        log.unflushed_since_ns = -1
    more = log.on_change != NULL and log.on_change(log, &wakes)
    mutex_unlock(&log.lock)
    segments_release(list)
    wake_all(&wakes)
    if more:
        log_wake_changed(log, WAKE_READY)
    return is_told


# --- blocks set aside ---

cdef void log_reserve_ahead(Log *log) noexcept nogil:
    if log.ahead_job_queued:
        return
    memset(&log.ahead_job, 0, sizeof(Job))
    log.ahead_job.run = run_reserve_ahead
    log.ahead_job_queued = True
    log.hold(log)
    if io_submit(log.dir, &log.ahead_job) < 0:
        log.ahead_job_queued = False
        log.release(log)


cdef void run_reserve_ahead(Job *job) noexcept nogil:
    """A write into blocks that are there costs the file system a quarter less than one that must find them."""
    cdef Log *log = log_of_ahead_job(job)
    cdef const Disk *disk = log.dir.disk
    cdef Segment *segment
    cdef int64_t start, size
    cdef int result
    mutex_lock(&log.lock)
    segment = log.active
    segment_hold(segment)
    start = segment.reserved if segment.reserved > segment.size else segment.size
    size = log.config.segment_bytes - start
    mutex_unlock(&log.lock)
    if size > AHEAD_BYTES:
        size = AHEAD_BYTES
    # A refusal (no such call, no room) is no failure: the appends find out for themselves what there is.
    result = disk.want(disk.self, file_of(segment), start, <size_t> size) if size > 0 else -1
    mutex_lock(&log.lock)
    if load32(&segment.sealed) == 0:
        segment.reserved = start + size if result == 0 else log.config.segment_bytes
    log.ahead_job_queued = False
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    segment_release(segment)
    log.release(log)


# --- leader epochs ---

cdef bint log_epochs_wanted(const Log *log) noexcept nogil:
    # Each restart would sync two files of every partition, for epochs that the next start drops.
    cdef bint at_rest = log.active != NULL and load32(&log.active.sealed) != 0
    return log.epochs_dirty != EPOCHS_SAVED and not (log.epochs_dirty == EPOCHS_EMPTY and at_rest)


cdef void log_save_epochs(Log *log) noexcept nogil:
    # A log that opens writes them with its other files, and saves later ones when it is open.
    if log.epochs_job_queued or (log.state != LOG_OPEN and log.state != LOG_ROLLING) or not log_epochs_wanted(log):
        return
    memset(&log.epochs_job, 0, sizeof(Job))
    log.epochs_job.run = run_save_epochs
    log.epochs_job_queued = True
    log.hold(log)
    if io_submit(log.dir, &log.epochs_job) < 0:
        log.epochs_job_queued = False
        log.release(log)


cdef void run_save_epochs(Job *job) noexcept nogil:
    cdef Log *log = log_of_epochs_job(job)
    cdef int result = write_epochs(log, log.path, True)
    if result < 0:
        log_fail(log, -result)
    mutex_lock(&log.lock)
    log.epochs_job_queued = False
    if result == 0:
        log_save_epochs(log)  # what changed meanwhile
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    log.release(log)
