"""Implements Arrow arrays and schemas in memory that this process allocates. arrow.pxd has the contract."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.base.cursor cimport Writer, reserve, writer_detach, writer_free, writer_init

cdef enum:
    MOST_BUFFERS = 3

cdef int64_t live_arrays = 0

ctypedef struct HeldArray:       # the private_data of an array
    const void *buffers[MOST_BUFFERS]
    void *owned[MOST_BUFFERS]
    Shared *shared
    ArrowArray *children
    ArrowArray **pointers

ctypedef struct HeldSchema:
    ArrowSchema *children
    ArrowSchema **pointers


def live():
    """Returns the number of arrays that have not been released yet."""
    return load64(&live_arrays)


# --- growable columns ----------------------------------------------------------------------------------------------

cdef void blob_init(Blob *blob) noexcept nogil:
    writer_init(&blob.offsets, MOST_DATA_BYTES)
    writer_init(&blob.data, MOST_DATA_BYTES)
    writer_init(&blob.valid, MOST_DATA_BYTES)
    blob.rows = blob.nulls = 0


cdef void blob_free(Blob *blob) noexcept nogil:
    writer_free(&blob.offsets)
    writer_free(&blob.data)
    writer_free(&blob.valid)
    blob_init(blob)


cdef int blob_add_null(Blob *blob) noexcept nogil:
    if blob_end_row(blob) < 0 or mark_null(&blob.valid, blob.rows - 1) < 0:
        return -1
    blob.nulls += 1
    return 0


cdef int extend_bits(Writer *valid, int64_t row) noexcept nogil:
    cdef uint8_t *more
    cdef size_t needed = <size_t> (row // 8 + 1)
    if needed > valid.size:
        more = reserve(valid, needed - valid.size)
        if more == NULL:
            return -1
        memset(more, 0xFF, needed - (more - valid.data))
    return 0


cdef int mark_null(Writer *valid, int64_t row) noexcept nogil:
    if extend_bits(valid, row) < 0:
        return -1
    valid.data[row // 8] &= ~(1 << (row % 8))
    return 0


cdef Shared *shared_new() noexcept nogil:
    cdef Shared *shared = <Shared *> calloc(1, sizeof(Shared))
    if shared != NULL:
        shared.count = 1
    return shared


cdef void shared_release(Shared *shared) noexcept nogil:
    if shared != NULL and add64(&shared.count, -1) == 0:
        free(shared.blocks[0])
        free(shared.blocks[1])
        free(shared)


# --- arrays --------------------------------------------------------------------------------------------------------

cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef HeldArray *held = <HeldArray *> array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if held.children[i].release != NULL:
            held.children[i].release(&held.children[i])
    for i in range(MOST_BUFFERS):
        free(held.owned[i])
    shared_release(held.shared)
    free(held.children)
    free(held.pointers)
    free(held)
    array.release = NULL
    add64(&live_arrays, -1)


cdef int array_init(
    ArrowArray *array, int64_t length, int64_t nulls, int buffers, int children, Shared *shared
) noexcept nogil:
    cdef HeldArray *held = <HeldArray *> calloc(1, sizeof(HeldArray))
    cdef int i
    memset(array, 0, sizeof(ArrowArray))
    if held != NULL and children:
        held.children = <ArrowArray *> calloc(children, sizeof(ArrowArray))
        held.pointers = <ArrowArray **> calloc(children, sizeof(void *))
    if held == NULL or (children and (held.children == NULL or held.pointers == NULL)):
        if held != NULL:
            free(held.children)
            free(held.pointers)
        free(held)
        shared_release(shared)
        return -1
    for i in range(children):
        held.pointers[i] = &held.children[i]
    held.shared = shared
    array.length = length
    array.null_count = nulls
    array.n_buffers = buffers
    array.n_children = children
    array.buffers = held.buffers
    array.children = held.pointers
    array.private_data = held
    array.release = release_array
    add64(&live_arrays, 1)
    return 0


cdef void array_own(ArrowArray *array, int index, void *block) noexcept nogil:
    cdef HeldArray *held = <HeldArray *> array.private_data
    held.buffers[index] = held.owned[index] = block


cdef void array_borrow(ArrowArray *array, int index, const void *block) noexcept nogil:
    (<HeldArray *> array.private_data).buffers[index] = block


cdef void array_drop(ArrowArray *array) noexcept nogil:
    if array.release != NULL:
        array.release(array)


cdef int blob_export(Blob *blob, ArrowArray *array) noexcept nogil:
    cdef int32_t *zero
    if blob.rows == 0 and blob.offsets.size == 0:
        zero = <int32_t *> reserve(&blob.offsets, sizeof(int32_t))
        if zero != NULL:
            zero[0] = 0
    # Consumers expect a valid address even if there are no bytes.
    if blob.data.capacity == 0 and reserve(&blob.data, 1) != NULL:
        blob.data.size = 0
    if blob.offsets.bad or blob.data.bad or array_init(array, blob.rows, blob.nulls, 3, 0, NULL) < 0:
        blob_free(blob)
        return -1
    if blob.nulls:
        array_own(array, 0, writer_detach(&blob.valid))
    array_own(array, 1, writer_detach(&blob.offsets))
    array_own(array, 2, writer_detach(&blob.data))
    blob_free(blob)
    return 0


# --- schemas -------------------------------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef HeldSchema *held = <HeldSchema *> schema.private_data
    cdef int64_t i
    for i in range(schema.n_children):
        if held.children[i].release != NULL:
            held.children[i].release(&held.children[i])
    free(held.children)
    free(held.pointers)
    free(held)
    schema.release = NULL


cdef int schema_init(ArrowSchema *schema, const char *format, const char *name, int children) noexcept nogil:
    cdef HeldSchema *held = <HeldSchema *> calloc(1, sizeof(HeldSchema))
    cdef int i
    memset(schema, 0, sizeof(ArrowSchema))
    if held != NULL and children:
        held.children = <ArrowSchema *> calloc(children, sizeof(ArrowSchema))
        held.pointers = <ArrowSchema **> calloc(children, sizeof(void *))
    if held == NULL or (children and (held.children == NULL or held.pointers == NULL)):
        if held != NULL:
            free(held.children)
            free(held.pointers)
        free(held)
        return -1
    for i in range(children):
        held.pointers[i] = &held.children[i]
    schema.format = format
    schema.name = name
    schema.flags = NULLABLE
    schema.n_children = children
    schema.children = held.pointers
    schema.private_data = held
    schema.release = release_schema
    return 0


cdef void schema_drop(ArrowSchema *schema) noexcept nogil:
    if schema.release != NULL:
        schema.release(schema)


# --- capsules ------------------------------------------------------------------------------------------------------

cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *> PyCapsule_GetPointer(capsule, "arrow_array")
    array_drop(array)  # does nothing if a consumer has moved the array out
    free(array)


cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *> PyCapsule_GetPointer(capsule, "arrow_schema")
    schema_drop(schema)
    free(schema)


cdef object array_capsule(ArrowArray *array):
    cdef ArrowArray *moved = <ArrowArray *> calloc(1, sizeof(ArrowArray))
    if moved == NULL:
        raise MemoryError
    moved[0] = array[0]
    try:
        made = PyCapsule_New(moved, "arrow_array", free_array_capsule)
    except BaseException:
        free(moved)
        raise
    array.release = NULL
    return made


cdef object schema_capsule(ArrowSchema *schema):
    cdef ArrowSchema *moved = <ArrowSchema *> calloc(1, sizeof(ArrowSchema))
    if moved == NULL:
        schema_drop(schema)
        raise MemoryError
    moved[0] = schema[0]
    try:
        made = PyCapsule_New(moved, "arrow_schema", free_schema_capsule)
    except BaseException:
        schema_drop(schema)
        free(moved)
        raise
    schema.release = NULL
    return made
