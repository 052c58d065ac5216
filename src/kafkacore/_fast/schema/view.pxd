"""The view sink: messages as C structs whose strings, bytes and records point into the frame.

A field's C type follows from its table's: bool and int8 `int8_t`, int16 `int16_t`, uint16 `uint16_t`, int32 `int32_t`,
int64 `int64_t`, float64 `double`, uuid `uint8_t[16]`, string/bytes/records `Slice` (size -1 is null), arrays `Array`
(count -1 is null; elements are structs, Slices, or plain numbers of the host's byte order), structs by value. wire.pxd
has the structs and says which versions of which messages can be viewed.

A view lives as long as both its frame and its arena; it owns nothing. Any thread may read and write views; an arena
and a writer are one thread's at a time.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t

from kafkacore._fast.base.cursor cimport Reader, Writer
from kafkacore._fast.schema.schema cimport Shape, Slice

ctypedef Shape Program

# Memory for the arrays of one message: it is allocated piece by piece and freed all at once. An allocation past `limit`
# returns NULL.
ctypedef struct ArenaBlock:
    ArenaBlock *next
    size_t capacity

ctypedef struct Arena:
    ArenaBlock *blocks      # the newest first
    uint8_t *at             # free bytes of the newest
    uint8_t *end
    size_t taken            # bytes of all blocks
    size_t limit

cdef void arena_init(Arena *arena, size_t limit) noexcept nogil
cdef void *arena_alloc(Arena *arena, size_t size) noexcept nogil   # zeroed, aligned to 8; NULL past the limit
cdef void arena_reset(Arena *arena) noexcept nogil                 # keeps one block
cdef void arena_free(Arena *arena) noexcept nogil

# A place in a written message where `slice.size` bytes were left out.
ctypedef struct Gap:
    size_t position         # in the writer
    const Slice *slice

# 0, or a fault (schema.pxd). Fills `out` with defaults first. After it the reader is at the end of the message; the
# caller decides whether more bytes may follow. For the text of a fault, decode the frame again with the message's
# class.
cdef int view_read(const Program *program, Reader *reader, void *out, Arena *arena) noexcept nogil
# 0, or a fault with the writer marked. For a `records` slice that has a size but no data, it writes no bytes and notes
# a Gap.
cdef int view_write(const Program *program, const void *src, Writer *writer, Gap *gaps, int max_gaps,
                    int *gap_count) noexcept nogil
cdef void view_default(const Program *program, void *out) noexcept nogil

cdef class Binding:
    """The programs of one message. `structs` gives each struct's size and the offset of each field."""
    cdef readonly str name
    cdef readonly int lowest
    cdef readonly int highest
    cdef const Program *programs[32]

    cdef const Program *program(self, int version) noexcept nogil      # NULL for a version that is not bound
