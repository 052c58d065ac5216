"""Implements the walker, which reads and writes messages for a sink. walk.pxd has the contract."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memmove

from kafkacore._fast.base.cursor cimport (
    Reader, Writer, put_uvarlong, read_i8, read_i16, read_i32, read_i64, read_uvarint, remaining, reserve, take,
    uvarlong_size, write_i8, write_i16, write_i32, write_i64, write_raw, write_uvarint,
)
from kafkacore._fast.schema.schema cimport (
    ARRAY, COMPACT, DEFAULT_NULL, FAULT_COUNT, FAULT_ELEMENTS, FAULT_LENGTH, FAULT_NO_ROOM, FAULT_NONE, FAULT_NULL,
    FAULT_PYTHON, FAULT_RANGE, FAULT_SHORT, FAULT_TAG_ORDER, FAULT_TAG_SIZE, FAULT_TEXT, FAULT_TOO_LONG, FAULT_VERSION,
    FLOAT64, IGNORABLE, INT8, INT16, INT32, INT64, MAX_STRING, NULLABLE, STRING, STRUCT, UINT16, UUID, WALK_DONE,
    WALK_FAILED, WALK_PAUSED, Frame, Op, Shape, Sink, Slice, Walk, fixed_width,
)

from kafkacore._fast.base.errors import ProtocolError, UnsupportedVersionError

cdef tuple FAULTS = (
    "no fault",
    "the bytes end inside it",
    "null, which this version does not allow",
    "a length that is negative or more than the bytes that remain",
    "a count of elements that is negative or more than the bytes that remain can hold",
    "tags that do not ascend, or more of them than the bytes that remain can hold",
    "a tagged field that is not as long as it says",
    "not UTF-8",
    "out of range for its type",
    "a string longer than 32767 bytes",
    "not its default, and this version does not have the field",
    "more bytes than the limit of this message",
    "more elements of arrays and tagged fields than a message may have",
    "not a value of its type",
)


cdef void walk_begin(Walk *walk, const Sink *sink, const Shape *shape, void *target) noexcept nogil:
    """Sets the walk to the start of `shape`. Before the call, the caller must set `reader` or `writer`, `budget` and
    `context`."""
    walk.sink = sink
    walk.fault = FAULT_NONE
    walk.depth = -1
    push(walk, shape, target)


cdef inline int push(Walk *walk, const Shape *shape, void *target) noexcept nogil:
    walk.depth += 1
    cdef Frame *frame = &walk.frames[walk.depth]
    frame.shape = shape
    frame.target = target
    frame.op = NULL
    frame.index = frame.count = 0
    frame.next = frame.next_tagged = 0
    frame.tags_left = -1
    frame.tag = -1
    frame.tag_end = NULL
    frame.tag_at = 0
    return 1


cdef int walk_read(Walk *walk) noexcept nogil:
    """Reads until the message is complete, the budget is used up, or a fault occurs."""
    cdef Frame *frame
    cdef void *item
    while walk.depth >= 0:
        frame = &walk.frames[walk.depth]
        if frame.index < frame.count:
            if walk.budget == 0:
                return WALK_PAUSED
            walk.budget -= 1
            item = walk.sink.put_item(walk, frame.items, frame.op, frame.index)
            if walk.fault:
                return WALK_FAILED
            frame.index += 1
            push(walk, frame.op.child, item)
            frame = &walk.frames[walk.depth]
        if read_fields(walk, frame):
            continue
        if walk.fault == FAULT_NONE and frame.shape.flexible and read_tags(walk, frame):
            continue
        if walk.fault:
            return WALK_FAILED
        walk.depth -= 1
    return WALK_DONE


cdef inline bint read_fields(Walk *walk, Frame *frame) noexcept nogil:
    """Reads fields, starting at the frame's position. Returns True if a field contains structs, which the walk must
    read first. If it returns False, the caller must check `fault`."""
    cdef const Op *op
    while frame.next < frame.shape.op_count:
        op = &frame.shape.ops[frame.next]
        frame.next += 1
        frame.op = op
        if read_field(walk, frame, op):
            return True
        if walk.reader.bad and walk.fault == FAULT_NONE:
            walk.fault = FAULT_SHORT
        if walk.fault:
            return False
    return False


cdef inline int64_t read_integer(Reader *r, int kind) noexcept nogil:
    if kind == INT32:
        return read_i32(r)
    if kind == INT16:
        return read_i16(r)
    if kind == INT64 or kind == FLOAT64:
        return read_i64(r)
    if kind == INT8:
        return read_i8(r)
    if kind == UINT16:
        return <uint16_t> read_i16(r)
    return read_i8(r) != 0


cdef inline bint read_field(Walk *walk, Frame *frame, const Op *op) noexcept nogil:
    """Reads one field. Returns True if the walk must read a struct or an array of structs next."""
    cdef Reader *r = &walk.reader
    cdef const uint8_t *data
    cdef int32_t size
    cdef void *child
    if op.kind <= FLOAT64:
        walk.sink.put_integer(walk, frame.target, op, read_integer(r, op.kind))
    elif op.kind == ARRAY:
        return read_array(walk, frame, op)
    elif op.kind == STRUCT:
        # The byte in front of a nullable struct is -1 if the struct is null, else 1. In a tagged field this marker is a
        # varint, and 0 means null.
        if op.flags & NULLABLE and read_i8(r) < (1 if op.tag >= 0 else 0):
            walk.sink.put_null(walk, frame.target, op)
            return False
        child = walk.sink.put_struct(walk, frame.target, op)
        if walk.fault:
            return False
        return push(walk, op.child, child)
    elif op.kind == UUID:
        data = take(r, 16)
        if data != NULL:
            walk.sink.put_slice(walk, frame.target, op, data, 16)
    else:
        size = read_size(walk, op, op.kind, op.flags & NULLABLE)
        if walk.fault == FAULT_NONE:
            walk.sink.put_slice(walk, frame.target, op, take(r, size) if size >= 0 else NULL, size)
    return False


cdef inline int32_t read_size(Walk *walk, const Op *op, int kind, bint nullable) noexcept nogil:
    """Reads the length of a string or of bytes. Checks that this many bytes remain. Returns -1 for null, if the field
    may be null."""
    cdef Reader *r = &walk.reader
    cdef int64_t size
    if op.flags & COMPACT:
        size = <int64_t> read_uvarint(r) - 1
    elif kind == STRING:
        size = read_i16(r)
    else:
        size = read_i32(r)
    if r.bad:
        walk.fault = FAULT_SHORT
    elif size == -1:
        if not nullable:
            walk.fault = FAULT_NULL
    elif size < 0 or size > <int64_t> remaining(r):
        walk.fault = FAULT_LENGTH
    elif kind == STRING and size > MAX_STRING:
        walk.fault = FAULT_TOO_LONG
    return <int32_t> size


cdef bint read_array(Walk *walk, Frame *frame, const Op *op) noexcept nogil:
    cdef Reader *r = &walk.reader
    cdef int64_t count = <int64_t> read_uvarint(r) - 1 if op.flags & COMPACT else <int64_t> read_i32(r)
    cdef void *items
    frame.index = frame.count = 0
    if r.bad:
        walk.fault = FAULT_SHORT
        return False
    if count == -1:
        if not op.flags & NULLABLE:
            walk.fault = FAULT_NULL
        else:
            walk.sink.put_null(walk, frame.target, op)
        return False
    if count < 0 or count > <int64_t> remaining(r) // op.least:
        walk.fault = FAULT_COUNT
        return False
    walk.room -= count
    if walk.room < 0:
        walk.fault = FAULT_ELEMENTS
        return False
    if op.element <= UUID:
        walk.sink.put_block(walk, frame.target, op, take(r, count * fixed_width(op.element)), <int32_t> count)
        return False
    items = walk.sink.put_array(walk, frame.target, op, <int32_t> count)
    if walk.fault or count == 0:
        return False
    frame.index = 0
    frame.count = <int32_t> count
    if op.element == STRUCT:
        frame.items = items
        return True
    read_elements(walk, frame, op, items)
    return False


cdef void read_elements(Walk *walk, Frame *frame, const Op *op, void *items) noexcept nogil:
    """Reads the elements of an array of strings or bytes. No element may be null."""
    cdef int32_t size
    while frame.index < frame.count:
        size = read_size(walk, op, op.element, False)
        if walk.fault == FAULT_NONE:
            walk.sink.put_element(walk, items, op, frame.index, take(&walk.reader, size), size)
        if walk.fault:
            return
        frame.index += 1


cdef bint read_tags(Walk *walk, Frame *frame) noexcept nogil:
    """Reads tagged fields, starting at the frame's position. While a tagged field is read, the reader's end is the end
    of the field. Returns True if a field contains structs, which the walk must read first."""
    cdef Reader *r = &walk.reader
    cdef const Op *op
    cdef uint32_t tag, size
    if frame.tags_left < 0:
        frame.op = NULL
        tag = read_uvarint(r)
        if r.bad or tag > remaining(r) // 2:
            walk.fault = FAULT_SHORT if r.bad else FAULT_TAG_ORDER
            return False
        # Unknown fields count against `room`, because the sink may keep each of them. Two bytes on the wire can then
        # take fifty times as much memory.
        walk.room -= tag
        if walk.room < 0:
            walk.fault = FAULT_ELEMENTS
            return False
        frame.tags_left = <int32_t> tag
    elif frame.tag_end != NULL and not end_tag(walk, frame):
        return False
    while frame.tags_left:
        frame.tags_left -= 1
        frame.op = NULL
        tag = read_uvarint(r)
        size = read_uvarint(r)
        if r.bad or size > remaining(r):
            walk.fault = FAULT_SHORT if r.bad else FAULT_LENGTH
            return False
        if <int64_t> tag <= frame.tag:
            walk.fault = FAULT_TAG_ORDER
            return False
        frame.tag = tag
        op = find_tagged(frame.shape, tag)
        if op == NULL:
            walk.sink.put_unknown(walk, frame.target, tag, take(r, size), <int32_t> size)
            if walk.fault:
                return False
            continue
        frame.op = op
        frame.outer_end = r.end
        frame.tag_end = r.end = r.pos + size
        if read_field(walk, frame, op):
            return True
        if walk.fault or not end_tag(walk, frame):
            return False
    return False


cdef inline bint end_tag(Walk *walk, Frame *frame) noexcept nogil:
    if walk.reader.bad or walk.reader.pos != frame.tag_end:
        walk.fault = FAULT_TAG_SIZE
        return False
    walk.reader.end = frame.outer_end
    frame.tag_end = NULL
    return True


cdef inline const Op *find_tagged(const Shape *shape, uint32_t tag) noexcept nogil:
    cdef int32_t i
    for i in range(shape.tagged_count):
        if <uint32_t> shape.tagged[i].tag == tag:
            return &shape.tagged[i]
    return NULL


cdef int walk_write(Walk *walk) noexcept nogil:
    """Writes until the message is complete, the budget is used up, or a fault occurs. If the writer has exceeded its
    limit, the walk reports a fault at its end."""
    cdef Frame *frame
    cdef void *item
    if walk.depth == 0 and walk.frames[0].next == 0 and not check_absent(walk, &walk.frames[0]):
        return WALK_FAILED
    while walk.depth >= 0:
        frame = &walk.frames[walk.depth]
        if frame.index < frame.count:
            if walk.budget == 0:
                return WALK_PAUSED
            walk.budget -= 1
            item = walk.sink.get_item(walk, frame.items, frame.op, frame.index)
            if walk.fault:
                return WALK_FAILED
            frame.index += 1
            push(walk, frame.op.child, item)
            frame = &walk.frames[walk.depth]
            if frame.shape.absent_count and not check_absent(walk, frame):
                return WALK_FAILED
        if write_fields(walk, frame):
            continue
        if walk.fault == FAULT_NONE and frame.shape.flexible and write_tags(walk, frame):
            continue
        if walk.fault:
            return WALK_FAILED
        walk.depth -= 1
    if walk.writer.bad:
        walk.depth = 0
        walk.fault = FAULT_NO_ROOM
        return WALK_FAILED
    return WALK_DONE


cdef bint check_absent(Walk *walk, Frame *frame) noexcept nogil:
    """Checks the fields that this version does not have. As in Kafka, it is an error if such a field has a value other
    than its default, unless the field is ignorable."""
    cdef const Op *op
    cdef int32_t i
    for i in range(frame.shape.absent_count):
        op = &frame.shape.absent[i]
        if not op.flags & IGNORABLE and not is_default(walk, frame.target, op):
            frame.op = op
            if walk.fault == FAULT_NONE:
                walk.fault = FAULT_VERSION
            return False
    return True


cdef bint is_default(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef Slice value
    cdef void *inner = NULL
    if op.kind <= FLOAT64:
        return walk.sink.get_integer(walk, target, op) == op.default_int
    if op.kind == ARRAY:
        return walk.sink.get_array(walk, target, op, &inner) == (-1 if op.flags & DEFAULT_NULL else 0)
    if op.kind == STRUCT:
        inner = walk.sink.get_struct(walk, target, op)
        if inner == NULL or op.flags & DEFAULT_NULL:
            return inner == NULL and op.flags & DEFAULT_NULL
        # If `child` is NULL, only the other release's table has this struct, so there is nothing to compare.
        return op.child == NULL or is_default_struct(walk, inner, op.child)
    value = walk.sink.get_slice(walk, target, op)
    if op.kind == UUID:
        return value.size == 16 and all_zero(value.data, 16)
    if value.size != op.default_data.size:
        return False
    return value.size <= 0 or same_bytes(value.data, op.default_data.data, value.size)


cdef bint is_default_struct(Walk *walk, void *target, const Shape *shape) noexcept nogil:
    cdef int32_t i
    for i in range(shape.op_count):
        if not is_default(walk, target, &shape.ops[i]):
            return False
    for i in range(shape.tagged_count):
        if not is_default(walk, target, &shape.tagged[i]):
            return False
    for i in range(shape.absent_count):
        if not is_default(walk, target, &shape.absent[i]):
            return False
    return walk.sink.count_unknown(walk, target, shape) == 0


cdef inline bint all_zero(const uint8_t *data, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        if data[i]:
            return False
    return True


cdef inline bint same_bytes(const uint8_t *a, const uint8_t *b, int32_t size) noexcept nogil:
    cdef int32_t i
    for i in range(size):
        if a[i] != b[i]:
            return False
    return True


cdef inline bint write_fields(Walk *walk, Frame *frame) noexcept nogil:
    cdef const Op *op
    while frame.next < frame.shape.op_count:
        op = &frame.shape.ops[frame.next]
        frame.next += 1
        frame.op = op
        if write_field(walk, frame, op):
            return True
        if walk.fault:
            return False
    return False


cdef inline void write_integer(Walk *walk, int kind, int64_t value) noexcept nogil:
    """Writes `value` with the width of its kind. Sets a fault if the value does not fit."""
    if kind == INT32:
        if value != <int32_t> value:
            walk.fault = FAULT_RANGE
        write_i32(walk.writer, <int32_t> value)
    elif kind == INT16:
        if value != <int16_t> value:
            walk.fault = FAULT_RANGE
        write_i16(walk.writer, <int16_t> value)
    elif kind == INT64 or kind == FLOAT64:
        write_i64(walk.writer, value)
    elif kind == UINT16:
        if value != <uint16_t> value:
            walk.fault = FAULT_RANGE
        write_i16(walk.writer, <int16_t> value)
    else:
        if value != <int8_t> value:
            walk.fault = FAULT_RANGE
        write_i8(walk.writer, <int8_t> value)


cdef inline bint write_field(Walk *walk, Frame *frame, const Op *op) noexcept nogil:
    """Writes one field. Returns True if the walk must write a struct or an array of structs next."""
    cdef Slice value
    cdef void *child
    if op.kind <= FLOAT64:
        write_integer(walk, op.kind, walk.sink.get_integer(walk, frame.target, op))
    elif op.kind == ARRAY:
        return write_array(walk, frame, op)
    elif op.kind == STRUCT:
        child = walk.sink.get_struct(walk, frame.target, op)
        if op.flags & NULLABLE:
            write_i8(walk.writer, 1 if child != NULL else 0 if op.tag >= 0 else -1)
        elif child == NULL and walk.fault == FAULT_NONE:
            walk.fault = FAULT_NULL
        if child == NULL or walk.fault:
            return False
        push(walk, op.child, child)
        check_absent(walk, &walk.frames[walk.depth])
        return True
    else:
        value = walk.sink.get_slice(walk, frame.target, op)
        if walk.fault == FAULT_NONE:
            write_slice(walk, op, op.kind, op.flags & NULLABLE, value)
    return False


cdef inline void write_slice(Walk *walk, const Op *op, int kind, bint nullable, Slice value) noexcept nogil:
    if kind == UUID:
        write_raw(walk.writer, value.data, 16)
        return
    if value.size < 0 and not nullable:
        walk.fault = FAULT_NULL
    elif kind == STRING and value.size > MAX_STRING:
        walk.fault = FAULT_TOO_LONG
    elif op.flags & COMPACT:
        write_uvarint(walk.writer, <uint32_t> value.size + 1)
    elif kind == STRING:
        write_i16(walk.writer, <int16_t> value.size)
    else:
        write_i32(walk.writer, value.size)
    # If `data` is NULL, only the length is written: the sink has noted a gap for the data.
    if value.size > 0 and value.data != NULL:
        write_raw(walk.writer, value.data, value.size)


cdef bint write_array(Walk *walk, Frame *frame, const Op *op) noexcept nogil:
    cdef void *items = NULL
    cdef int32_t count
    if op.element == STRUCT and walk.sink.get_encoded(walk, frame.target, op):
        return False
    count = walk.sink.get_array(walk, frame.target, op, &items)
    frame.index = frame.count = 0
    if walk.fault == FAULT_NONE and count < 0 and not op.flags & NULLABLE:
        walk.fault = FAULT_NULL
    if walk.fault:
        return False
    if op.flags & COMPACT:
        write_uvarint(walk.writer, <uint32_t> count + 1)
    else:
        write_i32(walk.writer, count)
    if count <= 0:
        return False
    if op.element <= UUID:
        walk.sink.get_block(walk, items, op, count)
        return False
    frame.index = 0
    frame.count = count
    if op.element == STRUCT:
        frame.items = items
        return True
    write_elements(walk, frame, op, items)
    return False


cdef void write_elements(Walk *walk, Frame *frame, const Op *op, void *items) noexcept nogil:
    cdef Slice value
    while frame.index < frame.count:
        value = walk.sink.get_element(walk, items, op, frame.index)
        if walk.fault == FAULT_NONE:
            write_slice(walk, op, op.element, False, value)
        if walk.fault:
            return
        frame.index += 1


cdef bint write_tags(Walk *walk, Frame *frame) noexcept nogil:
    """Writes the tagged fields that do not have their default, and the unknown tagged fields, in ascending order of
    their tags."""
    cdef const Op *op
    cdef int32_t i, count
    if frame.tags_left < 0:
        frame.op = NULL
        count = walk.sink.count_unknown(walk, frame.target, frame.shape)
        for i in range(frame.shape.tagged_count):
            frame.op = &frame.shape.tagged[i]
            if not is_default(walk, frame.target, frame.op):
                count += 1
        if walk.fault:
            return False
        write_uvarint(walk.writer, <uint32_t> count)
        frame.tags_left = count
    elif frame.tag_at:
        close_tag(walk, frame)
    while frame.tags_left and frame.next_tagged < frame.shape.tagged_count:
        op = &frame.shape.tagged[frame.next_tagged]
        frame.next_tagged += 1
        if is_default(walk, frame.target, op):
            continue
        walk.sink.get_unknown(walk, frame.target, frame.tag, op.tag)
        frame.op = op
        frame.tag = op.tag
        write_uvarint(walk.writer, <uint32_t> op.tag)
        frame.tag_at = walk.writer.size
        write_i8(walk.writer, 0)
        if write_field(walk, frame, op):
            return True
        if walk.fault:
            return False
        close_tag(walk, frame)
    if frame.tags_left:
        walk.sink.get_unknown(walk, frame.target, frame.tag, <int64_t> 1 << 32)
    return False


cdef void close_tag(Walk *walk, Frame *frame) noexcept nogil:
    """Writes the size of a tagged field in front of the field. One byte is reserved for the size. If the size needs
    more bytes, the field is moved."""
    cdef Writer *w = walk.writer
    cdef size_t at = frame.tag_at
    cdef size_t size
    cdef int extra
    frame.tag_at = 0
    if w.bad:
        return
    size = w.size - at - 1
    extra = uvarlong_size(size) - 1
    if extra:
        if reserve(w, extra) == NULL:
            return
        memmove(w.data + at + 1 + extra, w.data + at + 1, size)
    put_uvarlong(w.data + at, size)


# --- faults ----------------------------------------------------------------------------------------------------------

cdef str walk_path(Walk *walk):
    """Returns the path of the walk's position, e.g. `MetadataRequest.topics[3].name`."""
    cdef const Op *op
    cdef int depth
    cdef str path = walk.frames[0].shape.name.decode()
    for depth in range(walk.depth + 1):
        op = walk.frames[depth].op
        if op == NULL:
            return f"{path} (tagged fields)"
        path = f"{path}.{op.name.decode()}"
        if walk.frames[depth].count and op.kind == ARRAY:
            index = walk.frames[depth].index
            path = f"{path}[{index if depth == walk.depth else index - 1}]"
    return path


cdef int raise_fault(Walk *walk) except -1:
    """Raises the error for the walk's fault: UnsupportedVersionError, or ProtocolError with the path of the field."""
    if walk.fault == FAULT_PYTHON:
        try:
            pending()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{walk_path(walk)}: {FAULTS[FAULT_TEXT]} ({error.reason})") from None
        except (TypeError, OverflowError, ValueError, AttributeError) as error:
            raise ProtocolError(f"{walk_path(walk)}: {error}") from None
    message = f"{walk_path(walk)}: {FAULTS[walk.fault]}"
    if walk.fault == FAULT_VERSION:
        raise UnsupportedVersionError(message)
    raise ProtocolError(message)


cdef int pending() except -1:
    # The exception is already set, so returning an error value raises it.
    return -1


cdef str fault_text(int fault):
    return FAULTS[fault]
