"""The leader-epoch-checkpoint file of an open log. A pool thread writes the file soon after the entries have changed.

Call both functions with the lock held.
"""

from kafkacore._fast.log.log cimport Log

# Returns whether the file lacks entries that must be written now. If the last segment has stayed closed since the load,
# epochs without records need not be written.
cdef bint log_epochs_wanted(const Log *log) noexcept nogil
# Submits a job that writes the file, if log_epochs_wanted returns True.
cdef void log_save_epochs(Log *log) noexcept nogil
