"""Writes flat structs from columns.

This is a loop of its own beside the walker. A row has no structs inside, so the loop needs no frames; with 10,000
partitions in a Metadata answer each nanosecond of a row counts.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.schema.column cimport Column
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.schema.schema cimport Op, Shape

cdef enum:
    MAX_TAGGED = 64             # fields of a struct

# The rows of a call: all, or those that a column of row numbers names.
ctypedef struct Selection:
    const uint8_t *rows         # NULL: all, in order
    int32_t width
    Py_ssize_t stride
    int64_t count

# 0, or a fault with the row in `failed` and the field in `at` (NULL: the row number itself is wrong). `rows` is the
# number of rows; `ends` may be NULL. It needs the GIL only where a column is a list.
cdef int put_rows(Writer *w, const Shape *shape, const Column *columns, const Selection *selection, int64_t rows,
                  const uint8_t *prefix, size_t prefix_size, int64_t *ends, int64_t *failed,
                  const Op **at) noexcept nogil
