"""Converts headers of record batches to Arrow columns. batch_columns.pyi has the contract."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, strlen

from kafkacore._fast.base.atomics cimport add64
from kafkacore._fast.base.cursor cimport Writer, reserve, writer_detach, writer_free, writer_init
from kafkacore._fast.columns.arrow cimport (
    MOST_DATA_BYTES, ArrowArray, ArrowSchema, Blob, Shared, array_borrow, array_init, array_own, blob_add, blob_export,
    blob_free, blob_init, mark_null, schema_init, shared_release,
)
from kafkacore._fast.columns.rows cimport ArrowRows, constant_columns, microseconds
from kafkacore._fast.record.record cimport (
    BATCH_NO_MEMORY, BATCH_OK, BATCH_SHORT, BatchHeader, batch_checksum, batch_codec, is_control,
    is_transactional, last_offset, parse_header, timestamp_type,
)

from kafkacore._fast.record.batch import REASONS

BATCH_COLUMNS = (
    "file", "position", "baseOffset", "lastOffset", "leaderEpoch", "producerId", "producerEpoch", "baseSequence",
    "recordCount", "baseTimestamp", "maxTimestamp", "timestampType", "magic", "sizeBytes", "crc", "codec", "crcOk",
    "control", "transactional",
)

cdef enum:
    COLUMN_COUNT = 19
    FILE_COLUMN = 0
    CODEC_COLUMN = 15
    CRC_OK_COLUMN = 16
    FIRST_FLAG = 16
    MOST_ROWS = 1 << 20
    MOST_NAME_BYTES = 1000
    NO_TIMESTAMP_TYPE = -1

# The name and the Arrow format of each column.
cdef const char **NAMES = [
    "file", "position", "baseOffset", "lastOffset", "leaderEpoch", "producerId", "producerEpoch", "baseSequence",
    "recordCount", "baseTimestamp", "maxTimestamp", "timestampType", "magic", "sizeBytes", "crc", "codec", "crcOk",
    "control", "transactional",
]
cdef const char **FORMATS = [
    "u", "l", "l", "l", "i", "l", "i", "i", "i", "tsu:UTC", "tsu:UTC", "i", "i", "i", "l", "u", "b", "b", "b",
]
cdef const char **CODECS = ["none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown"]


@cython.final
cdef class BatchColumns:
    """See batch_columns.pyi."""

    cdef Shared *constants
    cdef Writer columns[COLUMN_COUNT]
    cdef Blob codecs
    cdef int64_t max_rows
    cdef int64_t count
    cdef int64_t first_offset
    cdef int64_t last
    cdef bint check_crcs
    cdef int status              # BATCH_OK, or the reason why `feed` stopped

    def __cinit__(self, *args, **kwargs):
        self.constants = NULL
        for i in range(COLUMN_COUNT):
            writer_init(&self.columns[i], MOST_DATA_BYTES)
        blob_init(&self.codecs)

    def __init__(self, str file, int64_t max_rows=10_000, *, bint check_crcs=True):
        cdef bytes name = file.encode("utf-8", "replace")
        if self.constants != NULL:
            raise TypeError("a decoder can be initialized only once")
        if not 1 <= max_rows <= MOST_ROWS:
            raise ValueError(f"max_rows is {max_rows}, and must be from 1 to {MOST_ROWS}")
        if len(name) > MOST_NAME_BYTES:
            raise ValueError(f"the file's name has {len(name)} bytes, and at most {MOST_NAME_BYTES} are allowed")
        self.max_rows = max_rows
        self.check_crcs = check_crcs
        self.constants = constant_columns(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), 0, max_rows)
        if self.constants == NULL:
            raise MemoryError

    def __dealloc__(self):
        self.drop()
        shared_release(self.constants)

    cdef void drop(self) noexcept nogil:
        cdef int i
        for i in range(COLUMN_COUNT):
            writer_free(&self.columns[i])
            writer_init(&self.columns[i], MOST_DATA_BYTES)
        blob_free(&self.codecs)
        self.count = 0

    @property
    def damage(self):
        return None if self.status in (BATCH_OK, BATCH_SHORT) else REASONS[self.status]

    def feed(self, data, int64_t position):
        cdef Py_buffer view
        cdef int64_t used
        if self.constants == NULL:
            raise TypeError("the decoder is not initialized")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            used = self.add_all(<const uint8_t *> view.buf, view.len, position)
        PyBuffer_Release(&view)
        if self.status == BATCH_NO_MEMORY:
            self.drop()
            raise MemoryError
        return used

    cdef int64_t add_all(self, const uint8_t *data, int64_t size, int64_t position) noexcept nogil:
        cdef BatchHeader header
        cdef int64_t at = 0
        self.status = BATCH_OK
        while self.count < self.max_rows:
            self.status = parse_header(data + at, <size_t> (size - at), &header)
            if self.status == BATCH_OK and header.size_bytes > size - at:
                self.status = BATCH_SHORT
            if self.status != BATCH_OK:
                break
            if self.add(&header, data + at, position + at) < 0:
                self.status = BATCH_NO_MEMORY
                break
            at += header.size_bytes
        return at

    cdef int add(self, const BatchHeader *header, const uint8_t *data, int64_t position) noexcept nogil:
        """Adds a row. Returns -1 if no memory is left."""
        cdef bint new = header.magic == 2
        cdef int type = NO_TIMESTAMP_TYPE if header.magic == 0 else timestamp_type(header)
        cdef const char *codec = CODECS[batch_codec(header)]
        cdef bint sound = self.check_crcs and batch_checksum(data, header.size_bytes) == header.crc
        cdef int bad = put64(&self.columns[1], position)
        bad |= put64(&self.columns[2], header.base_offset) | put64(&self.columns[3], last_offset(header))
        bad |= put32(&self.columns[4], header.partition_leader_epoch if new else -1)
        bad |= put64(&self.columns[5], header.producer_id if new else -1)
        bad |= put32(&self.columns[6], header.producer_epoch if new else -1)
        bad |= put32(&self.columns[7], header.base_sequence if new else -1)
        bad |= put32(&self.columns[8], header.record_count)
        bad |= put64(&self.columns[9], microseconds(header.base_timestamp))
        bad |= put64(&self.columns[10], microseconds(header.max_timestamp))
        bad |= put32(&self.columns[11], type) | put32(&self.columns[12], header.magic)
        bad |= put32(&self.columns[13], header.size_bytes) | put64(&self.columns[14], header.crc)
        bad |= blob_add(&self.codecs, <const uint8_t *> codec, <int32_t> strlen(codec))
        bad |= self.flag(0, sound) | self.flag(1, is_control(header)) | self.flag(2, is_transactional(header))
        if self.count == 0:
            self.first_offset = header.base_offset
        self.last = last_offset(header)
        self.count += 1
        return bad

    cdef int flag(self, int number, bint is_set) noexcept nogil:
        cdef Writer *bits = &self.columns[FIRST_FLAG + number]
        cdef uint8_t *more
        if self.count % 8 == 0:
            more = reserve(bits, 1)
            if more == NULL:
                return -1
            more[0] = 0
        if is_set:
            bits.data[self.count // 8] |= 1 << (self.count % 8)
        return 0

    def take(self):
        cdef ArrowRows made
        cdef int failed
        if self.count == 0:
            return None
        made = ArrowRows.__new__(ArrowRows)
        made.num_rows = self.count
        made.first_offset = self.first_offset
        made.last_offset = self.last
        with nogil:
            failed = batch_schema(&made.schema)
            if not failed:
                failed = self.export(&made.array)
            self.drop()
        if failed:
            raise MemoryError
        return made

    cdef int export(self, ArrowArray *array) noexcept nogil:
        cdef ArrowArray *child
        cdef const int32_t *numbers = <const int32_t *> self.constants.blocks[0]
        cdef int i
        if array_init(array, self.count, 0, 1, COLUMN_COUNT, NULL) < 0:
            return -1
        for i in range(COLUMN_COUNT):
            child = array.children[i]
            if i == FILE_COLUMN:
                add64(&self.constants.count, 1)
                if array_init(child, self.count, 0, 3, 0, self.constants) < 0:
                    return -1
                array_borrow(child, 1, numbers + self.max_rows)
                array_borrow(child, 2, self.constants.blocks[1])
            elif i == CODEC_COLUMN:
                if blob_export(&self.codecs, child) < 0:
                    return -1
            else:
                if array_init(child, self.count, 0, 2, 0, NULL) < 0:
                    return -1
                if i == CRC_OK_COLUMN and not self.check_crcs and self.all_null(child) < 0:
                    return -1
                array_own(child, 1, writer_detach(&self.columns[i]))
        return 0

    cdef int all_null(self, ArrowArray *child) noexcept nogil:
        cdef Writer bits
        cdef int64_t row
        writer_init(&bits, MOST_DATA_BYTES)
        for row in range(self.count):
            if mark_null(&bits, row) < 0:
                writer_free(&bits)
                return -1
        child.null_count = self.count
        array_own(child, 0, writer_detach(&bits))
        return 0


cdef inline int put64(Writer *out, int64_t value) noexcept nogil:
    cdef uint8_t *p = reserve(out, sizeof(int64_t))
    if p == NULL:
        return -1
    memcpy(p, &value, sizeof(int64_t))
    return 0


cdef inline int put32(Writer *out, int32_t value) noexcept nogil:
    cdef uint8_t *p = reserve(out, sizeof(int32_t))
    if p == NULL:
        return -1
    memcpy(p, &value, sizeof(int32_t))
    return 0


cdef int batch_schema(ArrowSchema *schema) noexcept nogil:
    cdef int i
    if schema_init(schema, "+s", "", COLUMN_COUNT) < 0:
        return -1
    schema.flags = 0
    for i in range(COLUMN_COUNT):
        if schema_init(schema.children[i], FORMATS[i], NAMES[i], 0) < 0:
            return -1
    return 0
