"""An answer is a response that is ready to be sent: a list of extents, which are sent in order. Each extent is a piece
of memory or a range of a file.

An `Answer` belongs to one thread at a time: first to the thread that builds it, then to the connection's processor (the
thread that serves the connection). An extent of a file holds a reference to its log segment until the extent is sent or
dropped.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.log.segment cimport Segment

cdef enum:
    INLINE_EXTENTS = 4


ctypedef struct Extent:
    const uint8_t *data   # memory, or NULL for a file range
    Segment *segment      # for a file range, a reference to the segment; else NULL
    int64_t offset        # in the file
    int32_t cuts          # the segment's counter of truncations when the range was found
    int64_t size


ctypedef struct Answer:
    uint8_t *memory       # the block from malloc into which memory extents point
    Extent *extents       # from malloc; NULL while `inline_extents` suffices, so that an `Answer` can be copied
    int32_t count
    int32_t capacity
    int32_t next          # the extent that is being sent
    int64_t sent          # bytes of this extent that have been sent
    int64_t total         # all bytes, including the size prefix
    Extent inline_extents[INLINE_EXTENTS]


cdef void answer_clear(Answer *a) noexcept nogil  # frees the memory and releases the segments
# The next two functions return 0 or -ENOMEM. If `answer_add_file` succeeds, it takes over one reference to `segment`.
# `cuts` is the value that the segment's counter of truncations had when the range was found. If the counter changes
# before the range has been sent, the processor closes the connection, and the client never gets the whole answer.
cdef int answer_add_memory(Answer *a, const uint8_t *data, int64_t size) noexcept nogil
cdef int answer_add_file(Answer *a, Segment *segment, int32_t cuts, int64_t offset, int64_t size) noexcept nogil


cdef inline Extent *answer_extents(Answer *a) noexcept nogil:
    return a.extents if a.extents != NULL else a.inline_extents
