"""Scans the batches of a file, one after the other. The file is a segment or a snapshot of the metadata log.

A scan reads large blocks of the file, and passes each batch to the caller as a whole, so that the caller can check and
decode it. A scan waits for the disk. Only one thread at a time may use it. Like Kafka's FileLogInputStream, a scan ends
at a batch that is not completely in the file. If some bytes cannot be a batch, the scan reports damage.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.record.record cimport BatchHeader

cdef enum ScanStatus:
    SCAN_BATCH = 1
    SCAN_END = 0
    SCAN_DAMAGED = -1    # `Scan.damage` has the kind of damage: a `BatchStatus` (record.pxd)
    SCAN_FAILED = -2     # `Scan.error` is an errno

ctypedef struct Scan:
    const Disk *disk
    int file             # -1 if not open
    int error
    int damage
    uint8_t *block
    int64_t capacity
    int64_t start        # the position of the block in the file
    int64_t held         # the number of bytes in the block
    int64_t position     # the position of the batch that `scan_next` returned last
    int64_t next         # the position at which the next batch begins
    int64_t end          # the position at which the scan stops

cdef void scan_init(Scan *scan, const Disk *disk) noexcept nogil
# Opens a file. If `max_bytes` is negative, the scan covers the whole file. Returns 0 or -errno.
cdef int scan_open(Scan *scan, const char *path, int64_t max_bytes) noexcept nogil
cdef void scan_close(Scan *scan) noexcept nogil
# Reads the next whole batch. `data` is valid until the next call. If the magic byte is above 2, reads the header as if
# the magic byte were 2, as Kafka does. Returns a `ScanStatus`.
cdef int scan_next(Scan *scan, BatchHeader *header, const uint8_t **data) noexcept nogil


# Faults of a batch that `BatchStatus` does not have.
cdef enum BatchFault:
    FAULT_OFFSETS = 1        # the offsets of its records do not increase, or are not within the batch's offsets
    FAULT_TIMESTAMP = 2      # its greatest timestamp differs from the greatest timestamp of its records


cdef class BatchScan:
    cdef Scan scan
    cdef BatchHeader header
    cdef const uint8_t *at_hand
    cdef readonly str path
    # Moves to the next batch. Returns False after the last batch. Raises if the scan failed or found damage.
    cdef bint advance(self) except -1
    # Checks the current batch. Returns BATCH_OK or BATCH_BAD_CRC. In a `RecordScan` (record_scan.pxd), also checks the
    # records, and can return any `BatchStatus` or `BatchFault`.
    cdef int fault_of_batch(self) noexcept nogil
