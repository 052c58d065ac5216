"""A table in `protocol/tables` is the schema of a message of Kafka. For each version of the message, schema.pyx makes
structs of the types `Shape` and `Op` from the table. The walker (walk.pxd) reads or writes a message in one pass over
its bytes. This pass is called a walk. A sink keeps the values of a message: a walk that reads stores values in the
sink, and a walk that writes takes values from the sink.

A `Shape` describes a struct at one version: its fields in wire order, its tagged fields by tag, and the fields that
this version does not have. An `Op` describes one field. The walker handles lengths, nulls, tags and limits. `Op.offset`
says where a sink keeps the field: an offset in a C struct (view.pxd), the offset of a slot in a Python object
(class_plan.pxd), or the index of a column (columns.pyx).

A `Shape` is never freed and never changes, so any thread may use it. A `Walk` belongs to its caller, and only one
thread at a time may run it. It may pause between the elements of an array and continue later. The walker never takes
the GIL. The callbacks of the object sink need the GIL, so only callers that hold the GIL may use that sink.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.base.cursor cimport Reader, Writer

cdef enum:
    MAX_DEPTH = 8           # the depth to which structs may be nested; the tables need 5
    MAX_STRING = 0x7FFF     # Kafka's limit for the bytes of a string, compact or not

cdef enum Kind:
    # The order matters. Values of the kinds up to FLOAT64 fit into an int64. The kinds up to UUID have a fixed width.
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
    COMPACT = 2             # a length is written as an unsigned varint of the length plus one (KIP-482)
    IGNORABLE = 4           # the field may be dropped silently if the version does not have it
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
    int32_t size            # -1 for null

ctypedef struct Array:
    void *items
    int32_t count           # -1 for null

ctypedef struct Shape
ctypedef struct Walk

ctypedef struct Op:
    uint8_t kind
    uint8_t element         # for an ARRAY, the kind of its elements
    uint8_t flags
    int32_t tag             # -1 if the field is not tagged
    int32_t field           # index among all fields that the struct has in any version
    int32_t offset          # where the sink keeps the field
    int32_t least           # for an ARRAY, the fewest bytes that an element takes on the wire
    int64_t default_int     # for a FLOAT64, the bits of its default
    Slice default_data
    const Shape *child      # for a STRUCT or an ARRAY of structs, the shape of the struct
    const char *name

ctypedef struct Shape:
    const char *name
    const Op *ops
    const Op *tagged        # by ascending tag
    const Op *absent        # fields that this version does not have
    int32_t op_count
    int32_t tagged_count
    int32_t absent_count
    int32_t least           # the fewest bytes that the struct takes on the wire
    bint flexible
    int32_t size            # size of the sink's C struct
    void *image             # a C struct of the sink with every field at its default
    void *owner             # private to the sink; for the object sink, the `Plan` of the class (class_plan.pxd)

# The callbacks through which a walk passes values to a sink and gets values from it. `target` is the current struct. A
# callback that cannot continue sets `walk.fault`.
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
    # Returns True if it has written the whole array itself.
    bint (*get_encoded)(Walk *, void *target, const Op *) noexcept nogil
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
    const Op *op            # the current field
    void *items             # the current array of structs; the elements from `index` to `count` are still to come
    int32_t index
    int32_t count
    int32_t next            # index of the next field in `shape.ops`
    int32_t next_tagged
    int32_t tags_left       # -1 before the tagged fields begin
    int64_t tag
    const uint8_t *tag_end  # reading: the end of the current tagged field
    const uint8_t *outer_end
    size_t tag_at           # writing: position of the current tagged field's size; 0 if there is none

ctypedef struct Walk:
    const Sink *sink
    Reader reader
    Writer *writer
    void *context           # private to the sink
    int64_t budget          # the walk pauses after this many structs in arrays; -1: it never pauses
    int64_t room            # reading: the number of further array elements and tagged fields that are allowed
    int fault
    int depth               # index of the current frame; -1 when the walk is done
    Frame frames[MAX_DEPTH]

cdef class Layout:
    """Describes where a sink keeps the fields of one struct. `offsets` maps field names to offsets. `size` and `owner`
    are copied to the `Shape`.
    """
    cdef readonly str struct
    cdef readonly int32_t size
    cdef readonly dict offsets
    cdef readonly bint sparse
    cdef readonly object owner

cdef const Shape *compile_message(object message, int version, dict layouts) except NULL


cdef inline int32_t fixed_width(int kind) noexcept nogil:
    """Returns the number of bytes that a value takes on the wire. `kind` must not be above UUID."""
    if kind == INT32:
        return 4
    if kind == UUID:
        return 16
    if kind == INT64 or kind == FLOAT64:
        return 8
    return 2 if kind == INT16 or kind == UINT16 else 1
