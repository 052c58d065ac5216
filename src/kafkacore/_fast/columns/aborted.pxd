"""The aborted transactions that a response to a Fetch lists, sorted by producer.

A producer's records are aborted from the first offset of its aborted transaction up to the marker that ends this
transaction (KIP-98). An `Aborted` belongs to one response, and its caller must check the batches of the response in
order. A look-up is a binary search, so a hostile response with n entries costs at most O(n log n).
"""

from libc.stdint cimport int64_t

ctypedef struct Transaction:
    int64_t producer_id
    int64_t first_offset

ctypedef struct Aborted:
    Transaction *entries         # sorted; NULL for read_uncommitted, where `known` is False
    int64_t *ended  # at the index of a producer's first entry: the number of the producer's ended entries
    int64_t count
    bint known

cdef void aborted_init(Aborted *aborted) noexcept nogil
cdef void aborted_free(Aborted *aborted) noexcept nogil
# Sets the transactions from pairs of producer id and first offset, or from None. Raises TypeError, ValueError,
# OverflowError and MemoryError.
cdef int aborted_set(Aborted *aborted, object pairs) except -1
# Returns whether the producer's batch that ends at `last_offset` is aborted.
cdef bint is_aborted(const Aborted *aborted, int64_t producer_id, int64_t last_offset) noexcept nogil
# Call this for an ABORT marker. The marker ends the producer's entries that begin before it.
cdef void end_aborted(Aborted *aborted, int64_t producer_id, int64_t marker_offset) noexcept nogil
