"""Collects rows of records, and turns them into a finished Arrow record batch."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.columns.arrow cimport ArrowArray, ArrowSchema, Blob, Shared

cdef enum ColumnBit:             # in the order of the columns
    KEY = 1
    VALUE = 2
    TOPIC = 4
    PARTITION = 8
    OFFSET = 16
    TIMESTAMP = 32
    TIMESTAMP_TYPE = 64
    HEADERS = 128
    ALL_COLUMNS = 255

cdef enum:
    ROW_BYTES = 32               # bytes counted for each row in addition to its key, value and headers
    MICROSECONDS = 1000          # microseconds in a millisecond
    HEADER_ENTRY_BYTES = 8       # bytes counted for each header in addition to its name and value

# The rows of one Arrow batch. Only one thread at a time may use them.
ctypedef struct Rows:
    int wanted                   # the `ColumnBit` of each column that is collected
    int64_t count
    int64_t size_bytes           # bytes of keys, values and headers, plus ROW_BYTES for each row
    int64_t first_offset
    int64_t last_offset
    Blob keys
    Blob values
    Writer offsets               # int64
    Writer timestamps            # int64, microseconds
    Writer types                 # int32
    Writer lists                 # int32: the index at which the headers of each row begin
    Writer lists_valid
    int64_t lists_null
    Blob names
    Blob contents

ctypedef struct Row:             # one record; a size below 0 means null
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers       # the same as `RecordView.headers` (record.pxd)
    int64_t offset
    int64_t timestamp_ms
    int32_t key_size
    int32_t value_size
    int32_t headers_size
    int32_t header_count
    int32_t timestamp_type

cdef void rows_init(Rows *rows, int wanted) noexcept nogil
cdef void rows_free(Rows *rows) noexcept nogil
# Adds a row. Returns BATCH_OK, BATCH_BAD_RECORD or BATCH_NO_MEMORY. After an error, the caller must free the rows.
cdef int rows_add(Rows *rows, const Row *row) noexcept nogil
# Returns the number of bytes that `rows_add` would add to `size_bytes`.
cdef int64_t row_bytes(const Rows *rows, const Row *row) noexcept nogil

# Creates the columns whose value is the same in every row: topic and partition, for at most `rows` rows. Returns NULL
# if no memory is left.
cdef Shared *constant_columns(const char *topic, int64_t topic_size, int32_t partition, int64_t rows) noexcept nogil


cdef inline int64_t microseconds(int64_t timestamp_ms) noexcept nogil:
    """Returns a time in microseconds, or the nearest value that 64 bits can hold."""
    if timestamp_ms > INT64_MAX // MICROSECONDS:
        return INT64_MAX
    if timestamp_ms < -(INT64_MAX // MICROSECONDS):
        return INT64_MIN
    return timestamp_ms * MICROSECONDS


cdef class ArrowRows:
    cdef ArrowArray array
    cdef ArrowSchema schema
    cdef readonly int64_t num_rows
    cdef readonly int64_t nbytes
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset

# Moves the rows into an `ArrowRows`; afterwards `rows` is empty. `most` is the `rows` argument of `constant_columns`.
# Raises MemoryError.
cdef ArrowRows finished_rows(Rows *rows, const Shared *constants, int64_t most)
