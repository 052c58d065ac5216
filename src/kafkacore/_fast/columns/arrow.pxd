"""The structs of the Arrow C data interface, and growable columns that become Arrow arrays.

Specification: https://arrow.apache.org/docs/format/CDataInterface.html and CDataInterface/PyCapsuleInterface.html.

A column belongs to one thread until it is exported. An exported array owns its memory. The code that receives the array
must call `release`, on any thread, with or without the GIL.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.base.cursor cimport Writer, reserve

cdef extern from * nogil:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    #include <stdint.h>
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    """
    ctypedef struct ArrowSchema "struct ArrowSchema":
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil
        void *private_data
    ctypedef struct ArrowArray "struct ArrowArray":
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil
        void *private_data

cdef enum:
    NULLABLE = 2                 # ARROW_FLAG_NULLABLE
    MOST_DATA_BYTES = 0x7FFFFFFF  # a column has at most this many bytes, because its offsets have 32 bits

# Memory that several arrays share. Each of these arrays holds a reference.
ctypedef struct Shared:
    int64_t count
    void *blocks[2]

cdef Shared *shared_new() noexcept nogil     # its reference count is 1; NULL if no memory is left
cdef void shared_release(Shared *shared) noexcept nogil

# A column of bytes or text. `offsets` has one more entry than the column has rows.
ctypedef struct Blob:
    Writer offsets               # int32
    Writer data
    Writer valid                 # one bit for each row; empty while there is no null
    int64_t rows
    int64_t nulls

cdef void blob_init(Blob *blob) noexcept nogil
cdef void blob_free(Blob *blob) noexcept nogil
cdef int blob_add_null(Blob *blob) noexcept nogil
# Marks row `row` as null. Before the call, `valid` must have a bit for each earlier row, or no bits at all. Returns 0,
# or -1 if no memory is left.
cdef int mark_null(Writer *valid, int64_t row) noexcept nogil


cdef inline int mark_valid(Writer *valid, int64_t row) noexcept nogil:
    """Marks the next row as not null, if the column has validity bits."""
    if valid.size == 0:
        return 0
    return extend_bits(valid, row)

cdef int extend_bits(Writer *valid, int64_t row) noexcept nogil


cdef inline int blob_end_row(Blob *blob) noexcept nogil:
    """Ends a row whose bytes are already in `data`. Returns 0, or -1 if no memory is left."""
    cdef int32_t *end
    if blob.rows == 0:
        end = <int32_t *> reserve(&blob.offsets, sizeof(int32_t))
        if end == NULL:
            return -1
        end[0] = 0
    end = <int32_t *> reserve(&blob.offsets, sizeof(int32_t))
    if end == NULL or blob.data.bad or mark_valid(&blob.valid, blob.rows) < 0:
        return -1
    end[0] = <int32_t> blob.data.size
    blob.rows += 1
    return 0


cdef inline int blob_add(Blob *blob, const uint8_t *data, int32_t size) noexcept nogil:
    """Adds a row. A size below 0 means null. Returns 0, or -1 if no memory is left."""
    cdef uint8_t *p
    if size < 0:
        return blob_add_null(blob)
    if size:
        p = reserve(&blob.data, size)
        if p == NULL:
            return -1
        memcpy(p, data, size)
    return blob_end_row(blob)


# The following functions fill an array or a schema. Each function takes over the memory that its caller passes, even if
# the function returns -1 because no memory is left.
cdef int array_init(
    ArrowArray *array, int64_t length, int64_t nulls, int buffers, int children, Shared *shared
) noexcept nogil
# Sets buffer `index` of the array to `block`, which the array frees.
cdef void array_own(ArrowArray *array, int index, void *block) noexcept nogil
# Sets buffer `index` of the array to `block`, which belongs to the array's `Shared`.
cdef void array_borrow(ArrowArray *array, int index, const void *block) noexcept nogil
cdef int blob_export(Blob *blob, ArrowArray *array) noexcept nogil   # the blob is empty afterwards
# `format` and `name` must be static.
cdef int schema_init(ArrowSchema *schema, const char *format, const char *name, int children) noexcept nogil
cdef void schema_drop(ArrowSchema *schema) noexcept nogil
cdef void array_drop(ArrowArray *array) noexcept nogil

# Both functions return a capsule of the PyCapsule interface. The struct moves into the capsule.
cdef object array_capsule(ArrowArray *array)
cdef object schema_capsule(ArrowSchema *schema)
