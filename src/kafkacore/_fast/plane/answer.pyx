"""Implements answers as short lists of extents. The first few extents are stored inside the struct."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kafkacore._fast.log.segment cimport Segment, segment_release


cdef void answer_clear(Answer *a) noexcept nogil:
    cdef Extent *extents = answer_extents(a)
    cdef int32_t i
    for i in range(a.count):
        if extents[i].segment != NULL:
            segment_release(extents[i].segment)
    free(a.extents)
    free(a.memory)
    memset(a, 0, sizeof(Answer))


cdef int add_extent(Answer *a, const uint8_t *data, Segment *segment, int32_t cuts, int64_t offset,
                    int64_t size) noexcept nogil:
    cdef Extent *extents
    cdef Extent *extent
    cdef int32_t capacity
    if a.count == (a.capacity if a.extents != NULL else INLINE_EXTENTS):
        capacity = a.count * 2
        extents = <Extent *> malloc(capacity * sizeof(Extent))
        if extents == NULL:
            return -ENOMEM
        memcpy(extents, answer_extents(a), a.count * sizeof(Extent))
        free(a.extents)
        a.extents = extents
        a.capacity = capacity
    extent = &answer_extents(a)[a.count]
    extent.data = data
    extent.segment = segment
    extent.cuts = cuts
    extent.offset = offset
    extent.size = size
    a.count += 1
    a.total += size
    return 0


cdef int answer_add_memory(Answer *a, const uint8_t *data, int64_t size) noexcept nogil:
    return add_extent(a, data, NULL, 0, 0, size) if size > 0 else 0


cdef int answer_add_file(Answer *a, Segment *segment, int32_t cuts, int64_t offset, int64_t size) noexcept nogil:
    if size <= 0:
        segment_release(segment)
        return 0
    return add_extent(a, NULL, segment, cuts, offset, size)
