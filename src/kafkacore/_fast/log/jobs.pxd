"""Jobs on pool threads, each of which has a log's files to itself: opening, waking and rolling.

When no file descriptor is left (EMFILE, ENFILE), such a job changes nothing and no directory goes offline. For a moment
the log then refuses appends with KAFKA_STORAGE_ERROR, which clients retry.
"""

from libc.stdint cimport int32_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.wait.io cimport Job
from kafkacore._fast.wait.park cimport Waiter

# Under the lock: sets the state and submits the job, which holds a reference to the log until `log_end_job`.
# Returns LOG_BLOCKED when the job will run soon and then wake `blocked` (may be NULL). Otherwise it has changed nothing
# and returns an error that clients retry. `run_all`, if not NULL, runs the jobs of many logs at once.
cdef int log_start_job(Log *log, int32_t state, void (*run)(Job *job) noexcept nogil,
                       void (*run_all)(Job *first) noexcept nogil, Waiter *blocked) noexcept nogil
# Without the lock: wakes the blocked appends and releases the log. `result` is 0 when the job has set the new state. A
# `result` below zero takes the directory offline, except when there was no file descriptor: then the log returns to
# state `before`.
cdef void log_end_job(Log *log, int32_t before, int result) noexcept nogil
cdef Log *log_of_job(Job *job) noexcept nogil


cdef enum:
    FILES_ROUNDS = 1500   # with 20 ms between them: 30 s

cdef bint is_short_of_files(int result) noexcept nogil  # -EMFILE or -ENFILE
# For steps that can be repeated but must not stop half-way: whether to repeat them. True while `result` says that there
# was no file descriptor and rounds are left. Sleeps before the next round.
cdef bint wait_for_files(int result, int *rounds_left) noexcept nogil
