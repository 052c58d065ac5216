"""Converts the events and the counts of a fetcher (followed.pxd) to Python objects."""

from libc.stdint cimport int32_t

from kafkacore._fast.follow.followed cimport Event, FetcherCounts as Counts

cdef list take_events(Event *events, int32_t count)  # releases the events' references to partitions
cdef object counts_of(const Counts *counts)
