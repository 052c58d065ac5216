"""Makes columns from the buffers of Python objects. column.pxd has the contract."""

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkacore._fast.schema.schema cimport ARRAY, FLOAT64, INT64, STRUCT, UUID, Op

import array

cdef dict NUMBER_FORMATS = {code: code.islower() for code in "bBhHiIlLqQ?"}


cdef class Columns:
    def __cinit__(self, int32_t column_count, bint writable):
        self.columns = <Column *> calloc(column_count + 1, sizeof(Column))
        self.buffers = calloc(2 * column_count + 2, sizeof(Py_buffer))
        self.bases = <int64_t *> calloc(column_count + 1, sizeof(int64_t))
        self.count = -1
        self.writable = writable
        self.alive = []
        if self.columns == NULL or self.buffers == NULL or self.bases == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.buffer_count):
            PyBuffer_Release(&(<Py_buffer *> self.buffers)[i])
        free(self.buffers)
        free(self.bases)
        free(self.columns)

    cdef int rows(self, str name, int64_t count) except -1:
        if self.count >= 0 and count != self.count:
            raise ValueError(f"{name} has {count} rows, but the columns before it have {self.count}")
        self.count = count
        return 0

    cdef int add(self, const Op *op, object value) except -1:
        cdef Column *column = &self.columns[op.offset]
        cdef str name = op.name.decode()
        if op.kind == STRUCT or (op.kind == ARRAY and op.element > UUID):
            raise ValueError(f"{name} is not flat, so a row cannot hold it")
        if op.kind == ARRAY:
            return self.add_lists(op, name, column, value)
        if isinstance(value, list) and op.kind > UUID:
            column.form = FORM_OBJECTS
            column.objects = <void *> value
            self.objects = True
            self.alive.append(value)
            self.bases[op.offset] = len(value)
            return self.rows(name, len(value)) if not self.writable else 0
        # A bytes object of 16 bytes is one uuid. A longer bytes object is a column of uuids.
        if not self.writable and (value is None or isinstance(value, (int, float, str, bytes))) and not (
                op.kind == UUID and isinstance(value, bytes) and len(value) != 16):
            return self.add_scalar(op, name, column, value)
        return self.add_numbers(op, name, column, value)

    cdef int add_scalar(self, const Op *op, str name, Column *column, object value) except -1:
        column.form = FORM_SCALAR
        if op.kind <= INT64:
            column.number = value
            return 0
        if op.kind == FLOAT64:
            kept = array.array("d", [value]).tobytes()
            memcpy(&column.number, <const char *> kept, 8)
            return 0
        if value is None:
            column.slice.size = -1
            return 0
        kept = value.encode() if isinstance(value, str) else bytes(value)
        if op.kind == UUID and len(kept) != 16:
            raise ValueError(f"{name}: 16 bytes are expected, not {value!r}")
        self.alive.append(kept)
        column.slice.data = <const uint8_t *> <const char *> kept
        column.slice.size = <int32_t> len(kept)
        return 0

    cdef int add_numbers(self, const Op *op, str name, Column *column, object value) except -1:
        cdef Py_buffer *view = take_buffer(self, value)
        column.data = <uint8_t *> view.buf
        column.stride = view.strides[0] if view.ndim else 0
        if op.kind == UUID:
            column.form = FORM_UUIDS
            if view.ndim == 1 and view.itemsize == 1 and column.stride == 1:
                if view.shape[0] % 16:
                    raise ValueError(f"{name}: rows of 16 bytes are expected, not {view.shape[0]} bytes")
                column.stride = 16
                return self.rows(name, view.shape[0] // 16)
            if not (view.ndim == 2 and view.itemsize == 1 and view.shape[1] == 16 and view.strides[1] == 1) and not (
                    view.ndim == 1 and view.itemsize == 16):
                raise ValueError(f"{name}: rows of 16 bytes are expected")
            return self.rows(name, view.shape[0])
        if op.kind > UUID or view.ndim != 1:
            raise ValueError(f"{name}: {'a list' if op.kind > UUID else 'one dimension of numbers'} is expected")
        column.form = FORM_NUMBERS
        number_format(name, view, op.kind == FLOAT64, &column.width, &column.is_signed)
        return self.rows(name, view.shape[0])

    cdef int add_lists(self, const Op *op, str name, Column *column, object value) except -1:
        cdef Py_buffer *view
        counts = None
        if value is None or (isinstance(value, tuple) and not value):
            column.form = FORM_SCALAR
            column.number = -1 if value is None else 0
            return 0
        if isinstance(value, tuple):
            value, counts = value
        view = take_buffer(self, value)
        column.form = FORM_LISTS
        column.data = <uint8_t *> view.buf
        if view.ndim < 2 or (op.element == UUID and not (
                view.ndim == 3 and view.itemsize == 1 and view.shape[2] == 16 and view.strides[2] == 1)):
            raise ValueError(f"{name}: {'(rows, room, 16) bytes' if op.element == UUID else '(rows, room)'} expected")
        if op.element != UUID:
            number_format(name, view, op.element == FLOAT64, &column.width, &column.is_signed)
        column.stride, column.step = view.strides[0], view.strides[1]
        if view.shape[1] > 0xFFFF:
            raise ValueError(f"{name}: a row has room for {view.shape[1]} elements, and at most 65535 are allowed")
        column.room = <int32_t> view.shape[1]
        self.rows(name, view.shape[0])
        if counts is None:
            if op.element == UUID or op.element == FLOAT64:
                raise ValueError(f"{name}: this column needs a column of counts")
            return 0
        view = take_buffer(self, counts)
        if view.ndim != 1:
            raise ValueError(f"{name}: counts have one dimension")
        self.rows(name, view.shape[0])
        column.counts, column.counts_stride = <uint8_t *> view.buf, view.strides[0]
        number_format(name, view, False, &column.counts_width, NULL)
        return 0


cdef Py_buffer *take_buffer(Columns columns, object value) except NULL:
    cdef Py_buffer *view = &(<Py_buffer *> columns.buffers)[columns.buffer_count]
    PyObject_GetBuffer(value, view, PyBUF_STRIDES | PyBUF_FORMAT | (PyBUF_WRITABLE if columns.writable else 0))
    columns.buffer_count += 1
    return view


cdef int number_format(str name, const Py_buffer *view, bint real, int32_t *width, uint8_t *is_signed) except -1:
    code = "B" if view.format == NULL else (<bytes> view.format).decode().lstrip("@=<")
    if code != "d" if real else code not in NUMBER_FORMATS:
        raise ValueError(f"{name}: {'float64' if real else 'integers'} are expected, not {code!r}")
    width[0] = <int32_t> view.itemsize
    if is_signed != NULL:
        is_signed[0] = real or NUMBER_FORMATS[code]
    return 0
