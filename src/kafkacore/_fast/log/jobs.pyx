"""Implements jobs.pxd: jobs of a log on pool threads."""

from libc.errno cimport EMFILE, ENFILE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from kafkacore._fast.base.error_codes cimport KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.log cimport LOG_BLOCKED, LOG_OPENING, LOG_ROLLING, log_block, log_fail, log_wake_blocked
from kafkacore._fast.wait.io cimport io_pause, io_submit
from kafkacore._fast.wait.park cimport WAKE_READY

cdef enum:
    FILES_WAIT_NS = 20000000

cdef int64_t REFUSAL_NS = 100000000  # after a job found no free file descriptor, the log rejects appends for this long


cdef bint is_short_of_files(int result) noexcept nogil:
    return result == -EMFILE or result == -ENFILE


cdef bint wait_for_files(int result, int *rounds_left) noexcept nogil:
    if not is_short_of_files(result) or rounds_left[0] <= 0:
        return False
    rounds_left[0] -= 1
    io_pause(FILES_WAIT_NS)
    return True


cdef Log *log_of_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).job)


cdef int log_start_job(Log *log, int32_t state, void (*run)(Job *job) noexcept nogil,
                       void (*run_all)(Job *first) noexcept nogil, Waiter *blocked) noexcept nogil:
    cdef int32_t before = log.state
    if log.refuse_until_ns and log.clock.monotonic_ns(log.clock.self) < log.refuse_until_ns:
        return KAFKA_STORAGE_ERROR
    log.refuse_until_ns = 0
    memset(&log.job, 0, sizeof(Job))
    log.job.run = run
    log.job.run_all = run_all
    log.state = state
    log.hold(log)
    if io_submit(log.dir, &log.job) < 0:
        # The directory is being closed, or no thread can be started now.
        log.state = before
        log.release(log)
        return NOT_LEADER_OR_FOLLOWER
    log_block(log, blocked)
    return LOG_BLOCKED


cdef void log_end_job(Log *log, int32_t before, int result) noexcept nogil:
    if result < 0 and not is_short_of_files(result):
        log_fail(log, -result)
    else:
        if result < 0:
            mutex_lock(&log.lock)
            if log.state == LOG_OPENING or log.state == LOG_ROLLING:
                log.state = before
            log.refuse_until_ns = log.clock.monotonic_ns(log.clock.self) + REFUSAL_NS
            mutex_unlock(&log.lock)
        log_wake_blocked(log, WAKE_READY)
    log.release(log)
