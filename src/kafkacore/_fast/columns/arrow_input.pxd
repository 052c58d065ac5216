"""Reads an Arrow record batch that a caller passes through the PyCapsule interface.

The arrays come from a library in this process, so this module trusts their offsets and sizes. It checks the types of
the columns. The rows stay valid as long as the `ArrowInput` exists. Only one thread at a time may use an `ArrowInput`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.columns.arrow cimport ArrowArray, ArrowSchema

cdef enum ColumnKind:
    ABSENT = 0
    BYTES = 1                    # binary or text
    INT32 = 2
    TIME = 3
    LIST = 4

ctypedef struct Column:
    int kind
    bint is_null                 # whether the column has Arrow's type null: every row is null, whatever the kind
    bint is_large                # whether the offsets have 64 bits
    const uint8_t *valid         # NULL if no row is null
    const void *numbers          # offsets or values
    const uint8_t *data
    int64_t offset               # index of row 0 in the buffers
    int64_t numerator            # a time becomes milliseconds as time * numerator / denominator
    int64_t denominator


cdef inline bint is_valid(const Column *column, int64_t row) noexcept nogil:
    row += column.offset
    return not column.is_null and (column.valid == NULL or column.valid[row // 8] >> (row % 8) & 1)


cdef inline int64_t bounds(const Column *column, int64_t row, int64_t *start) noexcept nogil:
    """Returns the size of a row's bytes or list. Sets `start` to the position of the first byte or element."""
    row += column.offset
    if column.is_large:
        start[0] = (<const int64_t *> column.numbers)[row]
        return (<const int64_t *> column.numbers)[row + 1] - start[0]
    start[0] = (<const int32_t *> column.numbers)[row]
    return (<const int32_t *> column.numbers)[row + 1] - start[0]


cdef inline int64_t bytes_of(const Column *column, int64_t row, const uint8_t **data) noexcept nogil:
    """Returns the size of a row's bytes, or -1 if the row is null or the column is absent. Sets `data` to the bytes."""
    cdef int64_t start, size
    data[0] = NULL
    if column.kind == ABSENT or not is_valid(column, row):
        return -1
    size = bounds(column, row, &start)
    data[0] = column.data + start
    return size


cdef class ArrowInput:
    cdef object schema_capsule
    cdef object array_capsule
    cdef readonly int64_t num_rows
    cdef Column key
    cdef Column value
    cdef Column topic
    cdef Column partition
    cdef Column timestamp
    cdef Column headers
    cdef Column entries          # the structs in the lists of headers
    cdef Column names
    cdef Column contents
    cdef bind(self, ArrowSchema *schema, ArrowArray *array, int64_t offset)
    cdef bint bind_headers(self, ArrowSchema *schema, ArrowArray *array, int64_t offset)
