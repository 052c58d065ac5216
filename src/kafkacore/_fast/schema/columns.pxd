"""The columns sink. One call reads many structs of the same type (rows) into arrays, or writes many such structs from
arrays. A sink is the place where the values of a message are kept (schema.pxd).

row_write.pyx writes the rows. The walker (walk.pxd) reads the rows and passes their values to this sink.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.schema.column cimport Columns
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.schema.object_sink cimport Encoded
from kafkacore._fast.schema.row_write cimport Selection
from kafkacore._fast.schema.schema cimport Op, Shape

cdef class RowCodec:
    """Encodes and decodes the rows of one struct at one version."""
    cdef readonly str name
    cdef readonly str struct
    cdef readonly int version
    cdef const Shape *shape
    cdef dict places        # field name -> its index in the array of columns
    cdef int32_t column_count

    cdef int put(self, Writer *writer, Columns given, const Selection *selection, const uint8_t[::1] prefix,
                 int64_t *ends) except -1
    cdef Encoded encoded(self, Writer *writer, int64_t count)
    cdef int refuse(self, int fault, int64_t row, const Op *at) except -1
    cdef int take_row(self, Columns given, int64_t row, const uint8_t *data, size_t size) except -1
    cdef int fill_objects(self, Columns given, int64_t row) except -1
    cdef Columns columns(self, dict columns, bint writable)
    cdef const Op *op(self, int32_t place) except NULL
