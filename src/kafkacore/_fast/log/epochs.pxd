"""Where each leader epoch of a log begins (KIP-101, KIP-279, KIP-320; LeaderEpochFileCache). Under the log's lock.

Each change of the entries sets `epochs_dirty`; epochs_checkpoint writes the `leader-epoch-checkpoint` file on a pool
thread. A log at rest does not write the file while the file lacks only epochs without a record, because each restart
adds two such epochs to every partition.
"""

from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.log cimport Log

# Records of `epoch` begin at `start_offset`; removes entries that contradict this. 0 or -ENOMEM.
cdef int epochs_assign(Log *log, int32_t epoch, int64_t start_offset) noexcept nogil
cdef void epochs_truncate_end(Log *log, int64_t end_offset) noexcept nogil
# For a load: drops entries at or behind the log's end, which have no record.
cdef void epochs_drop_empty(Log *log, int64_t end_offset) noexcept nogil
cdef void epochs_truncate_start(Log *log, int64_t start_offset) noexcept nogil
cdef int32_t epochs_latest(const Log *log) noexcept nogil  # -1 when there is none
cdef int32_t epochs_at(const Log *log, int64_t offset) noexcept nogil  # the epoch of the record there; -1 when unknown
# End offset of the largest epoch at or below `epoch`; -1, -1 when unknown.
cdef void epochs_end(const Log *log, int32_t epoch, int32_t *found_epoch, int64_t *end_offset) noexcept nogil
cdef void epochs_write(const Log *log, Writer *out) noexcept nogil  # the file's text
# Parses the file's text into an empty list: 0, -EINVAL or -ENOMEM.
cdef int epochs_read(Log *log, const char *text, int64_t size) noexcept nogil
