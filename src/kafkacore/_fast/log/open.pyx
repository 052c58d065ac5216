"""Implements open.pxd: opens a log for appends."""

from libc.errno cimport EEXIST, ENOMEM
from libc.stdint cimport int32_t
from libc.stdlib cimport free

from kafkacore._fast.base.atomics cimport load32, store32
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.epochs_checkpoint cimport log_save_epochs
from kafkacore._fast.log.files cimport (
    begin_epochs, begin_partition_metadata, name_small_file, sync_small_file,
)
from kafkacore._fast.log.jobs cimport FILES_ROUNDS, log_end_job, log_of_job, log_start_job, wait_for_files
from kafkacore._fast.log.log cimport (
    LOG_LAZY, LOG_OPEN, LOG_OPENING, LOG_ROLLING, log_directory_path, log_now_ms, log_set_segments,
)
from kafkacore._fast.log.producers cimport producers_new
from kafkacore._fast.log.roll cimport log_preallocated_bytes
from kafkacore._fast.log.segment cimport (
    Segment, segment_create, segment_discard, segment_hold, segment_new, segment_release,
)
from kafkacore._fast.log.segment_end cimport segment_wake
from kafkacore._fast.wait.io cimport JOBS_AT_ONCE, Job, LogDir
from kafkacore._fast.world.environment cimport Disk

cdef const char *PARTITION_METADATA = b"partition.metadata"
cdef const char *LEADER_EPOCHS = b"leader-epoch-checkpoint"

# A log that a thread is opening. The struct is on the stack of that thread.
ctypedef struct Opening:
    Log *log
    int32_t then          # the state of the log after its opening
    const Disk *disk
    char *path
    Segment *segment
    int result


# --- the first append ---

cdef int log_start_open(Log *log, Waiter *blocked) noexcept nogil:
    return log_start_job(log, LOG_OPENING, run_open, run_open_all, blocked)


cdef void log_open_ahead(Log *log) noexcept nogil:
    if log.state == LOG_LAZY:
        log_start_open(log, NULL)
    elif log.state == LOG_OPEN and load32(&log.active.sealed):
        log_start_wake(log, NULL)


cdef void run_open(Job *job) noexcept nogil:
    job.next = NULL
    run_open_all(job)


cdef void run_open_all(Job *first) noexcept nogil:
    cdef Opening openings[JOBS_AT_ONCE]
    cdef Job *job = first
    cdef int count = 0
    cdef int i
    while job != NULL:
        openings[count].log = log_of_job(job)
        openings[count].then = LOG_OPEN
        job = job.next
        count += 1
    open_all(openings, count)
    for i in range(count):
        log_end_job(openings[i].log, LOG_LAZY, openings[i].result)


cdef int log_open_now(Log *log) noexcept nogil:
    cdef Opening opening
    cdef int rounds_left = FILES_ROUNDS
    opening.log = log
    opening.then = LOG_ROLLING
    while True:
        open_all(&opening, 1)
        if not wait_for_files(opening.result, &rounds_left):
            return opening.result


cdef void open_all(Opening *openings, int count) noexcept nogil:
    """Runs each step for all logs before the next step begins, so that the file system commits the names of all logs at
    once."""
    cdef int i
    for i in range(count):
        make_files(&openings[i])
    for i in range(count):
        if openings[i].result == 0:
            openings[i].result = sync_contents(&openings[i])
    for i in range(count):
        if openings[i].result == 0:
            openings[i].result = openings[i].disk.sync_directory(openings[i].disk.self, openings[i].path)
    sync_log_directories(openings, count)
    for i in range(count):
        finish(&openings[i])


cdef void make_files(Opening *opening) noexcept nogil:
    cdef Log *log = opening.log
    cdef const Disk *disk = log.dir.disk
    opening.disk = disk
    opening.segment = NULL
    opening.result = -ENOMEM
    opening.path = log_directory_path(log)
    if opening.path == NULL:
        return
    opening.result = disk.make_directory(disk.self, opening.path)
    if opening.result != 0 and opening.result != -EEXIST:
        return
    opening.segment = segment_new(disk, opening.path, log.end_offset)
    if opening.segment == NULL:
        opening.result = -ENOMEM
        return
    opening.result = segment_create(opening.segment, log_now_ms(log), True, log_preallocated_bytes(log))
    if opening.result == -EEXIST:
        return  # a .log with records exists, so the files must stay
    if opening.result == 0 and log.topic_id != NULL:
        opening.result = begin_partition_metadata(disk, opening.path, log.topic_id)
    if opening.result == 0:
        opening.result = begin_epochs(log, opening.path)
    if opening.result < 0:
        segment_discard(opening.segment)


cdef int sync_contents(Opening *opening) noexcept nogil:
    """Syncs the contents of the small files, and then renames the files to their final names."""
    cdef int result = 0
    if opening.log.topic_id != NULL:
        # The file is synced before the first append is acknowledged, so that recovery finds the topic id of the records
        # (KIP-516).
        result = sync_small_file(opening.disk, opening.path, PARTITION_METADATA)
    if result == 0:
        result = sync_small_file(opening.disk, opening.path, LEADER_EPOCHS)
    if result == 0 and opening.log.topic_id != NULL:
        result = name_small_file(opening.disk, opening.path, PARTITION_METADATA)
    if result == 0:
        result = name_small_file(opening.disk, opening.path, LEADER_EPOCHS)
    return result


cdef void sync_log_directories(Opening *openings, int count) noexcept nogil:
    """Syncs each log directory once for all its logs. All jobs of one pool share a log directory."""
    cdef const LogDir *synced = NULL
    cdef const LogDir *directory
    cdef int result = 0
    cdef int i
    for i in range(count):
        directory = openings[i].log.dir
        if openings[i].result == 0:
            if directory != synced:
                result = directory.disk.sync_directory(directory.disk.self, directory.path)
                synced = directory
            openings[i].result = result


cdef int install(Opening *opening) noexcept nogil:
    cdef Log *log = opening.log
    cdef int result = -ENOMEM
    opening.segment.entry_synced = True
    mutex_lock(&log.lock)
    if log.producers == NULL:
        log.producers = producers_new()
    if log.producers != NULL:
        result = log_set_segments(log, &opening.segment, 1)
    if result == 0:
        free(log.path)
        log.path = opening.path
        if log.state == LOG_OPENING:
            log.state = opening.then
            log_save_epochs(log)
    mutex_unlock(&log.lock)
    return result


cdef void finish(Opening *opening) noexcept nogil:
    if opening.result == 0:
        opening.result = install(opening)
    elif opening.segment != NULL and opening.result != -EEXIST:
        segment_discard(opening.segment)  # so that the next attempt finds no .log
    if opening.result < 0:
        segment_release(opening.segment)
        free(opening.path)


# --- after a load ---

cdef int log_start_wake(Log *log, Waiter *blocked) noexcept nogil:
    return log_start_job(log, LOG_ROLLING, run_wake, NULL, blocked)


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
    log_end_job(log, LOG_OPEN, wake(log))
