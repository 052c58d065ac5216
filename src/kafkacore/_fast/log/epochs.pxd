"""The start offset of each leader epoch of a log (KIP-101, KIP-279, KIP-320; LeaderEpochFileCache). `Log.lock` guards
these entries.

Each change of the entries sets `Log.epochs_dirty`. Then a thread of the I/O pool writes the file
`leader-epoch-checkpoint` (epochs_checkpoint.pxd). The file is not written while it lacks only epochs without records
and no append has happened since the load. This saves many writes, because each restart adds two such epochs to every
partition.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.log cimport Log

# Notes that the records of `epoch` begin at `start_offset`, and removes entries that contradict this. Returns 0 or
# -ENOMEM.
cdef int epochs_assign(Log *log, int32_t epoch, int64_t start_offset) noexcept nogil
cdef void epochs_truncate_end(Log *log, int64_t end_offset) noexcept nogil
# Drops the entries that start at or above `end_offset`, the log end offset. Such entries have no records. Only a load
# calls this.
cdef void epochs_drop_empty(Log *log, int64_t end_offset) noexcept nogil
cdef void epochs_truncate_start(Log *log, int64_t start_offset) noexcept nogil
cdef int32_t epochs_latest(const Log *log) noexcept nogil  # -1 if the log has no entries
# The epoch of the record at `offset`; -1 if unknown.
cdef int32_t epochs_at(const Log *log, int64_t offset) noexcept nogil
# Finds the largest epoch that is at most `epoch`, and the offset at which it ends. Both results are -1 if `epoch` is
# above all epochs of the log. If `epoch` is below all epochs, the results are `epoch` itself and the start offset of
# the first entry. (In Kafka: LeaderEpochFileCache.endOffsetFor.)
cdef void epochs_end(const Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil
cdef void epochs_write(const Log *log, Writer *out) noexcept nogil  # writes the text of the file
# Parses the text of the file into an empty list of entries. Returns 0, -EINVAL or -ENOMEM.
cdef int epochs_read(Log *log, const char *text, int64_t size) noexcept nogil
