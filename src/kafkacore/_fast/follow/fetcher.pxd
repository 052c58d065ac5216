"""The life of a fetcher, its mail and its time. Contract in followed.pxd."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkacore._fast.follow.followed cimport Fetcher, FetcherLimits
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.world.agenda cimport Agenda

# Returns NULL with -errno in `error`. With `agenda` NULL it lives in the real world; with `inbox` NULL it gets an inbox
# of its own.
cdef Fetcher *fetcher_new(const FetcherLimits *limits, Inbox *inbox, Agenda *agenda, int *error) noexcept nogil
# Begins to follow a partition from the end of its log on. If it follows the partition in this epoch already, nothing
# changes. Returns 0 or -ENOMEM.
cdef int fetcher_follow(Fetcher *f, Partition *p, int32_t leader_epoch) noexcept nogil
cdef void fetcher_stop(Fetcher *f, Partition *p) noexcept nogil
cdef void fetcher_stop_all(Fetcher *f) noexcept nogil
# Notes the versions that a new connection supports.
cdef void fetcher_connected(Fetcher *f, int16_t fetch_version, int16_t offsets_version) noexcept nogil
# Call it when no readable answer came: the next request begins a new session.
cdef void fetcher_failed(Fetcher *f) noexcept nogil
# Lets partitions whose delay is over fetch again. Returns the time at which the next delay is over, or -1.
cdef int64_t fetcher_advance(Fetcher *f, int64_t now_ms) noexcept nogil
# Brings the counts of lag and partitions up to date.
cdef void fetcher_count(Fetcher *f) noexcept nogil
