"""The leader-epoch-checkpoint file follows the epoch entries of an open log, soon and on a pool thread. Under the lock."""

from kafkacore._fast.log.log cimport Log

# Whether the file lacks entries that are worth a sync.
cdef bint log_epochs_wanted(const Log *log) noexcept nogil
# Then writes it soon.
cdef void log_save_epochs(Log *log) noexcept nogil
