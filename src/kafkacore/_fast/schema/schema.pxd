"""Programs: a message table compiled for one version, and the vocabulary of the walk that runs it over bytes
(walk.pxd).

A Shape is a struct at one version: its fields in wire order, its tagged fields by tag, and the fields that this
version does not have. The walker handles lengths, nulls, tags and limits. It passes the values that it reads to a Sink,
and gets the values that it writes from one. `Op.offset` says where a sink keeps the field: an offset into a C struct
(view.pxd), the slot of a Python object (plan.pxd), a column (columns.pyx).

Shapes live as long as the process and never change: any thread may walk them. A Walk belongs to its caller, and one
thread at a time runs it. It may pause between the elements of an array and continue later. Nothing here takes the GIL.
The object sink's callbacks need it, so only callers that hold the GIL may walk with that sink.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Reader, Writer

cdef enum:
    MAX_DEPTH = 8           # how deep structs may lie in structs; the tables need 5, and compiling a deeper one fails
    MAX_STRING = 0x7FFF     # Kafka's limit for a string, compact or not

cdef enum Kind:
    # The order matters: up to FLOAT64 a value fits an int64, up to UUID its width is fixed.
    BOOL = 0
    INT8
    INT16
    UINT16
    INT32
    INT64
    FLOAT64
    UUID
    STRING
    BYTES
    RECORDS
    STRUCT
    ARRAY

cdef enum Flag:
    NULLABLE = 1
    COMPACT = 2             # lengths are unsigned varints, plus one (KIP-482)
    IGNORABLE = 4           # may be dropped silently when the version does not have it
    DEFAULT_NULL = 8

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_SHORT
    FAULT_NULL
    FAULT_LENGTH
    FAULT_COUNT
    FAULT_TAG_ORDER
    FAULT_TAG_SIZE
    FAULT_TEXT
    FAULT_RANGE
    FAULT_TOO_LONG
    FAULT_VERSION
    FAULT_NO_ROOM
    FAULT_ELEMENTS
    FAULT_PYTHON            # a Python exception is set

cdef enum Outcome:
    WALK_FAILED = -1
    WALK_DONE = 0
    WALK_PAUSED = 1

ctypedef struct Slice:
    const uint8_t *data     # not owned
    int32_t size            # -1: null

ctypedef struct Array:
    void *items
    int32_t count           # -1: null

ctypedef struct Shape
ctypedef struct Walk

ctypedef struct Op:
    uint8_t kind
    uint8_t element         # of an ARRAY: the kind of its elements
    uint8_t flags
    int32_t tag             # -1: not tagged
    int32_t field           # its place among all fields that its struct has in any version
    int32_t offset          # where the sink keeps it
    int32_t least           # of an ARRAY: the fewest bytes an element takes
    int64_t default_int     # a FLOAT64's bits
    Slice default_data
    const Shape *child      # of a STRUCT, or an ARRAY of them
    const char *name

ctypedef struct Shape:
    const char *name
    const Op *ops
    const Op *tagged        # by ascending tag
    const Op *absent        # fields that this version does not have
    int32_t op_count
    int32_t tagged_count
    int32_t absent_count
    int32_t least           # the fewest bytes that it takes
    bint flexible
    int32_t size            # of the sink's struct
    void *image             # the sink's struct with every field at its default
    void *owner             # the sink's own (the object sink's class)

# The callbacks with which a walk passes and gets values. Each gets the current struct; a callback that cannot continue
# sets `walk.fault`.
ctypedef struct Sink:
    # reading
    void (*put_integer)(Walk *, void *target, const Op *, int64_t value) noexcept nogil
    void (*put_slice)(Walk *, void *target, const Op *, const uint8_t *data, int32_t size) noexcept nogil
    void (*put_null)(Walk *, void *target, const Op *) noexcept nogil
    void (*put_block)(Walk *, void *target, const Op *, const uint8_t *data, int32_t count) noexcept nogil
    void *(*put_array)(Walk *, void *target, const Op *, int32_t count) noexcept nogil
    void *(*put_item)(Walk *, void *items, const Op *, int32_t index) noexcept nogil
    void (*put_element)(Walk *, void *items, const Op *, int32_t index, const uint8_t *data,
                        int32_t size) noexcept nogil
    void *(*put_struct)(Walk *, void *target, const Op *) noexcept nogil
    void (*put_unknown)(Walk *, void *target, uint32_t tag, const uint8_t *data, int32_t size) noexcept nogil
    # writing
    int64_t (*get_integer)(Walk *, void *target, const Op *) noexcept nogil
    Slice (*get_slice)(Walk *, void *target, const Op *) noexcept nogil
    bint (*get_encoded)(Walk *, void *target, const Op *) noexcept nogil    # True: it has written the array itself
    int32_t (*get_array)(Walk *, void *target, const Op *, void **items) noexcept nogil
    void (*get_block)(Walk *, void *items, const Op *, int32_t count) noexcept nogil
    void *(*get_item)(Walk *, void *items, const Op *, int32_t index) noexcept nogil
    Slice (*get_element)(Walk *, void *items, const Op *, int32_t index) noexcept nogil
    void *(*get_struct)(Walk *, void *target, const Op *) noexcept nogil
    int32_t (*count_unknown)(Walk *, void *target, const Shape *) noexcept nogil
    void (*get_unknown)(Walk *, void *target, int64_t above, int64_t below) noexcept nogil

ctypedef struct Frame:
    const Shape *shape
    void *target
    const Op *op            # the field at hand
    void *items             # an array of structs under way: elements index..count are to come
    int32_t index
    int32_t count
    int32_t next            # the next of shape.ops
    int32_t next_tagged
    int32_t tags_left       # -1: the tagged fields have not begun
    int64_t tag
    const uint8_t *tag_end  # reading: where the tagged field under way ends
    const uint8_t *outer_end
    size_t tag_at           # writing: where its size goes, 0 when none is under way

ctypedef struct Walk:
    const Sink *sink
    Reader reader
    Writer *writer
    void *context           # the sink's own
    int64_t budget          # structs in arrays until it pauses; -1: never
    int64_t room            # reading: elements of arrays and tagged fields that may still be made
    int fault
    int depth               # of the frame at hand, -1 when done
    Frame frames[MAX_DEPTH]

cdef class Layout:
    """Where a sink keeps the fields of one struct: `offsets` by field name. `size` and `owner` go to the Shape."""
    cdef readonly str struct
    cdef readonly int32_t size
    cdef readonly dict offsets
    cdef readonly bint sparse
    cdef readonly object owner

cdef const Shape *compile_message(object message, int version, dict layouts) except NULL


cdef inline int32_t fixed_width(int kind) noexcept nogil:
    """Bytes of a kind up to UUID on the wire."""
    if kind == INT32:
        return 4
    if kind == UUID:
        return 16
    if kind == INT64 or kind == FLOAT64:
        return 8
    return 2 if kind == INT16 or kind == UINT16 else 1
