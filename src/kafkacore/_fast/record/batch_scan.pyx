"""Implements batch_scan.pxd: scans the batches of a file. `BatchScan` is the Python interface."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.cursor cimport be32
from kafkacore._fast.world.environment cimport Disk, Env, env_real
from kafkacore._fast.record.record cimport (
    BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK, BATCH_SHORT,
    HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT, BatchHeader, batch_checksum, last_offset, parse_header,
)

from kafkacore._fast.record.batch import REASONS as STATUS_REASONS
from kafkacore._fast.record.batch import CorruptBatchError

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY, O_CLOEXEC

cdef enum:
    BLOCK_BYTES = 1 << 18        # small enough to stay in the cache of a core between the copy and the checksum
    LEAST_LENGTH = 14            # no batch of any magic is shorter: LegacyRecord.RECORD_OVERHEAD_V0
    HEADER_TO_MAGIC_BYTES = 17   # Kafka ignores the rest of a file if it is not larger than this
    ROWS_AT_ONCE = 1 << 16

cdef Env REAL
env_real(&REAL)


cdef void scan_init(Scan *scan, const Disk *disk) noexcept nogil:
    memset(scan, 0, sizeof(Scan))
    scan.disk = disk
    scan.file = -1


cdef int scan_open(Scan *scan, const char *path, int64_t max_bytes) noexcept nogil:
    cdef int64_t size
    scan.file = scan.disk.open(scan.disk.self, path, O_RDONLY | O_CLOEXEC, 0)
    if scan.file < 0:
        return scan.file
    size = scan.disk.size(scan.disk.self, scan.file)
    if size < 0:
        return <int> size
    scan.end = size if max_bytes < 0 or max_bytes > size else max_bytes
    return 0


cdef void scan_close(Scan *scan) noexcept nogil:
    if scan.file >= 0:
        scan.disk.close(scan.disk.self, scan.file)
        scan.file = -1
    free(scan.block)
    scan.block = NULL
    scan.capacity = scan.held = 0


cdef const uint8_t *bring(Scan *scan, int64_t at, int64_t size) noexcept nogil:
    """Returns the `size` bytes of the file at `at`. All of them must be below `end`. Returns NULL, and sets `error`,
    after a failure."""
    cdef uint8_t *block
    cdef int64_t wanted, got
    if at >= scan.start and at + size <= scan.start + scan.held:
        return scan.block + (at - scan.start)
    wanted = size if size > BLOCK_BYTES else BLOCK_BYTES
    if wanted > scan.capacity:
        block = <uint8_t *> realloc(scan.block, <size_t> wanted)
        if block == NULL:
            scan.error = ENOMEM
            return NULL
        scan.block = block
        scan.capacity = wanted
    wanted = scan.end - at if scan.end - at < wanted else wanted
    scan.start = at
    scan.held = 0
    got = scan.disk.pread(scan.disk.self, scan.file, scan.block, <size_t> wanted, at)
    if got < size:
        scan.error = <int> -got if got < 0 else EIO  # the file has become shorter since it was opened
        return NULL
    scan.held = got
    return scan.block


cdef int read_header(const uint8_t *p, int64_t available, BatchHeader *header) noexcept nogil:
    """Like `parse_header`, but treats a magic byte above 2 as 2."""
    cdef uint8_t raw[HEADER_BYTES]
    cdef int status = parse_header(p, <size_t> available, header)
    if status != BATCH_BAD_MAGIC or p[MAGIC_AT] > 0x7F or available < HEADER_BYTES:
        return status
    memcpy(raw, p, HEADER_BYTES)
    raw[MAGIC_AT] = 2
    status = parse_header(raw, HEADER_BYTES, header)
    header.magic = p[MAGIC_AT]
    return status


cdef int scan_next(Scan *scan, BatchHeader *header, const uint8_t **data) noexcept nogil:
    cdef int64_t left = scan.end - scan.next
    cdef int64_t available = left if left < HEADER_BYTES else HEADER_BYTES
    cdef int64_t length
    cdef const uint8_t *p
    cdef int status
    scan.position = scan.next
    data[0] = NULL
    if left <= HEADER_TO_MAGIC_BYTES:
        return SCAN_END
    p = bring(scan, scan.next, available)
    if p == NULL:
        return SCAN_FAILED
    length = <int32_t> be32(p + 8)
    if length >= LEAST_LENGTH and length + LOG_OVERHEAD > left:
        return SCAN_END
    status = read_header(p, available, header)
    if status == BATCH_SHORT:
        status = BATCH_BAD_LENGTH  # the batch is shorter than a header of its magic
    if status != BATCH_OK:
        scan.damage = status
        return SCAN_DAMAGED
    p = bring(scan, scan.next, header.size_bytes)
    if p == NULL:
        return SCAN_FAILED
    data[0] = p
    scan.next += header.size_bytes
    return SCAN_BATCH


# --- the Python interface ---

ctypedef packed struct Row:
    int64_t position
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t size_bytes
    int32_t partition_leader_epoch
    int32_t record_count
    int8_t magic
    int8_t fault


REASONS = STATUS_REASONS | {
    BATCH_BAD_RECORD: "a record of the batch is malformed",
    BATCH_NO_MEMORY: "there is no memory for the batch",
    FAULT_OFFSETS: "the offsets of its records do not grow from its first offset to its last",
    FAULT_TIMESTAMP: "its greatest timestamp does not match its records",
}

ROW = [  # the numpy dtype of the rows that BatchScan.rows returns
    ("position", "<i8"), ("base_offset", "<i8"), ("last_offset", "<i8"), ("max_timestamp", "<i8"),
    ("size_bytes", "<i4"), ("partition_leader_epoch", "<i4"), ("record_count", "<i4"), ("magic", "i1"), ("fault", "i1"),
]


cdef class BatchScan:
    """The batches of one file, from its start."""

    def __cinit__(self, *args, **kwargs):
        scan_init(&self.scan, &REAL.disk)

    def __init__(self, path, int64_t max_bytes=-1):
        cdef int result
        cdef bytes name = os.fsencode(path)
        cdef const char *raw = PyBytes_AS_STRING(name)
        self.path = os.fsdecode(path)
        with nogil:
            result = scan_open(&self.scan, raw, max_bytes)
        if result < 0:
            raise OSError(-result, os.strerror(-result), self.path)

    def __dealloc__(self):
        scan_close(&self.scan)

    def close(self):
        scan_close(&self.scan)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        scan_close(&self.scan)

    @property
    def position(self):
        """The position where the scan continues, or where it found damage."""
        return self.scan.next

    @property
    def batch_position(self):
        """The position of the batch that was scanned last."""
        return self.scan.position

    @property
    def base_offset(self):
        """The base offset of the batch that was scanned last."""
        return self.header.base_offset

    @property
    def size(self):
        """The number of bytes to scan, from the file's start."""
        return self.scan.end

    @property
    def left(self):
        """The number of bytes that have not been returned yet. After the last whole batch, this is the size of the
        incomplete batch at the end."""
        return self.scan.end - self.scan.next

    @property
    def damage(self):
        """The damage that ended the scan, as a key of `REASONS`. 0 for none."""
        return self.scan.damage

    @property
    def fault(self):
        """The fault of the last returned batch, as a key of `REASONS`. 0 for a batch without a fault."""
        if self.at_hand == NULL or self.scan.file < 0:
            raise ValueError("the scan has returned no batch, or is closed")
        return self.fault_of_batch()

    cdef bint advance(self) except -1:
        cdef int status
        if self.scan.file < 0:
            raise ValueError("the scan is closed")
        with nogil:
            status = scan_next(&self.scan, &self.header, &self.at_hand)
        if status < 0:
            self.refuse(status)
        return status == SCAN_BATCH

    cdef int fault_of_batch(self) noexcept nogil:
        return BATCH_OK if batch_checksum(self.at_hand, self.header.size_bytes) == self.header.crc else BATCH_BAD_CRC

    def refuse(self, int status):
        """Raises the error for a negative status."""
        if status == SCAN_DAMAGED:
            raise CorruptBatchError(f"{self.path}: byte {self.scan.next}: {REASONS[self.scan.damage]}")
        raise OSError(self.scan.error, os.strerror(self.scan.error), self.path)

    @property
    def data(self):
        """The bytes of the last returned batch."""
        if self.at_hand == NULL or self.scan.file < 0:
            raise ValueError("the scan has returned no batch, or is closed")
        return PyBytes_FromStringAndSize(<const char *> self.at_hand, self.header.size_bytes)

    def batch_at(self, int64_t position, int64_t max_bytes):
        """Returns base and last offset of the batch at `position`, or None if no whole batch of at most `max_bytes`
        begins there. The scan continues at `position`. Raises CorruptBatchError and OSError.
        """
        cdef int64_t end = self.scan.end
        cdef bint found
        if not 0 <= position <= end:
            return None
        self.scan.next = position
        self.at_hand = NULL
        if end - position > max_bytes:
            self.scan.end = position + max_bytes
        try:
            found = self.advance()
        finally:
            self.scan.end = end
        return (self.header.base_offset, last_offset(&self.header)) if found else None

    def seek(self, int64_t position):
        """Continues the scan at `position`, where a batch must begin."""
        if not 0 <= position <= self.scan.end:
            raise ValueError(f"position {position} is not within the {self.scan.end} bytes to scan")
        self.scan.next = position
        self.at_hand = NULL

    def sound(self, int64_t max_bytes):
        """Returns the bytes of the next batches without a fault, as batch_scan.pyi describes."""
        cdef bytes block = PyBytes_FromStringAndSize(NULL, max_bytes)
        cdef uint8_t *into = <uint8_t *> PyBytes_AS_STRING(block)
        cdef int64_t held = 0
        cdef int status = SCAN_BATCH
        if self.scan.file < 0:
            raise ValueError("the scan is closed")
        with nogil:
            while True:
                status = scan_next(&self.scan, &self.header, &self.at_hand)
                if status != SCAN_BATCH or held + self.header.size_bytes > max_bytes or self.fault_of_batch():
                    break
                memcpy(into + held, self.at_hand, <size_t> self.header.size_bytes)
                held += self.header.size_bytes
        if held:
            if status == SCAN_BATCH:
                self.scan.next = self.scan.position
            return memoryview(block)[:held]
        if status < 0:
            self.refuse(status)
        if status == SCAN_END:
            return None
        return memoryview(b"" if self.fault_of_batch() else self.data)

    def rows(self):
        """Returns the headers of the next batches, as an array of `ROW` entries in one bytes object. This object is
        empty after the last batch. The rows end before damage, and the next call raises CorruptBatchError or OSError.
        """
        cdef bytes block = PyBytes_FromStringAndSize(NULL, ROWS_AT_ONCE * sizeof(Row))
        cdef Row *row = <Row *> PyBytes_AS_STRING(block)
        cdef int status = SCAN_BATCH
        cdef int64_t count = 0
        if self.scan.file < 0:
            raise ValueError("the scan is closed")
        with nogil:
            while count < ROWS_AT_ONCE:
                status = scan_next(&self.scan, &self.header, &self.at_hand)
                if status != SCAN_BATCH:
                    break
                fill_row(&row[count], &self.header, self.scan.position, self.fault_of_batch())
                count += 1
        if status < 0 and count == 0:
            self.refuse(status)
        return block[:count * sizeof(Row)]


cdef void fill_row(Row *row, const BatchHeader *header, int64_t position, int fault) noexcept nogil:
    row.position = position
    row.base_offset = header.base_offset
    row.last_offset = last_offset(header)
    row.max_timestamp = header.max_timestamp
    row.size_bytes = header.size_bytes
    row.partition_leader_epoch = header.partition_leader_epoch
    row.record_count = header.record_count
    row.magic = header.magic
    row.fault = <int8_t> fault
