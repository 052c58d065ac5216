"""Writes the requests of a fetcher, which follows the partitions that one other broker leads. followed.pxd has the
contract."""

from libc.stdint cimport int16_t, int32_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.follow.followed cimport Fetcher

# Version 12 of Fetch is the first version that reports where a follower's log diverges from the leader's (Kafka 2.7).
# It is also the last version that identifies topics by name (KIP-516). All versions of ListOffsets from
# LEAST_LIST_OFFSETS to MOST_LIST_OFFSETS have leader epochs.
cdef enum:
    LEAST_FETCH = 12
    FETCH_BY_NAME = 12
    MOST_FETCH = 18
    LEAST_LIST_OFFSETS = 4
    MOST_LIST_OFFSETS = 11

# Writes the body of the next request, makes it the current request, and returns its kind: ASK_FETCH, ASK_END or
# ASK_START (followed.pxd). Returns ASK_NOTHING if no request is needed or the current request has no answer yet.
# Returns -ENOMEM if memory runs out.
cdef int fetcher_ask(Fetcher *f, Writer *out) noexcept nogil
# Sets `fetch_version` for the next Fetch. Call this before you write the header of that request.
cdef void fetcher_choose_version(Fetcher *f) noexcept nogil
# Returns the kind of the next request. The kind can be ASK_FETCH even if there is nothing to fetch.
cdef int fetcher_would_ask(const Fetcher *f) noexcept nogil
