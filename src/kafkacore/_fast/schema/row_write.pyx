"""Writes rows as bytes. row_write.pxd has the contract."""

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kafkacore._fast.schema.column cimport (
    FORM_DEFAULT, FORM_NUMBERS, FORM_OBJECTS, FORM_SCALAR, FORM_UUIDS, Column, int32_at, number_at,
)
from kafkacore._fast.base.cursor cimport (
    Writer, put16, put32, put64, put_uvarlong, reserve, uvarlong_size, write_raw,
)
from kafkacore._fast.base.raw_python cimport (
    Py_None, PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE, PyList_GET_ITEM, PyUnicode_AsUTF8AndSize,
    PyUnicode_Check,
)
from kafkacore._fast.schema.schema cimport (
    ARRAY, BOOL, COMPACT, DEFAULT_NULL, FAULT_COUNT, FAULT_NO_ROOM, FAULT_NONE, FAULT_NULL, FAULT_PYTHON, FAULT_RANGE,
    FAULT_TOO_LONG, FAULT_VERSION, FLOAT64, IGNORABLE, INT8, INT16, INT32, INT64, MAX_STRING, NULLABLE, STRING, UINT16,
    UUID, Op, Shape, Slice, fixed_width,
)

cdef enum:
    MAX_BYTES = 0x7FFFFFFF
    NUMBER_ROOM = 32            # enough for any number, uuid or length, together with its tag and size


cdef inline uint8_t *room(Writer *w, uint8_t *at, size_t size) noexcept nogil:
    """Makes room for `size` bytes at `at`, which is the end of the written bytes. If these bytes do not fit, sets the
    writer's `bad` and returns NULL."""
    w.size = at - w.data if at != NULL else w.size
    if w.bad or reserve(w, size) == NULL:
        return NULL
    w.size -= size
    return w.data + w.size


cdef inline int32_t list_count(const Column *column, int64_t row) noexcept nogil:
    """Returns the number of elements in a row. Returns -1 for null. Returns a number below -1 if the count exceeds the
    room of the row."""
    cdef int64_t count
    cdef const uint8_t *at
    cdef int32_t i
    if column.form == FORM_SCALAR:
        return <int32_t> column.number
    if column.counts != NULL:
        count = number_at(column.counts + row * column.counts_stride, column.counts_width, True)
        return <int32_t> count if -1 <= count <= column.room else -2
    at = column.data + row * column.stride
    if column.width == 4:
        for i in range(column.room):
            if int32_at(at + i * column.step) < 0:
                return i
        return column.room
    for i in range(column.room):
        if number_at(at + i * column.step, column.width, column.is_signed) < 0:
            return i
    return column.room


cdef inline uint8_t *put_number(uint8_t *p, int kind, int64_t value, int *fault) noexcept nogil:
    if kind == INT32:
        put32(p, <uint32_t> value)
        if value != <int32_t> value:
            fault[0] = FAULT_RANGE
        return p + 4
    if kind == INT64 or kind == FLOAT64:
        put64(p, <uint64_t> value)
        return p + 8
    if kind == INT16 or kind == UINT16:
        put16(p, <uint16_t> value)
        if value != (<int64_t> <int16_t> value if kind == INT16 else <int64_t> <uint16_t> value):
            fault[0] = FAULT_RANGE
        return p + 2
    p[0] = <uint8_t> (value != 0) if kind == BOOL else <uint8_t> value
    if kind == INT8 and value != <int8_t> value:
        fault[0] = FAULT_RANGE
    return p + 1


cdef inline uint8_t *put_length(uint8_t *p, const Op *op, int kind, int32_t size) noexcept nogil:
    if op.flags & COMPACT:
        if 0 <= size < 127:
            p[0] = <uint8_t> (size + 1)
            return p + 1
        return put_uvarlong(p, <uint64_t> (<int64_t> size + 1))
    if kind == STRING:
        put16(p, <uint16_t> size)
        return p + 2
    put32(p, <uint32_t> size)
    return p + 4


cdef inline int64_t number_of(const Op *op, const Column *column, int64_t row) noexcept nogil:
    if column.form == FORM_NUMBERS:
        return number_at(column.data + row * column.stride, column.width, column.is_signed)
    return column.number if column.form == FORM_SCALAR else op.default_int


cdef inline int32_t count_of(const Op *op, const Column *column, int64_t row) noexcept nogil:
    if column.form == FORM_DEFAULT:
        return -1 if op.flags & DEFAULT_NULL else 0
    return list_count(column, row)


cdef Slice slice_of(const Op *op, const Column *column, int64_t row, int *fault) noexcept nogil:
    cdef Slice found = op.default_data
    cdef PyObject *value
    cdef Py_ssize_t size = 0
    if column.form == FORM_SCALAR:
        return column.slice
    if column.form != FORM_OBJECTS:
        return found
    value = PyList_GET_ITEM(<PyObject *> column.objects, row)
    found.data = NULL
    found.size = -1
    if value == Py_None:
        return found
    if op.kind == STRING and PyUnicode_Check(value):
        found.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(value, &size)
    elif op.kind != STRING and PyBytes_Check(value):
        found.data = <const uint8_t *> PyBytes_AS_STRING(value)
        size = PyBytes_GET_SIZE(value)
    if found.data == NULL or size > MAX_BYTES:
        fault[0] = FAULT_PYTHON
        return found
    found.size = <int32_t> size
    return found


cdef inline const uint8_t *uuid_of(const Column *column, int64_t row) noexcept nogil:
    """Returns the uuid of a row, or NULL for the zero uuid."""
    if column.form == FORM_UUIDS:
        return column.data + row * column.stride
    return column.slice.data if column.form == FORM_SCALAR else NULL


cdef uint8_t *put_list(uint8_t *p, const Op *op, const Column *column, int64_t row, int32_t count,
                       int *fault) noexcept nogil:
    """Writes the elements of a list. The caller must have made room for all elements."""
    cdef const uint8_t *at = column.data + row * column.stride
    cdef int32_t i
    if op.element == INT32 and column.width == 4:
        for i in range(count):
            put32(p, <uint32_t> int32_at(at + i * column.step))
            p += 4
    elif op.element == UUID:
        for i in range(count):
            memcpy(p, at + i * column.step, 16)
            p += 16
    else:
        for i in range(count):
            p = put_number(p, op.element, number_at(at + i * column.step, column.width, column.is_signed), fault)
    return p


cdef inline uint8_t *put_field(Writer *w, uint8_t *p, const Op *op, const Column *column, int64_t row,
                               int *fault) noexcept nogil:
    """Writes one field at `p` and returns the end of the field. The caller must have made room for NUMBER_ROOM bytes at
    `p`. The returned position again has room for NUMBER_ROOM bytes."""
    cdef const uint8_t *uuid
    cdef Slice slice
    cdef int32_t count
    if op.kind <= FLOAT64:
        return room_after(w, put_number(p, op.kind, number_of(op, column, row), fault))
    if op.kind == UUID:
        uuid = uuid_of(column, row)
        if uuid == NULL:
            memset(p, 0, 16)
        else:
            memcpy(p, uuid, 16)
        return room_after(w, p + 16)
    if op.kind == ARRAY:
        count = count_of(op, column, row)
        if count < 0 and not (count == -1 and op.flags & NULLABLE):
            fault[0] = FAULT_NULL if count == -1 else FAULT_COUNT
            return p
        p = put_length(p, op, ARRAY, count)
        if count > 0:
            p = room(w, p, <size_t> count * fixed_width(op.element) + NUMBER_ROOM)
            if p == NULL:
                return NULL
            p = put_list(p, op, column, row, count, fault)
        return room_after(w, p)
    slice = slice_of(op, column, row, fault)
    if fault[0] or (slice.size < 0 and not op.flags & NULLABLE) or (op.kind == STRING and slice.size > MAX_STRING):
        if fault[0] == FAULT_NONE:
            fault[0] = FAULT_NULL if slice.size < 0 else FAULT_TOO_LONG
        return p
    p = put_length(p, op, op.kind, slice.size)
    if slice.size > 0:
        p = room(w, p, <size_t> slice.size + NUMBER_ROOM)
        if p == NULL:
            return NULL
        memcpy(p, slice.data, slice.size)
        p += slice.size
    return room_after(w, p)


cdef inline uint8_t *room_after(Writer *w, uint8_t *p) noexcept nogil:
    return p if w.capacity - <size_t> (p - w.data) >= NUMBER_ROOM else room(w, p, NUMBER_ROOM)


cdef bint is_usual(const Op *op, const Column *column, int64_t row, int *fault) noexcept nogil:
    """Returns whether the field has its default in this row."""
    cdef const uint8_t *uuid
    cdef Slice slice
    cdef int i
    if column.form == FORM_DEFAULT:
        return True
    if op.kind <= FLOAT64:
        return number_of(op, column, row) == op.default_int
    if op.kind == ARRAY:
        return count_of(op, column, row) == (-1 if op.flags & DEFAULT_NULL else 0)
    if op.kind == UUID:
        uuid = uuid_of(column, row)
        if uuid != NULL:
            for i in range(16):
                if uuid[i]:
                    return False
        return True
    slice = slice_of(op, column, row, fault)
    if slice.size != op.default_data.size:
        return False
    for i in range(max(slice.size, 0)):
        if slice.data[i] != op.default_data.data[i]:
            return False
    return True


cdef inline int64_t field_size(const Op *op, const Column *column, int64_t row, int *fault) noexcept nogil:
    """Returns the number of bytes that put_field writes for this field. This number is written in front of a tagged
    field."""
    cdef int64_t count
    if op.kind <= UUID:
        return fixed_width(op.kind)
    if op.kind == ARRAY:
        count = count_of(op, column, row)
        return uvarlong_size(<uint64_t> (count + 1)) + max(count, <int64_t> 0) * fixed_width(op.element)
    count = slice_of(op, column, row, fault).size
    return uvarlong_size(<uint64_t> (count + 1)) + max(count, <int64_t> 0)


cdef uint8_t *put_tagged(Writer *w, uint8_t *p, const Shape *shape, const Column *columns, int64_t row, const Op **at,
                         int *fault) noexcept nogil:
    cdef const Op *op
    cdef int32_t i
    cdef int32_t count = 0
    cdef uint64_t present = 0
    for i in range(shape.tagged_count):
        op = &shape.tagged[i]
        if not is_usual(op, &columns[op.offset], row, fault):
            present |= <uint64_t> 1 << i
            count += 1
    p[0] = <uint8_t> count
    p += 1
    for i in range(shape.tagged_count):
        if not present >> i & 1:
            continue
        op = at[0] = &shape.tagged[i]
        p = put_uvarlong(p, <uint64_t> op.tag)
        p = put_uvarlong(p, <uint64_t> field_size(op, &columns[op.offset], row, fault))
        p = room_after(w, p)
        if p == NULL:
            return NULL
        p = put_field(w, p, op, &columns[op.offset], row, fault)
        if p == NULL or fault[0]:
            return p
    return room_after(w, p)


cdef int put_row(Writer *w, const Shape *shape, const Column *columns, int64_t row, const Op **at) noexcept nogil:
    """Writes one row. Returns 0 or a fault. After a fault, `at` is the field."""
    cdef uint8_t *p = room(w, NULL, NUMBER_ROOM)
    cdef const Op *op
    cdef int fault = FAULT_NONE
    cdef int32_t i
    if p == NULL:
        return FAULT_NO_ROOM
    for i in range(shape.op_count):
        op = &shape.ops[i]
        p = put_field(w, p, op, &columns[op.offset], row, &fault)
        if p == NULL or fault:
            at[0] = op
            return fault if fault else FAULT_NO_ROOM
    for i in range(shape.absent_count):
        op = &shape.absent[i]
        if not op.flags & IGNORABLE and not is_usual(op, &columns[op.offset], row, &fault):
            at[0] = op
            return FAULT_VERSION
    if shape.flexible:
        p = put_tagged(w, p, shape, columns, row, at, &fault)
        if p == NULL or fault:
            return fault if fault else FAULT_NO_ROOM
    w.size = p - w.data
    return FAULT_NONE


cdef int put_rows(Writer *w, const Shape *shape, const Column *columns, const Selection *selection, int64_t rows,
                  const uint8_t *prefix, size_t prefix_size, int64_t *ends, int64_t *failed,
                  const Op **at) noexcept nogil:
    """Writes all selected rows. `ends` may be NULL."""
    cdef int64_t i, row
    cdef int fault
    for i in range(selection.count):
        row = i if selection.rows == NULL else number_at(selection.rows + i * selection.stride, selection.width, True)
        if row < 0 or row >= rows:
            failed[0] = i
            at[0] = NULL
            return FAULT_RANGE
        if prefix_size:
            write_raw(w, prefix, prefix_size)
        fault = put_row(w, shape, columns, row, at)
        if fault:
            failed[0] = row
            return fault
        if ends != NULL:
            ends[i] = <int64_t> w.size
    return FAULT_NONE
