"""The aborted transactions that a read_committed Fetch must name (KIP-98; LogSegment.collectAbortedTxns)."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.log.txn_index cimport AbortedTransaction

# Returns whether a read from `offset` can return records of an aborted transaction. For most logs the result is False.
# Never blocks.
cdef bint log_may_be_aborted(Log *log, int64_t offset) noexcept nogil
# Sets `into` to a malloc'ed array of the aborted transactions that overlap `found`, the range of bytes that a read from
# `offset` returned. Returns the number of transactions, or -errno. -ESTALE: the segment was deleted in the meantime.
# Reads files, so call this only on threads of the I/O pool (io.pxd).
cdef int64_t log_aborted(Log *log, int64_t offset, const ReadResult *found, AbortedTransaction **into) noexcept nogil
