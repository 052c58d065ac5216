"""Implements the view sink and its arena. view.pxd has the contract."""

from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.base.cursor cimport (
    Reader, Writer, be16, be32, be64, put16, put32, put64, reader_init, reserve, uvarlong_size, writer_free,
    writer_init,
)
from kafkacore._fast.schema.schema cimport (
    ARRAY, BOOL, COMPACT, DEFAULT_NULL, FAULT_NO_ROOM, FLOAT64, INT16, INT32, INT64, NULLABLE, RECORDS,
    STRUCT, UINT16, UUID, WALK_FAILED, Array, Layout, Op, Shape, Sink, Slice, Walk, compile_message, fixed_width,
)
from kafkacore._fast.schema.walk cimport walk_begin, walk_read, walk_write

from kafkacore._fast.schema import tables
from kafkacore._fast.base.errors import ProtocolError

cdef enum:
    FIRST_BLOCK = 4096
    MAX_BLOCK = 1 << 20
    BENCHMARK_ARENA = 1 << 24


# --- arena ---

cdef void arena_init(Arena *arena, size_t limit) noexcept nogil:
    memset(arena, 0, sizeof(Arena))
    arena.limit = limit


cdef void *arena_alloc(Arena *arena, size_t size) noexcept nogil:
    cdef uint8_t *at
    if size > arena.limit:
        return NULL
    size = (size + 7) & ~<size_t> 7
    if size > <size_t> (arena.end - arena.at) and not arena_grow(arena, size):
        return NULL
    at = arena.at
    arena.at += size
    if size:  # in an empty arena, an empty allocation returns NULL, which memset does not accept
        memset(at, 0, size)
    return at


cdef bint arena_grow(Arena *arena, size_t size) noexcept nogil:
    cdef size_t capacity = min(arena.taken, <size_t> MAX_BLOCK) if arena.taken else FIRST_BLOCK
    cdef ArenaBlock *block
    capacity = max(capacity, size + sizeof(ArenaBlock))
    if capacity > arena.limit - arena.taken:
        capacity = size + sizeof(ArenaBlock)
    if arena.taken > arena.limit or capacity > arena.limit - arena.taken:
        return False
    block = <ArenaBlock *> malloc(capacity)
    if block == NULL:
        return False
    block.next = arena.blocks
    block.capacity = capacity
    arena.blocks = block
    arena.taken += capacity
    arena.at = <uint8_t *> (block + 1)
    arena.end = <uint8_t *> block + capacity
    return True


cdef void arena_reset(Arena *arena) noexcept nogil:
    cdef ArenaBlock *kept = arena.blocks
    if kept == NULL:
        return
    arena.blocks = kept.next
    drop_blocks(arena)
    kept.next = NULL
    arena.blocks = kept
    arena.taken = kept.capacity
    arena.at = <uint8_t *> (kept + 1)
    arena.end = <uint8_t *> kept + kept.capacity


cdef void arena_free(Arena *arena) noexcept nogil:
    drop_blocks(arena)
    arena.at = arena.end = NULL
    arena.taken = 0


cdef void drop_blocks(Arena *arena) noexcept nogil:
    cdef ArenaBlock *block
    while arena.blocks != NULL:
        block = arena.blocks
        arena.blocks = block.next
        free(block)


# --- reading ---

cdef inline void set_number(uint8_t *at, int kind, int64_t value) noexcept nogil:
    if kind == INT32:
        (<int32_t *> at)[0] = <int32_t> value
    elif kind == INT64 or kind == FLOAT64:
        (<int64_t *> at)[0] = value
    elif kind == INT16 or kind == UINT16:
        (<int16_t *> at)[0] = <int16_t> value
    else:
        (<int8_t *> at)[0] = <int8_t> value


cdef inline int64_t get_number(const uint8_t *at, int kind) noexcept nogil:
    if kind == INT32:
        return (<const int32_t *> at)[0]
    if kind == INT64 or kind == FLOAT64:
        return (<const int64_t *> at)[0]
    if kind == INT16:
        return (<const int16_t *> at)[0]
    if kind == UINT16:
        return (<const uint16_t *> at)[0]
    if kind == BOOL:
        return at[0] != 0
    return (<const int8_t *> at)[0]


cdef void put_integer(Walk *walk, void *target, const Op *op, int64_t value) noexcept nogil:
    set_number(<uint8_t *> target + op.offset, op.kind, value)


cdef void put_slice(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t size) noexcept nogil:
    cdef Slice *slice = <Slice *> (<uint8_t *> target + op.offset)
    if op.kind == UUID:
        memcpy(slice, data, 16)
    else:
        slice.data = data
        slice.size = size


cdef void put_null(Walk *walk, void *target, const Op *op) noexcept nogil:
    # The field is an array, because Binding rejects messages with nullable structs.
    cdef Array *array = <Array *> (<uint8_t *> target + op.offset)
    array.items = NULL
    array.count = -1


cdef inline int32_t host_width(const Op *op) noexcept nogil:
    """Returns the size in bytes of an array element in the arena."""
    if op.element == STRUCT:
        return op.child.size
    return fixed_width(op.element) if op.element <= UUID else <int32_t> sizeof(Slice)


cdef void *put_array(Walk *walk, void *target, const Op *op, int32_t count) noexcept nogil:
    cdef Array *array = <Array *> (<uint8_t *> target + op.offset)
    array.count = count
    array.items = NULL
    if count:
        array.items = arena_alloc(<Arena *> walk.context, <size_t> count * host_width(op))
        if array.items == NULL:
            array.count = 0
            walk.fault = FAULT_NO_ROOM
    return array.items


cdef void put_block(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t count) noexcept nogil:
    cdef uint8_t *items = <uint8_t *> put_array(walk, target, op, count)
    cdef int32_t width = host_width(op)
    cdef int32_t i
    if walk.fault or count == 0:
        return
    if width == 4:
        for i in range(count):
            (<uint32_t *> items)[i] = be32(data + i * 4)
    elif width == 8:
        for i in range(count):
            (<int64_t *> items)[i] = <int64_t> be64(data + i * 8)
    elif width == 2:
        for i in range(count):
            (<uint16_t *> items)[i] = be16(data + i * 2)
    else:
        memcpy(items, data, <size_t> count * width)


cdef void *put_item(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    cdef uint8_t *item = <uint8_t *> items + <size_t> index * op.child.size
    memcpy(item, op.child.image, op.child.size)
    return item


cdef void put_element(Walk *walk, void *items, const Op *op, int32_t index, const uint8_t *data,
                      int32_t size) noexcept nogil:
    cdef Slice *slice = <Slice *> items + index
    slice.data = data
    slice.size = size


cdef void *put_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    return <uint8_t *> target + op.offset


cdef void put_unknown(Walk *walk, void *target, uint32_t tag, const uint8_t *data, int32_t size) noexcept nogil:
    # Drops unknown tagged fields, because a view is never written back.
    pass


cdef int view_read(const Program *program, Reader *reader, void *out, Arena *arena) noexcept nogil:
    cdef Walk walk
    walk.reader = reader[0]
    walk.budget = -1
    walk.room = INT64_MAX  # no limit is needed here, because the arena has one
    walk.context = arena
    memcpy(out, program.image, program.size)
    walk_begin(&walk, &SINK, program, out)
    walk_read(&walk)
    reader[0] = walk.reader
    return walk.fault


cdef void view_default(const Program *program, void *out) noexcept nogil:
    memcpy(out, program.image, program.size)


# --- writing ---

ctypedef struct Gaps:
    Gap *gaps
    int room
    int count


cdef int64_t get_integer(Walk *walk, void *target, const Op *op) noexcept nogil:
    return get_number(<const uint8_t *> target + op.offset, op.kind)


cdef Slice get_slice(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef const Slice *slice = <const Slice *> (<const uint8_t *> target + op.offset)
    cdef Slice uuid
    if op.kind == UUID:
        uuid.data = <const uint8_t *> slice
        uuid.size = 16
        return uuid
    if op.kind == RECORDS and slice.data == NULL and slice.size >= 0:
        note_gap(walk, op, slice)
    return slice[0]


cdef void note_gap(Walk *walk, const Op *op, const Slice *slice) noexcept nogil:
    """Notes a `Gap` at the position after the length that the walker writes next."""
    cdef Gaps *gaps = <Gaps *> walk.context
    if gaps.count == gaps.room:
        walk.fault = FAULT_NO_ROOM
        return
    gaps.gaps[gaps.count].position = walk.writer.size + (
        uvarlong_size(<uint32_t> slice.size + 1) if op.flags & COMPACT else 4)
    gaps.gaps[gaps.count].slice = slice
    gaps.count += 1


cdef bint get_encoded(Walk *walk, void *target, const Op *op) noexcept nogil:
    return False


cdef int32_t get_array(Walk *walk, void *target, const Op *op, void **items) noexcept nogil:
    cdef const Array *array = <const Array *> (<const uint8_t *> target + op.offset)
    items[0] = array.items
    return array.count


cdef void get_block(Walk *walk, void *items, const Op *op, int32_t count) noexcept nogil:
    cdef int32_t width = host_width(op)
    cdef uint8_t *at = reserve(walk.writer, <size_t> count * width)
    cdef int32_t i
    if at == NULL:
        return
    if width == 4:
        for i in range(count):
            put32(at + i * 4, (<const uint32_t *> items)[i])
    elif width == 8:
        for i in range(count):
            put64(at + i * 8, <unsigned long> (<const int64_t *> items)[i])
    elif width == 2:
        for i in range(count):
            put16(at + i * 2, (<const uint16_t *> items)[i])
    else:
        memcpy(at, items, <size_t> count * width)


cdef void *get_item(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    return <uint8_t *> items + <size_t> index * op.child.size


cdef Slice get_element(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    return (<const Slice *> items)[index]


cdef void *get_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    return <uint8_t *> target + op.offset


cdef int32_t count_unknown(Walk *walk, void *target, const Shape *shape) noexcept nogil:
    return 0


cdef void get_unknown(Walk *walk, void *target, int64_t above, int64_t below) noexcept nogil:
    pass


cdef int view_write(const Program *program, const void *src, Writer *writer, Gap *gaps, int max_gaps,
                    int *gap_count) noexcept nogil:
    cdef Walk walk
    cdef Gaps noted
    noted.gaps = gaps
    noted.room = max_gaps
    noted.count = 0
    walk.writer = writer
    walk.budget = -1
    walk.context = &noted
    walk_begin(&walk, &SINK, program, <void *> src)
    if walk_write(&walk) == WALK_FAILED:
        writer.bad = True
    gap_count[0] = noted.count
    return walk.fault


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
SINK.get_integer = get_integer
SINK.get_slice = get_slice
SINK.get_encoded = get_encoded
SINK.get_array = get_array
SINK.get_block = get_block
SINK.get_item = get_item
SINK.get_element = get_element
SINK.get_struct = get_struct
SINK.count_unknown = count_unknown
SINK.get_unknown = get_unknown


# --- binding ---

cdef class Binding:

    def __init__(self, str name, int lowest, int highest, dict structs):
        """`structs` maps a struct's name to (size, {field: offset}). Every field that a bound version has needs an
        offset.

        Raises ValueError if an offset is missing, or if a struct is nullable, because a C struct by value cannot be
        null.
        """
        cdef int version
        self.name, self.lowest, self.highest = name, lowest, highest
        message = tables.current_message(name)
        layouts = {struct: Layout(struct, fields, size, None, True) for struct, (size, fields) in structs.items()}
        changes = message.changes()
        for version in range(lowest, highest + 1):
            if version > lowest and version not in changes:
                self.programs[version] = self.programs[version - 1]
                continue
            self.programs[version] = compile_message(message, version, layouts)
            make_image(<Shape *> self.programs[version])

    cdef const Program *program(self, int version) noexcept nogil:
        if version < self.lowest or version > self.highest:
            return NULL
        return self.programs[version]

    def read_times(self, const uint8_t[::1] data, int version, int64_t times):
        """Reads the same message `times` times, in the same way as a processor. Only benchmarks call this method.
        Raises ProtocolError and KeyError."""
        cdef const Program *program = self.program(version)
        cdef Arena arena
        cdef Reader reader
        cdef void *struct
        cdef int fault = 0
        if program == NULL:
            raise KeyError(version)
        arena_init(&arena, BENCHMARK_ARENA)
        with nogil:
            while times > 0:
                times -= 1
                arena_reset(&arena)
                struct = arena_alloc(&arena, program.size)
                reader_init(&reader, &data[0], data.shape[0])
                fault |= view_read(program, &reader, struct, &arena) if struct != NULL else FAULT_NO_ROOM
        arena_free(&arena)
        if fault:
            raise ProtocolError(f"{program.name.decode()}: fault {fault}")

    def copy(self, const uint8_t[::1] data, int version, bint cut_records=False, size_t arena_bytes=1 << 20):
        """Reads `data` into C structs and writes them again. Returns `(fields, bytes, gaps)`.

        `fields` is the content of the structs as nested dicts. With `cut_records`, the bytes lack the content of the
        `records` fields, and `gaps` has a (position, size) for each such field. Raises ProtocolError as decoding does,
        and KeyError for a version that is not bound.
        """
        cdef const Program *program = self.program(version)
        cdef Arena arena
        cdef Writer writer
        if program == NULL:
            raise KeyError(version)
        arena_init(&arena, arena_bytes)
        writer_init(&writer, 0x7FFFFFFF)
        try:
            return copy_view(program, data, cut_records, &arena, &writer)
        finally:
            arena_free(&arena)
            writer_free(&writer)


cdef tuple copy_view(const Program *program, const uint8_t[::1] data, bint cut_records, Arena *arena, Writer *writer):
    cdef Reader reader
    cdef Gap gaps[64]
    cdef int gap_count = 0
    cdef int i
    cdef int fault
    cdef void *struct = arena_alloc(arena, program.size)
    if struct == NULL:
        raise MemoryError()
    reader_init(&reader, &data[0] if data.shape[0] else NULL, data.shape[0])
    fault = view_read(program, &reader, struct, arena)
    if fault:
        raise ProtocolError(f"{program.name.decode()}: fault {fault}")
    fields = struct_fields(program, <uint8_t *> struct, cut_records)
    fault = view_write(program, struct, writer, gaps, 64, &gap_count)
    if fault:
        raise ProtocolError(f"{program.name.decode()}: fault {fault}")
    written = (<const char *> writer.data)[:writer.size] if writer.size else b""
    return fields, written, [(gaps[i].position, gaps[i].slice.size) for i in range(gap_count)]


cdef dict struct_fields(const Program *shape, uint8_t *struct, bint cut_records):
    cdef int32_t i
    cdef const Op *op
    fields = {}
    for i in range(shape.op_count + shape.tagged_count):
        op = &shape.ops[i] if i < shape.op_count else &shape.tagged[i - shape.op_count]
        fields[op.name.decode()] = field_value(op, struct + op.offset, cut_records)
    return fields


cdef object field_value(const Op *op, uint8_t *at, bint cut_records):
    cdef Slice *slice = <Slice *> at
    cdef Array *array = <Array *> at
    cdef int32_t i
    cdef int32_t width
    if op.kind <= FLOAT64:
        return get_number(at, op.kind)
    if op.kind == UUID:
        return (<const char *> at)[:16]
    if op.kind == STRUCT:
        return struct_fields(op.child, at, cut_records)
    if op.kind != ARRAY:
        value = slice_value(slice)
        if cut_records and op.kind == RECORDS:
            slice.data = NULL
        return value
    if array.count < 0:
        return None
    width = host_width(op)
    values = []
    for i in range(array.count):
        at = <uint8_t *> array.items + <size_t> i * width
        if op.element == STRUCT:
            values.append(struct_fields(op.child, at, cut_records))
        elif op.element <= FLOAT64:
            values.append(get_number(at, op.element))
        else:
            values.append((<const char *> at)[:16] if op.element == UUID else slice_value(<Slice *> at))
    return values


cdef object slice_value(const Slice *slice):
    return None if slice.size < 0 else (<const char *> slice.data)[:slice.size]


cdef int make_image(Shape *shape) except -1:
    """Makes `image`, a C struct with every field at its default, for this shape and for the shapes of its nested
    structs."""
    cdef int32_t i
    cdef const Op *op
    if shape.image != NULL:
        return 0
    shape.image = calloc(1, shape.size)
    if shape.image == NULL:
        raise MemoryError()
    for i in range(shape.op_count + shape.tagged_count + shape.absent_count):
        if i < shape.op_count:
            op = &shape.ops[i]
        elif i < shape.op_count + shape.tagged_count:
            op = &shape.tagged[i - shape.op_count]
        else:
            op = &shape.absent[i - shape.op_count - shape.tagged_count]
        set_default(shape, op)
    return 0


cdef int set_default(Shape *shape, const Op *op) except -1:
    cdef uint8_t *at = <uint8_t *> shape.image + op.offset
    if op.child != NULL:
        make_image(<Shape *> op.child)
    if op.kind <= FLOAT64:
        set_number(at, op.kind, op.default_int)
    elif op.kind == ARRAY:
        (<Array *> at).count = -1 if op.flags & DEFAULT_NULL else 0
    elif op.kind == STRUCT:
        if op.flags & DEFAULT_NULL or (op.flags & NULLABLE and op.child == NULL):
            raise ValueError(f"{shape.name.decode()}.{op.name.decode()} can be null: it cannot be viewed as a C struct")
        memcpy(at, op.child.image, op.child.size)
    elif op.kind != UUID:
        (<Slice *> at)[0] = op.default_data
    return 0
