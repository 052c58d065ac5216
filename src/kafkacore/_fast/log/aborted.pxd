"""Which aborted transactions a reader of committed records must be told of (KIP-98; LogSegment.collectAbortedTxns)."""

from libc.stdint cimport int64_t

from kafkacore._fast.log.log cimport Log
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.log.txn_index cimport AbortedTransaction

# Whether a read from `offset` on may meet records of one; most logs have none at all. Never blocks.
cdef bint log_may_be_aborted(Log *log, int64_t offset) noexcept nogil
# Those that overlap what was read from `offset` on, malloc'ed, and how many; -errno. Pool threads: reads files.
cdef int64_t log_aborted(Log *log, int64_t offset, const ReadResult *found, AbortedTransaction **into) noexcept nogil
