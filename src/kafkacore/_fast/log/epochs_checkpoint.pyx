"""Implements epochs_checkpoint.pxd: the leader-epoch-checkpoint file of an open log."""

from libc.stddef cimport size_t
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock
from kafkacore._fast.log.files cimport write_epochs
from kafkacore._fast.log.jobs cimport is_short_of_files
from kafkacore._fast.log.log cimport (
    EPOCHS_EMPTY, EPOCHS_SAVED, LOG_OPEN, LOG_ROLLING, log_fail, log_wake_blocked,
)
from kafkacore._fast.wait.io cimport Job, io_submit
from kafkacore._fast.wait.park cimport WAKE_READY


cdef Log *log_of_epochs_job(Job *job) noexcept nogil:
    return <Log *> (<char *> job - <size_t> &(<Log *> NULL).epochs_job)


cdef bint log_epochs_wanted(const Log *log) noexcept nogil:
    # A log whose last segment is still sealed has had no append since its load. Such a log does not write epochs
    # without records. Otherwise a node that restarts would sync two files per partition, for epochs that it drops at
    # the next start.
    cdef bint at_rest = log.active != NULL and load32(&log.active.sealed) != 0
    return log.epochs_dirty != EPOCHS_SAVED and not (log.epochs_dirty == EPOCHS_EMPTY and at_rest)


cdef void log_save_epochs(Log *log) noexcept nogil:
    # When a log is being opened, this file is written together with the log's other files. Entries that are added
    # meanwhile are written when the log is open.
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
    if result < 0 and not is_short_of_files(result):
        log_fail(log, -result)
    mutex_lock(&log.lock)
    log.epochs_job_queued = False
    if result == 0:
        log_save_epochs(log)  # the entries may have changed during the write
    mutex_unlock(&log.lock)
    log_wake_blocked(log, WAKE_READY)
    log.release(log)
