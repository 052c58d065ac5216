"""Jobs that run on threads of the I/O pool (io.pxd) and have exclusive use of a log's files. A job opens a log, opens
the log's last segment for appends again, or rolls the log. "The lock" is `Log.lock`.

If no file descriptor is free (EMFILE, ENFILE), such a job changes nothing, and the directory stays online. For a short
time the log then rejects appends with KAFKA_STORAGE_ERROR, and clients retry them.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.io cimport Job
from kafkacore._fast.wait.park cimport Waiter

# Call this under the lock. Sets the state and submits the job, which holds a reference to the log until `log_end_job`.
# Returns LOG_BLOCKED if the job will run soon. In that case, the job wakes the waiter `blocked`, which may be NULL.
# Otherwise nothing has changed, and the result is an error that clients retry. If `run_all` is not NULL, it runs the
# jobs of many logs at once.
cdef int log_start_job(Log *log, int32_t state, void (*run)(Job *job) noexcept nogil,
                       void (*run_all)(Job *first) noexcept nogil, Waiter *blocked) noexcept nogil
# Call this without the lock, at the end of the job. Wakes the blocked appends and releases the log. `result` is 0 if
# the job has set the new state. If `result` says that no file descriptor was free, restores `before`, the state that
# the log had before the job. Any other negative `result` takes the directory offline.
cdef void log_end_job(Log *log, int32_t before, int result) noexcept nogil
cdef Log *log_of_job(Job *job) noexcept nogil


cdef enum:
    FILES_ROUNDS = 1500   # a step is repeated at most this many times: every 20 ms, for 30 s

cdef bint is_short_of_files(int result) noexcept nogil  # -EMFILE or -ENFILE
# Returns whether to repeat a step that must not be left half done. If `result` says that no file descriptor was free,
# and rounds are left, sleeps until the next round and returns True.
cdef bint wait_for_files(int result, int *rounds_left) noexcept nogil
