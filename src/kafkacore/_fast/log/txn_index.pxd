"""The transaction index of a segment, which lists the segment's aborted transactions (KIP-98; TransactionIndex,
AbortedTxn).

A segment without aborted transactions has no such file. The functions can block, and return 0 or -errno.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.log.producers cimport EndedTransaction
from kafkacore._fast.log.segment cimport Segment

ctypedef struct AbortedTransaction:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset

# Parses the 34 bytes of an entry. Returns 0, or -EINVAL if the entry has an unknown version.
cdef int txn_index_entry(const uint8_t *raw, AbortedTransaction *entry) noexcept nogil
# Opens the file, and creates it if it does not exist. Returns a handle that the caller must close, or -errno.
cdef int txn_index_open(Segment *segment) noexcept nogil
cdef int txn_index_write(Segment *segment, int file, const EndedTransaction *ended) noexcept nogil
cdef int txn_index_append(Segment *segment, const EndedTransaction *ended) noexcept nogil  # opens, writes and closes
cdef int txn_index_reset(Segment *segment) noexcept nogil
# Removes from the index the transactions that ended at or above `end_offset`.
cdef int txn_index_truncate(Segment *segment, int64_t end_offset) noexcept nogil
# Sets `last_offset` to the last offset of the last aborted transaction, if there is one. Returns -EINVAL if the file is
# not a transaction index.
cdef int txn_index_last(Segment *segment, int64_t *last_offset) noexcept nogil
# Reads all entries into malloc'ed memory. Returns their number, or -errno.
cdef int64_t txn_index_read(Segment *segment, AbortedTransaction **into) noexcept nogil
