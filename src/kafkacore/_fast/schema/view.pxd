"""The view sink: reads and writes messages as C structs (views). The strings, bytes and records of a view point into
the frame, the bytes of the request.

The C type of a field follows from its type in the table: bool and int8 `int8_t`, int16 `int16_t`, uint16 `uint16_t`,
int32 `int32_t`, int64 `int64_t`, float64 `double`, uuid `uint8_t[16]`, string/bytes/records `Slice` (size -1 is null),
arrays `Array` (count -1 is null; elements are structs, Slices, or plain numbers of the host's byte order), structs by
value. wire.pxd defines the C structs and lists the versions of each message that can be viewed.

A view owns no memory. It is valid as long as both its frame and its arena exist. Any thread may read and write views,
but only one thread at a time may use an arena or a writer.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.schema.schema cimport Shape, Slice

ctypedef Shape Program

# Memory for the arrays of one message. The arena allocates memory block by block and frees all blocks together. An
# allocation that would exceed `limit` returns NULL.
ctypedef struct ArenaBlock:
    ArenaBlock *next
    size_t capacity

ctypedef struct Arena:
    ArenaBlock *blocks      # the newest first
    uint8_t *at             # the free bytes of the newest block
    uint8_t *end
    size_t taken            # bytes of all blocks
    size_t limit

cdef void arena_init(Arena *arena, size_t limit) noexcept nogil
# Returns zeroed memory, aligned to 8 bytes. Returns NULL if this would exceed the limit.
cdef void *arena_alloc(Arena *arena, size_t size) noexcept nogil
cdef void arena_reset(Arena *arena) noexcept nogil                 # frees all blocks but one
cdef void arena_free(Arena *arena) noexcept nogil

# A position in a written message at which `slice.size` bytes were left out.
ctypedef struct Gap:
    size_t position         # position in the writer
    const Slice *slice

# Fills `out` with defaults, then reads the message. Returns 0 or a `Fault` (schema.pxd). Afterwards the reader is at
# the end of the message, and the caller decides whether more bytes may follow. To get the fault as text, decode the
# frame again with the message's Python class.
cdef int view_read(const Program *program, Reader *reader, void *out, Arena *arena) noexcept nogil
# Writes the message. Returns 0, or sets `writer.bad` and returns a `Fault`. If a `records` slice has a size but no
# data, writes the size but no bytes, and notes a `Gap`.
cdef int view_write(const Program *program, const void *src, Writer *writer, Gap *gaps, int max_gaps,
                    int *gap_count) noexcept nogil
cdef void view_default(const Program *program, void *out) noexcept nogil

cdef class Binding:
    """One message, compiled to a `Program` (a `Shape`, see schema.pxd) for each version."""
    cdef readonly str name
    cdef readonly int lowest
    cdef readonly int highest
    cdef const Program *programs[32]

    cdef const Program *program(self, int version) noexcept nogil      # returns NULL for a version that is not bound
