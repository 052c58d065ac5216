"""Implements the look-up of aborted transactions. aborted.pxd has the contract."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset


cdef void aborted_init(Aborted *aborted) noexcept nogil:
    memset(aborted, 0, sizeof(Aborted))


cdef void aborted_free(Aborted *aborted) noexcept nogil:
    free(aborted.entries)
    free(aborted.ended)
    aborted_init(aborted)


cdef int aborted_set(Aborted *aborted, object pairs) except -1:
    cdef int64_t i = 0
    cdef int64_t count
    if pairs is None:
        return 0
    listed = sorted(pairs)
    count = len(listed)
    aborted.entries = <Transaction *> calloc(count + 1, sizeof(Transaction))
    aborted.ended = <int64_t *> calloc(count + 1, sizeof(int64_t))
    if aborted.entries == NULL or aborted.ended == NULL:
        aborted_free(aborted)
        raise MemoryError
    aborted.known = True
    aborted.count = count
    for producer_id, first_offset in listed:
        aborted.entries[i].producer_id = producer_id
        aborted.entries[i].first_offset = first_offset
        i += 1
    return 0


cdef int64_t find(const Aborted *aborted, int64_t producer_id, int64_t offset) noexcept nogil:
    """Returns the number of entries that sort at or before (producer_id, offset)."""
    cdef int64_t low = 0
    cdef int64_t high = aborted.count
    cdef int64_t middle
    cdef const Transaction *entry
    while low < high:
        middle = (low + high) // 2
        entry = &aborted.entries[middle]
        if entry.producer_id < producer_id or (entry.producer_id == producer_id and entry.first_offset <= offset):
            low = middle + 1
        else:
            high = middle
    return low


cdef int64_t first_of(const Aborted *aborted, int64_t producer_id) noexcept nogil:
    return 0 if producer_id == INT64_MIN else find(aborted, producer_id - 1, INT64_MAX)


cdef bint is_aborted(const Aborted *aborted, int64_t producer_id, int64_t last_offset) noexcept nogil:
    cdef int64_t first
    if aborted.count == 0:
        return False
    first = first_of(aborted, producer_id)
    return find(aborted, producer_id, last_offset) - first > aborted.ended[first]


cdef void end_aborted(Aborted *aborted, int64_t producer_id, int64_t marker_offset) noexcept nogil:
    cdef int64_t first, begun
    if aborted.count == 0:
        return
    first = first_of(aborted, producer_id)
    begun = find(aborted, producer_id, marker_offset) - first
    if begun > aborted.ended[first]:
        aborted.ended[first] = begun
