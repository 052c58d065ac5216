"""The batches of a file, one after the other: segments, and snapshots of the metadata log.

A scan reads large blocks and keeps each batch whole in memory, so that the caller can check and decode it. One thread
at a time; blocking. A scan ends like Kafka's FileLogInputStream: at a batch for which the file is too short. Bytes that
cannot be a batch are damage.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.record.record cimport BatchHeader

cdef enum ScanStatus:
    SCAN_BATCH = 1
    SCAN_END = 0
    SCAN_DAMAGED = -1    # Scan.damage has the kind of damage: a BatchStatus
    SCAN_FAILED = -2     # Scan.error is an errno

ctypedef struct Scan:
    const Disk *disk
    int file             # -1: not open
    int error
    int damage
    uint8_t *block
    int64_t capacity
    int64_t start        # of the block in the file
    int64_t held         # bytes in it
    int64_t position     # of the batch that scan_next returned last
    int64_t next         # where the next one begins
    int64_t end          # the scan stops here

cdef void scan_init(Scan *scan, const Disk *disk) noexcept nogil
# 0 or -errno. `max_bytes` below 0: the whole file.
cdef int scan_open(Scan *scan, const char *path, int64_t max_bytes) noexcept nogil
cdef void scan_close(Scan *scan) noexcept nogil
# The next whole batch; `data` is valid until the next call. For a magic byte above 2 it gives the header of magic 2, as
# Kafka reads it. Returns a ScanStatus.
cdef int scan_next(Scan *scan, BatchHeader *header, const uint8_t **data) noexcept nogil


# Faults of a batch that no BatchStatus names.
cdef enum BatchFault:
    FAULT_OFFSETS = 1        # its records' offsets do not grow from the first to the last of the batch
    FAULT_TIMESTAMP = 2      # its greatest timestamp differs from that of its records


cdef class BatchScan:
    cdef Scan scan
    cdef BatchHeader header
    cdef const uint8_t *at_hand
    cdef readonly str path
    # Whether there is a batch. Raises when the scan failed or found damage.
    cdef bint advance(self) except -1
    # Checks the current batch: BATCH_OK or BATCH_BAD_CRC; a scan of records gives any BatchStatus or BatchFault.
    cdef int fault_of_batch(self) noexcept nogil
