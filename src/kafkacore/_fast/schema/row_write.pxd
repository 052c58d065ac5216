"""Writes structs without nested structs (rows) from columns (column.pxd).

The loop in this module does for such structs what the walker (walk.pxd) does for all structs. The loop is faster,
because it keeps no stack of nested structs. That matters for example in a Metadata response with 10,000 partitions.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.schema.column cimport Column
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.schema.schema cimport Op, Shape

cdef enum:
    MAX_TAGGED = 64             # a struct has at most this many tagged fields

# Selects the rows that a call writes: all rows, or the rows that a column of row numbers lists.
ctypedef struct Selection:
    const uint8_t *rows         # row numbers; if NULL, the call writes all rows in order
    int32_t width
    Py_ssize_t stride
    int64_t count

# Writes the selected rows. Returns 0 or a `Fault` (schema.pxd). After a fault, `failed` has the row and `at` has the
# field, or NULL if the row number itself is wrong. `rows` is the number of rows in the columns. `ends` may be NULL. The
# caller must hold the GIL if a column is a list.
cdef int put_rows(Writer *w, const Shape *shape, const Column *columns, const Selection *selection, int64_t rows,
                  const uint8_t *prefix, size_t prefix_size, int64_t *ends, int64_t *failed,
                  const Op **at) noexcept nogil
