"""Defines a fetcher and the state of its partitions. A fetcher follows the partitions that one other broker leads. It
decides what its next request is, and applies the answers (KIP-227, KIP-320, KIP-595, KIP-903). In Kafka, the classes
AbstractFetcherThread and FetchSessionHandler do this.

A fetcher has no socket, clock or thread. Its driver gets a request from the fetcher, sends the request, and passes back
the answer or the failure. At most one request waits for its answer. One thread owns a fetcher and everything in it, and
calls these functions without the GIL. Work that waits for a disk runs as a job on the I/O pool (io.pxd). When the job
is done, the pool sends a mail (a message to the owner's thread, see mail.pxd) to `inbox`. The driver delivers the mail
and then gets the next request from the fetcher.

Modules: followed (the partitions and their states), local (this broker's logs), cut (truncations), take (records), ask
(requests), absorb (answers), fetcher (start, end, mail, timing), handle (the Python interface for the simulator),
driver (the driver that runs on the threads of the data plane), orders and driver_handle (how Python's thread controls
that driver).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.replication_quota cimport Quota
from kafkacore._fast.schema.view cimport Arena
from kafkacore._fast.schema.wire cimport FetchResponse
from kafkacore._fast.wait.io cimport Job
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter
from kafkacore._fast.world.agenda cimport Agenda

# The state of a partition. A Fetch includes only partitions in the state FOLLOW_FETCHES.
cdef enum:
    FOLLOW_FETCHES = 0
    FOLLOW_DELAYED = 1      # waits until `due_ms`, after an error or because its replication quota is used up
    FOLLOW_BLOCKED = 2      # its log is being opened or rolled; afterwards the fetcher appends the records in `kept`
    FOLLOW_CUTS = 3         # a job is truncating its log
    # The leader's log does not have the partition's offset, so the fetcher requests the leader's end offset by
    # ListOffsets.
    FOLLOW_ASKS_END = 4
    FOLLOW_ASKS_START = 5   # after FOLLOW_ASKS_END: the fetcher requests the leader's log start offset
    FOLLOW_FAILED = 6       # fenced, or its log directory failed; not fetched until the partition gets a new role
    FOLLOW_GONE = 7         # no longer followed; kept until neither the session nor a running job needs it
    # flush.messages requires a sync of the log. The next Fetch acknowledges the records to the leader, so it must come
    # after the sync.
    FOLLOW_SYNCS = 8

# The kind of a request.
cdef enum:
    ASK_NOTHING = 0
    ASK_FETCH = 1
    ASK_END = 2             # ListOffsets for the leader's end offset
    ASK_START = 3

# The kinds of job that run on a log (cut.pxd).
cdef enum:
    CUT_END = 0             # removes the records from an offset on
    CUT_ALL = 1             # removes all records; the log begins again at an offset
    CUT_START = 2           # removes the records below an offset

# Events of a partition, which the driver reports for the application log. In brackets: the fields `first` and `second`
# of the event.
cdef enum:
    BEFELL_CUT = 0          # truncated because its epochs diverge from the leader's (its log's end before and after)
    BEFELL_CUT_TO_END = 1   # truncated because it ended after the leader's log (its log's end before and after)
    BEFELL_RESTART = 2      # emptied because it ended before the leader's log starts (its log's end before and after)
    BEFELL_CORRUPT = 3      # the leader sent records that cannot be appended (their offset, the error)
    # The leader sent a batch with a higher epoch than the leader's own (the fetch offset, the leader's epoch).
    BEFELL_NEWER_EPOCH = 4
    BEFELL_FENCED = 5       # no longer fetched: the leader has a newer epoch (our epoch)
    BEFELL_FAILED = 6       # no longer fetched: this broker cannot write the partition's log (the error)
    BEFELL_REFUSED = 7      # the leader answered with an error that may persist (the error)

cdef enum:
    SHORTEST_DELAY_MS = 10  # the first delay after `followed_refused`
    DELAYS = 8              # the number of different delays: seven that double, and replica.fetch.backoff.ms
    MOST_EVENTS = 64        # at most this many events wait for the driver; further events are only counted

ctypedef struct Event:
    Partition *partition    # holds a reference
    int32_t kind
    int64_t first
    int64_t second

# A member of a circular list, or the head of the list. `next` is NULL when the member is in no list.
ctypedef struct Link:
    Link *next
    Link *previous

# The end of a partition's log, as a Fetch reports it to the leader.
ctypedef struct Position:
    int64_t end_offset
    int64_t log_start_offset
    int32_t last_epoch      # -1 if the log has no epoch
    int32_t leader_epoch

ctypedef struct Followed:
    # Must be the first field. Each of these holds a reference: the fetcher, a running job, a waiter, and a posted mail.
    Parked parked
    Waiter waiter           # in the log's list of blocked appends (`Log.blocked`), or in a list of the partition
    Job job                 # the job of the truncation
    Fetcher *fetcher        # holds a reference
    Partition *partition    # holds a reference
    Followed *chain         # the next in its hash bucket
    Followed *named_chain
    Link in_all             # in `Fetcher.all`, in the order of fetching
    Link in_changed         # in `Fetcher.changed`, the partitions that the next Fetch checks for changes
    Link in_line            # in a list of `Fetcher.delayed`, `asks_end` or `asks_start`, according to the state
    int32_t state
    int64_t due_ms
    int32_t refused         # the number of consecutive refusals by a broker that did not lead it (`followed_refused`)
    Position at             # the position from which it fetches
    Position sent           # the position that the leader's fetch session has
    int64_t sent_in         # the number of the session that has `sent`; see `Fetcher.session_number`
    int64_t lag             # -1 if not known yet; `followed_lags` sets it
    int64_t leader_end      # valid in FOLLOW_ASKS_START
    bint is_asked           # the current ListOffsets contains the partition, and `state` has not changed since
    uint8_t *kept           # records that wait to be appended, or NULL
    size_t kept_size
    int64_t kept_high_watermark
    int64_t kept_log_start
    # The current truncation.
    bint job_is_out
    bint woken              # the log became ready while the job was still running
    bint begins_again       # a new role began while the job was running
    int cut_what            # CUT_...
    int32_t cut_epoch       # the leader epoch in which the truncation was decided
    int64_t cut_to
    int cut_result

ctypedef struct FetcherLimits:
    int32_t node_id
    int32_t max_wait_ms         # replica.fetch.wait.max.ms
    int32_t min_bytes           # replica.fetch.min.bytes
    int32_t response_max_bytes  # replica.fetch.response.max.bytes
    int32_t max_bytes           # replica.fetch.max.bytes
    int32_t backoff_ms          # replica.fetch.backoff.ms
    Quota *quota                # the quota of throttled partitions (KIP-73), or NULL; must outlive the fetcher

# All fields are atomic, because any thread may read them for metrics.
ctypedef struct FetcherCounts:
    int64_t requests
    int64_t bytes               # bytes of appended records
    int64_t most_lag            # the greatest lag; the last call of `fetcher_count` set this field and the next two
    int32_t partitions
    int32_t failed

# An answer to a Fetch that is being applied in parts, so that a processor can serve its clients between the parts.
ctypedef struct Taking:
    bint is_under_way
    FetchResponse answer        # points into the driver's bytes and the arena
    Arena arena
    int32_t topic               # the index of the next topic
    int32_t partition

ctypedef struct Fetcher:
    int32_t refs                # atomic; the owner and every `Followed` hold a reference
    Inbox *inbox                # the fetcher's own inbox, or its processor's
    Inbox own_inbox
    void (*on_ready)(Followed *each) noexcept nogil  # runs after the partition's log was opened, rolled or truncated
    # Runs when a mail has changed the state of a partition. The driver then gets the next request. May be NULL.
    void (*on_mail)(Fetcher *f) noexcept nogil
    void *driver
    int64_t now_ms              # monotonic; the last time that the driver passed to the fetcher
    FetcherLimits limits
    FetcherCounts counts
    int64_t broker_epoch        # the epoch that this broker got at its last registration
    int16_t newest_fetch        # the newest version of Fetch that both ends of the present connection support
    int16_t fetch_version       # the version of the current Fetch, or of the last one
    int16_t offsets_version
    int under_way               # ASK_...: the kind of the request without an answer
    Taking taking
    bint was_full               # whether the Fetch without an answer names all partitions
    int32_t session_id
    int32_t session_epoch
    int64_t session_number      # counts the sessions; never 0
    int32_t session_size        # the number of partitions in the session
    int32_t busy                # the number of partitions whose log is being opened, rolled, truncated or synced
    int32_t syncing             # the number of these partitions whose log is being synced
    int32_t jobs_out            # the number of truncations on I/O threads (atomic; other threads read it)
    int64_t kept_bytes
    Link all
    Link changed
    # The delayed partitions, by the length of the delay. Each list is ordered by `due_ms`, because the partitions of
    # a list have the same delay. The last list has the delay `backoff_ms`.
    Link delayed[DELAYS]
    Link asks_end
    Link asks_start
    Followed **buckets          # the hash table of the partitions, by topic id and index
    Followed **named_buckets    # the hash table by topic name and index, of the same size
    uint32_t bucket_mask
    int32_t count               # the number of partitions in `buckets`
    # The number of partitions whose topic has no id. While it is not 0, Fetch identifies topics by name.
    int32_t without_id
    Event events[MOST_EVENTS]
    int32_t event_count
    int64_t events_lost

# --- states; for the owner's thread ---
cdef Followed *fetcher_find(const Fetcher *f, const uint8_t *topic_id, int32_t index) noexcept nogil
# Returns the partition that has this name and is still followed, or NULL. If a topic was deleted and created again, two
# partitions can have the same name.
cdef Followed *fetcher_find_named(const Fetcher *f, const char *topic, int32_t size, int32_t index) noexcept nogil
# Adds a partition in the state FOLLOW_FAILED, with a reference to `p`. Returns NULL if memory runs out.
cdef Followed *fetcher_add(Fetcher *f, Partition *p) noexcept nogil
# Removes the partition from all lists and releases the fetcher's reference.
cdef void fetcher_forget(Followed *each) noexcept nogil
cdef void fetcher_release(Fetcher *f) noexcept nogil
cdef void followed_set(Followed *each, int state) noexcept nogil
# The partition fetches again after replica.fetch.backoff.ms.
cdef void followed_delay(Followed *each) noexcept nogil
# The other broker does not lead the partition, or leads it in another epoch than ours. During an election, one of the
# two brokers applies the metadata first, so the other broker may get the role within milliseconds. So the first delay
# is short, and each further delay of the same role is twice as long, up to replica.fetch.backoff.ms. Apache Kafka
# always waits for replica.fetch.backoff.ms, so a record with acks=all can wait for 1 s after the election.
cdef void followed_refused(Followed *each) noexcept nogil
# Sets `lag`, and also `Partition.fetch_lag`, which metrics read.
cdef void followed_lags(Followed *each, int64_t lag) noexcept nogil
# The partition fetches again, from the end of its log. If flush.messages requires a sync, it fetches after the sync. A
# partition whose log has failed does not fetch.
cdef void followed_go_on(Followed *each) noexcept nogil
cdef void followed_drop_kept(Followed *each) noexcept nogil
cdef void followed_fail(Followed *each, int kind, int64_t why) noexcept nogil
cdef void followed_note_changed(Followed *each) noexcept nogil  # the next Fetch checks the partition for changes
cdef bint followed_is_in_session(const Followed *each) noexcept nogil
cdef void befell(Followed *each, int kind, int64_t first, int64_t second) noexcept nogil
cdef void link_init(Link *list) noexcept nogil
# Removes the link from its present list, and adds it at the end of `list`.
cdef void link_add(Link *list, Link *link) noexcept nogil
cdef void link_remove(Link *link) noexcept nogil
cdef Followed *of_all(Link *link) noexcept nogil
cdef Followed *of_changed(Link *link) noexcept nogil
cdef Followed *of_line(Link *link) noexcept nogil
