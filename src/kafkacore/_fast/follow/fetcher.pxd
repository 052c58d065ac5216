"""Creates, connects and frees a fetcher, which follows the partitions that one other broker leads. Also handles the
fetcher's mail (messages from other threads, see mail.pxd) and its delays. followed.pxd has the contract.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkacore._fast.follow.followed cimport Fetcher, FetcherLimits
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.world.agenda cimport Agenda

# After a failure, returns NULL and stores -errno in `error`. `agenda` is the task queue of a simulation, or NULL
# outside a simulation. If `inbox` is NULL, the fetcher gets its own inbox.
cdef Fetcher *fetcher_new(const FetcherLimits *limits, Inbox *inbox, Agenda *agenda, int *error) noexcept nogil
# Begins to follow a partition, from the end of this broker's log on. If the fetcher already follows the partition in
# this epoch, nothing changes, except that a partition whose log has failed is no longer fetched. Returns 0 or -ENOMEM.
cdef int fetcher_follow(Fetcher *f, Partition *p, int32_t leader_epoch) noexcept nogil
cdef void fetcher_stop(Fetcher *f, Partition *p) noexcept nogil
cdef void fetcher_stop_all(Fetcher *f) noexcept nogil
# Notes the API versions that a new connection supports.
cdef void fetcher_connected(Fetcher *f, int16_t fetch_version, int16_t offsets_version) noexcept nogil
# Call this if the current request will get no readable answer. The next request begins a new session.
cdef void fetcher_failed(Fetcher *f) noexcept nogil
# Ends the delays that are over at `now_ms`, so that their partitions fetch again.
cdef void fetcher_advance(Fetcher *f, int64_t now_ms) noexcept nogil
# Returns the time at which the next delay ends, or -1 if there is none. Call this after `fetcher_ask`, which delays the
# partitions that a replication quota holds back.
cdef int64_t fetcher_due_ms(const Fetcher *f) noexcept nogil
# Updates `most_lag` and the numbers of partitions in `f.counts`.
cdef void fetcher_count(Fetcher *f) noexcept nogil
