"""Implements log.pxd: the life cycle of a log, its list of segments and its waiters."""

from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strlen

from kafkacore._fast.base.atomics cimport add32, load64, load_ptr, store64
from kafkacore._fast.codec.context cimport LEVEL_DEFAULT, default_inflate_limits
from kafkacore._fast.wait.io cimport LogDir, io_fail
from kafkacore._fast.wait.park cimport WAKE_GONE, Waiter, WakeList, wake_all
from kafkacore._fast.log.producers cimport producers_free
from kafkacore._fast.log.segment cimport Segment, segment_hold, segment_release
from kafkacore._fast.base.lock_order cimport RANK_LOG
from kafkacore._fast.base.sync cimport mutex_destroy, mutex_init, mutex_lock, mutex_unlock
from kafkacore._fast.wait.waiters cimport waiter_push, waiters_take_all


# --- configuration ---

cdef LogConfig *config_new() noexcept nogil:
    cdef LogConfig *config = <LogConfig *> calloc(1, sizeof(LogConfig))
    if config == NULL:
        return NULL
    config.refs = 1
    config.rules.limits = default_inflate_limits()[0]
    config.rules.target_level = LEVEL_DEFAULT
    config.rules.zstd_allowed = True
    return config


cdef void config_hold(LogConfig *config) noexcept nogil:
    add32(&config.refs, 1)


cdef void config_release(LogConfig *config) noexcept nogil:
    if config != NULL and add32(&config.refs, -1) == 0:
        free(config)


cdef void log_set_config(Log *log, LogConfig *config) noexcept nogil:
    cdef LogConfig *before
    mutex_lock(&log.lock)
    before = log.config
    log.config = config
    mutex_unlock(&log.lock)
    config_release(before)


cdef LogConfig *log_hold_config(Log *log) noexcept nogil:
    cdef LogConfig *config
    mutex_lock(&log.lock)
    config = log.config
    config_hold(config)
    mutex_unlock(&log.lock)
    return config


# --- life ---

cdef int log_init(Log *log, LogDir *dir, const Clock *clock, LogConfig *config, int64_t start_offset) noexcept nogil:
    memset(log, 0, sizeof(Log))
    log.dir = dir
    log.clock = clock
    config_hold(config)
    log.config = config
    log.log_start_offset = log.local_log_start_offset = start_offset
    log.end_offset = log.synced_offset = log.commit_offset = start_offset
    log.unflushed_since_ns = -1
    log.first_unstable_offset = log.last_aborted_offset = -1
    log.snapshot_offset = -1
    return -mutex_init(&log.lock, RANK_LOG)


cdef void log_destroy(Log *log) noexcept nogil:
    segments_release(log.segments)
    config_release(log.config)
    producers_free(log.producers)
    free(log.recent)
    free(log.epochs)
    free(log.path)
    free(log.suffix)
    mutex_destroy(&log.lock)


cdef int64_t log_now_ms(Log *log) noexcept nogil:
    return log.clock.wall_ms(log.clock.self)


cdef char *log_directory_path(const Log *log) noexcept nogil:
    cdef const char *suffix = b""
    cdef size_t room
    cdef char *path
    if log.suffix != NULL:
        suffix = log.suffix
    room = strlen(log.dir.path) + <size_t> log.topic_size + strlen(suffix) + 16
    path = <char *> malloc(room)
    if path != NULL:
        snprintf(path, room, b"%s/%.*s-%d%s", log.dir.path, <int> log.topic_size, log.topic, <int> log.index, suffix)
    return path


cdef LogDir *log_dir(const Log *log) noexcept nogil:
    return <LogDir *> load_ptr(<void **> &log.dir)


cdef void log_fail(Log *log, int error) noexcept nogil:
    log_fail_in(log, log_dir(log), error)


cdef void log_fail_in(Log *log, LogDir *dir, int error) noexcept nogil:
    cdef bint gone
    mutex_lock(&log.lock)
    gone = log.state == LOG_CLOSED or log.dir != dir
    if not gone:
        log.state = LOG_FAILED
    mutex_unlock(&log.lock)
    # The directory of a log may have been renamed because the log was closed or moved. If a job then does not find a
    # file, that is not an error of the disk.
    if not gone or error != ENOENT:
        io_fail(dir, error)
    log_wake_blocked(log, WAKE_GONE)
    log_wake_changed(log, WAKE_GONE)


# --- segments ---

cdef int log_set_segments(Log *log, Segment **items, int32_t count) noexcept nogil:
    cdef SegmentList *before = log.segments
    cdef int64_t bytes = 0
    cdef int32_t i
    cdef SegmentList *list = <SegmentList *> malloc(sizeof(SegmentList) + count * sizeof(Segment *))
    if list == NULL:
        return -ENOMEM
    list.refs = 1
    list.count = count
    memcpy(list.items, items, count * sizeof(Segment *))
    for i in range(count):
        bytes += load64(&items[i].size)
    store64(&log.total_bytes, bytes)
    log.segments = list
    log.active = items[count - 1] if count else NULL
    segments_release(before)
    return 0


cdef void segments_release(SegmentList *list) noexcept nogil:
    cdef int32_t i
    if list == NULL or add32(&list.refs, -1) != 0:
        return
    for i in range(list.count):
        segment_release(list.items[i])
    free(list)


cdef SegmentList *log_hold_segments(Log *log) noexcept nogil:
    cdef SegmentList *list
    mutex_lock(&log.lock)
    list = log.segments
    if list != NULL:
        add32(&list.refs, 1)
    mutex_unlock(&log.lock)
    return list


cdef Segment *log_segment_at(const Log *log, int64_t offset) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high, middle
    cdef Segment *segment
    if log.segments == NULL or log.segments.count == 0:
        return NULL
    if offset >= log.active.base_offset:
        segment = log.active
    else:
        high = log.segments.count
        while low < high:
            middle = (low + high) >> 1
            if log.segments.items[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        segment = log.segments.items[low - 1 if low > 0 else 0]
    segment_hold(segment)
    return segment


cdef void recent_clear(Log *log) noexcept nogil:
    if log.recent != NULL:
        log.recent.count = 0


cdef void recent_add(Log *log, int64_t base_offset, int64_t position) noexcept nogil:
    cdef Recent *recent
    cdef int32_t at
    if log.recent == NULL:
        log.recent = <Recent *> calloc(1, sizeof(Recent))
        if log.recent == NULL:
            return  # the batch can still be found by the index
    recent = log.recent
    if recent.count < RECENT_BATCHES:
        at = (recent.first + recent.count) % RECENT_BATCHES
        recent.count += 1
    else:
        at = recent.first
        recent.first = (recent.first + 1) % RECENT_BATCHES
    recent.batches[at].base_offset = base_offset
    recent.batches[at].position = position


# --- waiters ---

cdef void log_block(Log *log, Waiter *waiter) noexcept nogil:
    if waiter != NULL and waiter.back == NULL:
        waiter_push(&log.blocked, waiter)


cdef void log_wake_blocked(Log *log, int why) noexcept nogil:
    cdef WakeList wakes
    cdef bint more = True
    wakes.count = 0
    wakes.why = why
    while more:
        mutex_lock(&log.lock)
        more = waiters_take_all(&log.blocked, &wakes)
        mutex_unlock(&log.lock)
        wake_all(&wakes)


cdef void log_wake_changed(Log *log, int why) noexcept nogil:
    cdef WakeList wakes
    cdef bint more = log.on_change != NULL
    wakes.count = 0
    wakes.why = why
    while more:
        mutex_lock(&log.lock)
        more = log.on_change(log, &wakes)
        mutex_unlock(&log.lock)
        wake_all(&wakes)
