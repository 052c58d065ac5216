"""Rows from and to columns. Contract in columns.pxd.

A column is any object with the buffer protocol (array.array, numpy, memoryview), of any integer width that holds the
values; numpy itself is not needed. For the fields of a struct:

- numbers: one dimension. uuid: `(rows, 16)` bytes, or flat. string, bytes: a list.
- arrays of numbers: `(rows, room)`, each row used up to its first negative number; or a pair with a column of counts,
  where -1 is null. Arrays of uuid: `(rows, room, 16)` bytes with counts.
- any field: a plain value, which all rows then have (but for arrays, where only None and () can be plain).

A field that no column is given for has its default.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kafkacore._fast.column cimport (
    FORM_DEFAULT, FORM_LISTS, FORM_NUMBERS, FORM_OBJECTS, FORM_SCALAR, FORM_UUIDS, Column, Columns, number_at,
    set_number_at,
)
from kafkacore._fast.cursor cimport (
    Writer, be16, be32, be64, put16, put32, put64, put_uvarlong, reader_init, remaining, reserve, uvarlong_size,
    write_raw, writer_detach, writer_free, writer_init,
)
from kafkacore._fast.object_sink cimport Encoded
from kafkacore._fast.schema cimport (
    ARRAY, BOOL, COMPACT, DEFAULT_NULL, FAULT_COUNT, FAULT_NONE, FAULT_NO_ROOM, FAULT_NULL, FAULT_PYTHON, FAULT_RANGE,
    FAULT_TEXT, FAULT_TOO_LONG, FAULT_VERSION, FLOAT64, IGNORABLE, INT8, INT16, INT32, INT64, MAX_STRING, NULLABLE,
    STRING, UINT16, UUID, WALK_FAILED, Layout, Op, Shape, Sink, Slice, Walk, compile_message, fixed_width,
)
from kafkacore._fast.walk cimport fault_text, raise_fault, walk_begin, walk_read

import array

from kafkacore._fast import tables
from kafkacore._fast.errors import ProtocolError, UnsupportedVersionError

cdef extern from "Python.h" nogil:
    PyObject *Py_None
    const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *)
    bint PyUnicode_Check(PyObject *)
    bint PyBytes_Check(PyObject *)
    char *PyBytes_AS_STRING(PyObject *)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *)
    PyObject *PyList_GET_ITEM(PyObject *, Py_ssize_t)
    void PyErr_Clear()

cdef enum:
    MAX_ROWS_BYTES = 0x7FFFFFFF
    MAX_TAGGED = 64
    TYPICAL_ROW = 64            # bytes, a guess
    NUMBER_ROOM = 32            # more than any number, uuid or length takes, tag and size before it included


# --- rows to bytes ---------------------------------------------------------------------------------------------------

cdef inline uint8_t *room(Writer *w, uint8_t *at, size_t size) noexcept nogil:
    """A place for `size` bytes behind `at` (which ends what is written), or NULL with the writer marked."""
    w.size = at - w.data if at != NULL else w.size
    if w.bad or reserve(w, size) == NULL:
        return NULL
    w.size -= size
    return w.data + w.size


cdef inline int32_t list_count(const Column *column, int64_t row) noexcept nogil:
    """How many elements a row has, -1 for null, below for a count that its room does not hold."""
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
            if (<const int32_t *> (at + i * column.step))[0] < 0:
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
    if found.data == NULL or size > MAX_ROWS_BYTES:
        fault[0] = FAULT_PYTHON
        return found
    found.size = <int32_t> size
    return found


cdef inline const uint8_t *uuid_of(const Column *column, int64_t row) noexcept nogil:
    """NULL for zero."""
    if column.form == FORM_UUIDS:
        return column.data + row * column.stride
    return column.slice.data if column.form == FORM_SCALAR else NULL


cdef uint8_t *put_list(uint8_t *p, const Op *op, const Column *column, int64_t row, int32_t count,
                       int *fault) noexcept nogil:
    """The elements; the place has room for all of them."""
    cdef const uint8_t *at = column.data + row * column.stride
    cdef int32_t i
    if op.element == INT32 and column.width == 4:
        for i in range(count):
            put32(p, (<const uint32_t *> (at + i * column.step))[0])
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
    """One field behind `p`. There is NUMBER_ROOM at `p`, and again at the place given back."""
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
    """Whether a row has the field's default."""
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
    """Bytes that put_field writes: the size that goes before a tagged field."""
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
    """One row; a fault with `at` telling the field, or 0."""
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
    """All selected rows; `ends` may be NULL."""
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


# --- bytes to rows: the walker's callbacks ---------------------------------------------------------------------------

ctypedef struct Filling:
    Column *columns
    int64_t row


cdef inline Column *column_of(Walk *walk, const Op *op) noexcept nogil:
    return &(<Filling *> walk.context).columns[op.offset]


cdef void put_integer(Walk *walk, void *target, const Op *op, int64_t value) noexcept nogil:
    cdef Column *column = column_of(walk, op)
    cdef int64_t row = (<Filling *> walk.context).row
    if column.form == FORM_NUMBERS:
        if not set_number_at(column.data + row * column.stride, column.width, column.is_signed, value):
            walk.fault = FAULT_RANGE


cdef void put_slice(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t size) noexcept nogil:
    cdef Column *column = column_of(walk, op)
    if column.form == FORM_UUIDS:
        memcpy(column.data + (<Filling *> walk.context).row * column.stride, data, 16)
    elif column.form == FORM_OBJECTS:
        with gil:
            append_object(walk, op.kind, <list> column.objects, data, size)


cdef void append_object(Walk *walk, int kind, list objects, const uint8_t *data, int32_t size) noexcept:
    try:
        if size < 0:
            objects.append(None)
        elif kind == STRING:
            objects.append((<const char *> data)[:size].decode())
        else:
            objects.append((<const char *> data)[:size])
    except UnicodeDecodeError:
        walk.fault = FAULT_TEXT
    except MemoryError:
        walk.fault = FAULT_NO_ROOM


cdef void put_null(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef Column *column = column_of(walk, op)
    if column.form == FORM_LISTS:
        set_count(walk, column, -1)


cdef inline void set_count(Walk *walk, Column *column, int32_t count) noexcept nogil:
    """Without a column of counts the first free place is -1; null cannot be told from empty then."""
    cdef int64_t row = (<Filling *> walk.context).row
    cdef uint8_t *at = column.data + row * column.stride
    cdef int32_t i
    if column.counts != NULL:
        if not set_number_at(column.counts + row * column.counts_stride, column.counts_width, True, count):
            walk.fault = FAULT_RANGE
    else:
        for i in range(max(count, 0), column.room):
            set_number_at(at + i * column.step, column.width, column.is_signed, -1)


cdef void put_block(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t count) noexcept nogil:
    cdef Column *column = column_of(walk, op)
    cdef uint8_t *at
    cdef int32_t size = fixed_width(op.element)
    cdef int32_t i
    if column.form != FORM_LISTS:
        return
    if count > column.room:
        walk.fault = FAULT_COUNT
        return
    at = column.data + (<Filling *> walk.context).row * column.stride
    for i in range(count):
        if op.element == UUID:
            memcpy(at + i * column.step, data + i * 16, 16)
        elif not set_number_at(at + i * column.step, column.width, column.is_signed,
                               wire_number(op.element, data + i * size)):
            walk.fault = FAULT_RANGE
    set_count(walk, column, count)


cdef inline int64_t wire_number(int kind, const uint8_t *at) noexcept nogil:
    if kind == INT32:
        return <int32_t> be32(at)
    if kind == INT64 or kind == FLOAT64:
        return <int64_t> be64(at)
    if kind == INT16:
        return <int16_t> be16(at)
    return be16(at) if kind == UINT16 else <int64_t> <int8_t> at[0]


# A field that is not flat is read past: what it holds goes nowhere.
cdef void *put_array(Walk *walk, void *target, const Op *op, int32_t count) noexcept nogil:
    return target


cdef void *put_item(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    return NULL


cdef void put_element(Walk *walk, void *items, const Op *op, int32_t index, const uint8_t *data,
                      int32_t size) noexcept nogil:
    pass


cdef void *put_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    return NULL


cdef void put_unknown(Walk *walk, void *target, uint32_t tag, const uint8_t *data, int32_t size) noexcept nogil:
    pass


# --- the codec -------------------------------------------------------------------------------------------------------

cdef class RowCodec:

    def __init__(self, str name, int version, str struct=None):
        """Of a struct within message `name`, or of the message itself. Raises KeyError, UnsupportedVersionError."""
        message = tables.message(name)
        self.name, self.struct, self.version = name, struct or name, version
        structs = message.structs()
        self.places = {field.name: place for place, field in enumerate(structs[self.struct])}
        self.column_count = <int32_t> len(self.places)
        # What another struct holds is read past: its fields all have the one column that is never given.
        nowhere = self.column_count
        layouts = {other: Layout(other, {field.name: nowhere for field in structs[other]}) for other in structs}
        layouts[self.struct] = Layout(self.struct, self.places)
        self.shape = find_shape(compile_message(message, version, layouts), self.struct)
        if self.shape == NULL:
            raise KeyError(f"{name} {version} has no {self.struct}")
        if self.shape.tagged_count > MAX_TAGGED:
            raise ValueError(f"{self.struct} has more than {MAX_TAGGED} tagged fields")

    def encode(self, dict columns, rows=None, const uint8_t[::1] prefix=None):
        """`(bytes, ends)`: the rows one after the other, each behind `prefix`, and an `array('q')` of where each ends.

        `rows` is a column of row numbers, all rows in order when not given. Raises ValueError for columns that do not
        fit each other, ProtocolError and UnsupportedVersionError for values as a message's `encode` does, with the
        row.
        """
        cdef Columns given = self.columns(columns, False)
        cdef Selection selection
        cdef Columns _owner = select(given, rows, &selection)
        cdef Writer writer
        cdef int64_t[::1] ends
        made = array.array("q", bytes(8 * selection.count))
        ends = made
        writer_init(&writer, MAX_ROWS_BYTES)
        try:
            self.put(&writer, given, &selection, prefix, &ends[0] if selection.count else NULL)
            return (<const char *> writer.data)[:writer.size] if writer.size else b"", made
        finally:
            writer_free(&writer)

    def encode_array(self, dict columns, rows=None):
        """The rows as an array of structs (message.Encoded), which a message of this version takes in place of a
        list."""
        cdef Columns given = self.columns(columns, False)
        cdef Selection selection
        cdef Columns _owner = select(given, rows, &selection)
        cdef Writer writer
        writer_init(&writer, MAX_ROWS_BYTES)
        try:
            self.put(&writer, given, &selection, None, NULL)
            return self.encoded(&writer, selection.count)
        finally:
            writer_free(&writer)

    cdef Encoded encoded(self, Writer *writer, int64_t count):
        """Takes over the writer's block."""
        cdef Encoded made = Encoded.__new__(Encoded)
        if count > MAX_ROWS_BYTES:
            raise ProtocolError(f"{count} rows are more than an array holds")
        made.message, made.struct, made.version, made.count = self.name, self.struct, self.version, <int> count
        made.size = writer.size
        made.data = writer_detach(writer)
        return made

    cdef int put(self, Writer *writer, Columns given, const Selection *selection, const uint8_t[::1] prefix,
                 int64_t *ends) except -1:
        cdef const uint8_t *before = &prefix[0] if prefix is not None and prefix.shape[0] else NULL
        cdef size_t before_size = prefix.shape[0] if prefix is not None else 0
        cdef int64_t failed = 0
        cdef int64_t rows = given.count if given.count >= 0 else selection.count
        cdef const Op *at = NULL
        cdef int fault
        # One block from the start: growing by doubling would move half a megabyte several times.
        if reserve(writer, min(selection.count * (TYPICAL_ROW + before_size), <size_t> MAX_ROWS_BYTES)) != NULL:
            writer.size = 0
        if given.objects:
            fault = put_rows(
                writer, self.shape, given.columns, selection, rows, before, before_size, ends, &failed, &at)
        else:
            with nogil:
                fault = put_rows(
                    writer, self.shape, given.columns, selection, rows, before, before_size, ends, &failed, &at)
        if fault:
            self.refuse(fault, failed, at)
        return 0

    cdef int refuse(self, int fault, int64_t row, const Op *at) except -1:
        PyErr_Clear()
        if at == NULL:
            raise IndexError(f"{self.struct}: selected row {row} is not there")
        message = f"{self.struct}.{at.name.decode()} of row {row}: {fault_text(fault)}"
        raise UnsupportedVersionError(message) if fault == FAULT_VERSION else ProtocolError(message)

    def decode(self, const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] ends, dict columns):
        """Fills `columns` with the messages at `data[starts[i]:ends[i]]`, one a row.

        Columns are writable and have as many rows; lists get their values appended. A field without a column is read
        past, one that this version does not have gets its default. Raises ProtocolError with the row, ValueError for
        columns.
        """
        cdef Columns given = self.columns(columns, True)
        cdef int64_t row
        if starts.shape[0] != ends.shape[0]:
            raise ValueError(f"{starts.shape[0]} starts and {ends.shape[0]} ends")
        if given.count >= 0 and given.count != ends.shape[0]:
            raise ValueError(f"columns have {given.count} rows, {ends.shape[0]} are read")
        for row in range(ends.shape[0]):
            if not 0 <= starts[row] <= ends[row] <= data.shape[0]:
                raise ValueError(f"row {row} is outside the data")
            self.take_row(given, row, &data[0] + starts[row], ends[row] - starts[row])

    cdef int take_row(self, Columns given, int64_t row, const uint8_t *data, size_t size) except -1:
        cdef Walk walk
        cdef Filling filling
        filling.columns, filling.row = given.columns, row
        reader_init(&walk.reader, data, size)
        walk.budget = -1
        walk.room = INT64_MAX  # nothing is made but what has a place already
        walk.context = &filling
        set_defaults(&walk, self.shape)
        walk_begin(&walk, &SINK, self.shape, NULL)
        if walk_read(&walk) == WALK_FAILED:
            try:
                raise_fault(&walk)
            except ProtocolError as error:
                raise ProtocolError(f"row {row}: {error}") from None
        if remaining(&walk.reader):
            raise ProtocolError(f"row {row}: {remaining(&walk.reader)} bytes are left over")
        if given.objects:
            self.fill_objects(given, row)
        return 0

    cdef int fill_objects(self, Columns given, int64_t row) except -1:
        """Lists that got nothing from this row: its field is not in the version, or was tagged and at its default."""
        cdef const Op *op
        cdef Column *column
        cdef int32_t i
        for i in range(self.shape.absent_count + self.shape.tagged_count):
            op = optional(self.shape, i)
            column = &given.columns[op.offset]
            if column.form == FORM_OBJECTS and len(<list> column.objects) == given.bases[op.offset] + row:
                (<list> column.objects).append(None if op.flags & DEFAULT_NULL else "" if op.kind == STRING else b"")
        return 0

    cdef Columns columns(self, dict columns, bint writable):
        cdef Columns given = Columns(self.column_count, writable)
        for name, value in columns.items():
            if name not in self.places:
                raise ValueError(f"{self.struct} has no field {name}")
            given.add(self.op(<int32_t> self.places[name]), value)
        return given

    cdef const Op *op(self, int32_t place) except NULL:
        cdef const Shape *shape = self.shape
        cdef int32_t i
        for i in range(shape.op_count):
            if shape.ops[i].offset == place:
                return &shape.ops[i]
        for i in range(shape.tagged_count):
            if shape.tagged[i].offset == place:
                return &shape.tagged[i]
        for i in range(shape.absent_count):
            if shape.absent[i].offset == place:
                return &shape.absent[i]
        raise ValueError(f"{self.struct} has no field at {place}")


cdef Columns select(Columns given, rows, Selection *selection):
    """What owns the row numbers."""
    cdef Columns chosen = None
    cdef Op number
    selection.rows = NULL
    selection.count = max(given.count, <int64_t> 0)
    if given.count < 0 and rows is None:
        raise ValueError("no column says how many rows there are")
    if rows is not None:
        chosen = Columns(1, False)
        memset(&number, 0, sizeof(Op))
        number.kind = INT64
        number.name = "rows"
        chosen.add_numbers(&number, "rows", &chosen.columns[0], rows)
        selection.rows, selection.stride = chosen.columns[0].data, chosen.columns[0].stride
        selection.width, selection.count = chosen.columns[0].width, chosen.count
    return chosen


cdef const Shape *find_shape(const Shape *shape, str name):
    cdef const Shape *found
    cdef int32_t i
    if shape.name.decode() == name:
        return shape
    for i in range(shape.op_count + shape.tagged_count):
        child = shape.ops[i].child if i < shape.op_count else shape.tagged[i - shape.op_count].child
        if child != NULL:
            found = find_shape(child, name)
            if found != NULL:
                return found
    return NULL


cdef inline const Op *optional(const Shape *shape, int32_t i) noexcept nogil:
    return &shape.absent[i] if i < shape.absent_count else &shape.tagged[i - shape.absent_count]


cdef void set_defaults(Walk *walk, const Shape *shape) noexcept:
    """Fields that a row need not bring."""
    cdef const Op *op
    cdef Column *column
    cdef int64_t row = (<Filling *> walk.context).row
    cdef int32_t i
    walk.fault = FAULT_NONE
    for i in range(shape.absent_count + shape.tagged_count):
        op = optional(shape, i)
        column = column_of(walk, op)
        if column.form == FORM_NUMBERS:
            set_number_at(column.data + row * column.stride, column.width, column.is_signed, op.default_int)
        elif column.form == FORM_UUIDS:
            memset(column.data + row * column.stride, 0, 16)
        elif column.form == FORM_LISTS:
            set_count(walk, column, -1 if op.flags & DEFAULT_NULL else 0)


cdef Sink SINK
SINK.put_integer = put_integer
SINK.put_slice = put_slice
SINK.put_null = put_null
SINK.put_block = put_block
SINK.put_array = put_array
SINK.put_item = put_item
SINK.put_element = put_element
SINK.put_struct = put_struct
SINK.put_unknown = put_unknown
