"""The requests of a fetcher. Contract in followed.pxd."""

from libc.stdint cimport int16_t, int32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.follow.followed cimport Fetcher

# The versions of Fetch that name topics by id (KIP-516), and the versions of ListOffsets with leader epochs. Every
# KRaft node since 3.1 supports at least one of each.
cdef enum:
    LEAST_FETCH = 13
    MOST_FETCH = 18
    LEAST_LIST_OFFSETS = 4
    MOST_LIST_OFFSETS = 11

# Writes the body of the next request, notes that it is under way, and returns its kind: ASK_FETCH, ASK_END or
# ASK_START. Returns ASK_NOTHING when there is nothing to ask or a request is under way, and -ENOMEM.
cdef int fetcher_ask(Fetcher *f, Writer *out) noexcept nogil
# The kind of the next request. ASK_FETCH also when there may be nothing to fetch.
cdef int fetcher_would_ask(const Fetcher *f) noexcept nogil
