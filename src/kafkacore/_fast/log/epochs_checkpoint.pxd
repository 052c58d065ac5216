"""The file leader-epoch-checkpoint of an open log, which lists where each leader epoch begins. A thread of the I/O pool
(io.pxd) writes the file soon after the log's list of epochs has changed.

Call both functions with `Log.lock` held.
"""

from kafkacore._fast.log.log cimport Log

# Returns whether the file lacks epochs that must be written now. If the last segment has stayed closed since the load,
# epochs without records need not be written.
cdef bint log_epochs_wanted(const Log *log) noexcept nogil
# Submits a job that writes the file, if `log_epochs_wanted` returns True.
cdef void log_save_epochs(Log *log) noexcept nogil
