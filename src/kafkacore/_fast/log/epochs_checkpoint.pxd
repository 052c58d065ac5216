"""The leader-epoch-checkpoint file of an open log: a pool thread writes it soon after the entries change.

Both functions under the lock.
"""

from kafkacore._fast.log.log cimport Log

# Whether the file lacks entries that are worth a sync.
cdef bint log_epochs_wanted(const Log *log) noexcept nogil
# Writes the file soon if it lacks such entries.
cdef void log_save_epochs(Log *log) noexcept nogil
