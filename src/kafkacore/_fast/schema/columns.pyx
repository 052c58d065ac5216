"""Converts rows to columns, and columns to rows. columns.pxd has the contract.

A column is any object with the buffer protocol (array.array, numpy, memoryview). Its integers may have any width that
can hold the values. numpy itself is not needed. The type of a field decides the dimensions of its column:

- numbers: one dimension. uuid: `(rows, 16)` bytes, or one dimension of bytes. string, bytes: a list.
- arrays of numbers: `(rows, room)`, where a row ends before its first negative number; or a pair of such an array and a
  column of counts, in which -1 means null. Arrays of uuid: a pair of `(rows, room, 16)` bytes and counts.
- any field: a single value for all rows. For an array field, this value must be None or ().

A field without a column has its default in every row.
"""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kafkacore._fast.schema.column cimport (
    FORM_LISTS, FORM_NUMBERS, FORM_OBJECTS, FORM_UUIDS, Column, Columns, set_number_at,
)
from kafkacore._fast.base.cursor cimport (
    Writer, be16, be32, be64, reader_init, remaining, reserve, writer_detach, writer_free, writer_init,
)
from kafkacore._fast.schema.object_sink cimport Encoded
from kafkacore._fast.schema.row_write cimport MAX_TAGGED, Selection, put_rows
from kafkacore._fast.schema.schema cimport (
    DEFAULT_NULL, FAULT_COUNT, FAULT_NONE, FAULT_NO_ROOM, FAULT_RANGE, FAULT_TEXT, FAULT_VERSION, FLOAT64, INT16, INT32,
    INT64, STRING, UINT16, UUID, WALK_FAILED, Layout, Op, Shape, Sink, Walk, compile_message, fixed_width,
)
from kafkacore._fast.schema.walk cimport fault_text, raise_fault, walk_begin, walk_read

import array

from kafkacore._fast.schema import tables
from kafkacore._fast.base.errors import ProtocolError, UnsupportedVersionError

cdef extern from "Python.h" nogil:
    void PyErr_Clear()

cdef enum:
    MAX_ROWS_BYTES = 0x7FFFFFFF
    TYPICAL_ROW = 64            # an estimate in bytes


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
    """Stores the number of elements of a row. Without a column of counts, stores -1 after the last element. Then a null
    array and an empty array look the same."""
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


# The next functions skip structs and arrays of strings, bytes or structs, for which rows have no columns.
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
        """Creates a codec for rows of `struct`, a struct of the message `name`. Without `struct`, a row is the whole
        message.

        Raises KeyError, UnsupportedVersionError.
        """
        message = tables.message(name)
        self.name, self.struct, self.version = name, struct or name, version
        structs = message.structs()
        self.places = {field.name: place for place, field in enumerate(structs[self.struct])}
        self.column_count = <int32_t> len(self.places)
        # The walk skips the fields of other structs. All these fields share one column, which callers never pass.
        nowhere = self.column_count
        layouts = {other: Layout(other, {field.name: nowhere for field in structs[other]}) for other in structs}
        layouts[self.struct] = Layout(self.struct, self.places)
        self.shape = find_shape(compile_message(message, version, layouts), self.struct)
        if self.shape == NULL:
            raise KeyError(f"{name} {version} has no {self.struct}")
        if self.shape.tagged_count > MAX_TAGGED:
            raise ValueError(f"{self.struct} has more than {MAX_TAGGED} tagged fields")

    def encode(self, dict columns, rows=None, const uint8_t[::1] prefix=None):
        """Returns `(bytes, ends)`. `bytes` has the encoded rows one after another, each with `prefix` in front of it.
        `ends` is an `array('q')` with the end of each row.

        `rows` is a column of row numbers; the default is all rows in order. Raises ValueError if the columns have
        different numbers of rows. For bad values, raises ProtocolError and UnsupportedVersionError, as a message's
        `encode` does. The text of the error names the row.
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
        """Returns the rows as an `Encoded` array of structs (object_sink.pxd). A message of this version accepts an
        `Encoded` in place of a list."""
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
        """Returns an `Encoded` that owns the writer's block."""
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
        # The writer starts with one large block. If it grew by doubling instead, half a megabyte would be copied
        # several times.
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
            raise IndexError(f"{self.struct}: selected row {row} does not exist")
        message = f"{self.struct}.{at.name.decode()} of row {row}: {fault_text(fault)}"
        raise UnsupportedVersionError(message) if fault == FAULT_VERSION else ProtocolError(message)

    def decode(self, const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] ends, dict columns):
        """Fills `columns` with the messages at `data[starts[i]:ends[i]]`, one for each row.

        Columns must be writable and have one row for each message. If a column is a list, values are appended to it. A
        field without a column is skipped. If this version lacks a field, the field's column gets the default. Raises
        ProtocolError if a message cannot be decoded; the text names its row. Raises ValueError if a column has a wrong
        type or size.
        """
        cdef Columns given = self.columns(columns, True)
        cdef int64_t row
        if starts.shape[0] != ends.shape[0]:
            raise ValueError(f"there are {starts.shape[0]} starts, but {ends.shape[0]} ends")
        if given.count >= 0 and given.count != ends.shape[0]:
            raise ValueError(f"columns have {given.count} rows, but {ends.shape[0]} messages are to be read")
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
        walk.room = INT64_MAX  # no limit is needed, because the walk writes only into the given columns
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
        """Appends the default to each list that has got no value for this row. A value is missing if the version lacks
        the field, or if the message leaves out a tagged field that has its default."""
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
    """Fills `selection` from `rows`. Returns the object that owns the row numbers. The caller must keep this object
    alive."""
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
    """Stores the defaults of the fields that a row may lack."""
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
