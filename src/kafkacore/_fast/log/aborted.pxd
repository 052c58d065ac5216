"""The aborted transactions that a read_committed Fetch must name (KIP-98; LogSegment.collectAbortedTxns)."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.log.txn_index cimport AbortedTransaction

# Whether a read from `offset` may meet records of an aborted transaction; most logs have none. Never blocks.
cdef bint log_may_be_aborted(Log *log, int64_t offset) noexcept nogil
# The aborted transactions that overlap the range read from `offset`, malloc'ed; returns how many, or -errno. Reads
# files: pool threads only.
cdef int64_t log_aborted(Log *log, int64_t offset, const ReadResult *found, AbortedTransaction **into) noexcept nogil
