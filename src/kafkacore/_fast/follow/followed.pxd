"""A fetcher follows partitions that one other broker leads. It decides the next request and applies the answers
(Kafka's AbstractFetcherThread, FetchSessionHandler; KIP-227, KIP-320, KIP-595, KIP-903).

It has no socket, clock or thread. Its driver gets a request from it, sends the request, and passes back the answer or
reports that none came. One request is under way at a time. One thread owns a fetcher and everything in it, and calls
these functions without the GIL. Work that waits for a device runs on the I/O pool and comes back as mail to `inbox`;
the driver delivers the mail and asks again.

Modules: followed (the partitions and their states), local (this broker's logs), cut (truncations), take (records),
ask (requests), absorb (answers), fetcher (life, mail, time), handle (Python's face, for simulated worlds), driver (the
driver of processors), orders and driver_handle (how Python's thread reaches it).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.schema.view cimport Arena
from kafkacore._fast.schema.wire cimport FetchResponse
from kafkacore._fast.wait.io cimport Job
from kafkacore._fast.wait.mail cimport Inbox
from kafkacore._fast.wait.park cimport Parked, Waiter
from kafkacore._fast.world.agenda cimport Agenda

# The state of a partition. A Fetch includes only partitions in the first state.
cdef enum:
    FOLLOW_FETCHES = 0
    FOLLOW_DELAYED = 1      # waits until `due_ms` after an error
    FOLLOW_BLOCKED = 2      # waits while its log opens or rolls; then `kept` is appended
    FOLLOW_CUTS = 3         # a job truncates its log
    FOLLOW_ASKS_END = 4     # the leader's log does not have its offset: it asks for the leader's end by ListOffsets,
    FOLLOW_ASKS_START = 5   # and then for the leader's start
    FOLLOW_FAILED = 6       # fenced, or its disk failed: a new role begins it again
    FOLLOW_GONE = 7         # no longer followed; kept until the session and a job under way no longer need it

# A request.
cdef enum:
    ASK_NOTHING = 0
    ASK_FETCH = 1
    ASK_END = 2             # ListOffsets of the leader's end
    ASK_START = 3

# The work of a job on a log.
cdef enum:
    CUT_END = 0             # removes the records from an offset on
    CUT_ALL = 1             # removes all records; the log begins anew at an offset
    CUT_START = 2           # removes the records below an offset

# Events in the life of a partition, for the driver's log; the meanings of `first` and `second` stand in brackets.
cdef enum:
    BEFELL_CUT = 0          # truncated because its epochs diverge from the leader's (the end before, the end now)
    BEFELL_CUT_TO_END = 1   # truncated because its end was past the leader's (the same)
    BEFELL_RESTART = 2      # emptied because its end was below the leader's start (the same)
    BEFELL_CORRUPT = 3      # the leader sent records that cannot be appended (their offset, the error)
    BEFELL_NEWER_EPOCH = 4  # the leader sent a batch of a higher epoch than its own (its offset, that epoch)
    BEFELL_FENCED = 5       # not fetched any longer: the leader has a newer epoch (our epoch)
    BEFELL_FAILED = 6       # not fetched any longer: this broker cannot write its log (the error)
    BEFELL_REFUSED = 7      # the leader answered with an error that may last (the error)

cdef enum:
    MOST_EVENTS = 64        # events kept between two calls of the driver; further ones are only counted

ctypedef struct Event:
    Partition *partition    # counted
    int32_t kind
    int64_t first
    int64_t second

# A member of a circular list. `next` is NULL when it is in no list.
ctypedef struct Link:
    Link *next
    Link *previous

# Where the log of a partition ends, as a Fetch names it.
ctypedef struct Position:
    int64_t end_offset
    int64_t log_start_offset
    int32_t last_epoch      # -1: the log has no epoch
    int32_t leader_epoch

ctypedef struct Followed:
    Parked parked           # stands first. The fetcher, a job under way, waiters and mail each hold one count
    Waiter waiter           # in the log's list of blocked appends
    Job job                 # the truncation
    Fetcher *fetcher        # counted
    Partition *partition    # counted
    Followed *chain         # the next in its hash bucket
    Link in_all             # in the order of fetching
    Link in_changed         # the next Fetch looks at it
    Link in_line            # in the list of delayed partitions, or of those that ask for offsets
    int32_t state
    int64_t due_ms
    Position at             # the position from which it fetches
    Position sent           # the position that the session knows
    int64_t sent_in         # the session that knows it; see `Fetcher.session_number`
    int64_t lag             # -1: not known yet
    int64_t leader_end      # valid in FOLLOW_ASKS_START
    bint is_asked           # the ListOffsets under way asks for it in its present state
    uint8_t *kept           # records that wait, or NULL
    size_t kept_size
    int64_t kept_high_watermark
    int64_t kept_log_start
    # The truncation under way.
    bint job_is_out
    bint woken              # the log was ready before the job had come back
    bint begins_again       # a new role came meanwhile
    int cut_what            # CUT_...
    int32_t cut_epoch       # the leader epoch in which it was decided
    int64_t cut_to
    int cut_result

ctypedef struct FetcherLimits:
    int32_t node_id
    int32_t max_wait_ms         # replica.fetch.wait.max.ms
    int32_t min_bytes           # replica.fetch.min.bytes
    int32_t response_max_bytes  # replica.fetch.response.max.bytes
    int32_t max_bytes           # replica.fetch.max.bytes
    int32_t backoff_ms          # replica.fetch.backoff.ms

# Atomic: metrics read them on any thread.
ctypedef struct FetcherCounts:
    int64_t requests
    int64_t bytes               # bytes of appended records
    int64_t most_lag            # as of the last `fetcher_count`, like the next two
    int32_t partitions
    int32_t failed

# An answer to a Fetch that is taken in parts, so that a processor serves its clients meanwhile.
ctypedef struct Taking:
    bint is_under_way
    FetchResponse answer        # it points into the driver's bytes and the arena
    Arena arena
    int32_t topic               # the next one
    int32_t partition

ctypedef struct Fetcher:
    int32_t refs                # atomic: the owner, and every Followed
    Inbox *inbox                # its own inbox or its processor's
    Inbox own_inbox
    void (*on_ready)(Followed *each) noexcept nogil  # its log opened, rolled or was truncated
    void (*on_mail)(Fetcher *f) noexcept nogil       # mail changed the state of a partition: ask again. May be NULL
    void *driver
    int64_t now_ms              # monotonic; the last time that the driver passed
    FetcherLimits limits
    FetcherCounts counts
    int64_t broker_epoch        # this broker's epoch at its last registration
    int16_t fetch_version       # the version of the present connection
    int16_t offsets_version
    int under_way               # ASK_...: the request without an answer
    Taking taking
    bint was_full               # that request names all partitions
    int32_t session_id
    int32_t session_epoch
    int64_t session_number      # counts sessions; never 0
    int32_t session_size        # partitions in it
    int32_t busy                # partitions whose log opens, rolls or is truncated
    int32_t jobs_out
    int64_t kept_bytes
    Link all
    Link changed
    Link delayed                # the first is due first
    Link asks_end
    Link asks_start
    Followed **buckets
    uint32_t bucket_mask
    int32_t count               # in `buckets`
    Event events[MOST_EVENTS]
    int32_t event_count
    int64_t events_lost

# --- states; the owner's thread ---
cdef Followed *fetcher_find(const Fetcher *f, const uint8_t *topic_id, int32_t index) noexcept nogil
# Adds a partition in FOLLOW_FAILED, which holds a count of `p`. Returns NULL when memory runs out.
cdef Followed *fetcher_add(Fetcher *f, Partition *p) noexcept nogil
cdef void fetcher_forget(Followed *each) noexcept nogil     # takes it out of all lists and releases its count
cdef void fetcher_release(Fetcher *f) noexcept nogil
cdef void followed_set(Followed *each, int state) noexcept nogil
cdef void followed_delay(Followed *each) noexcept nogil
cdef void followed_go_on(Followed *each) noexcept nogil     # fetches from where its log ends
cdef void followed_drop_kept(Followed *each) noexcept nogil
cdef void followed_fail(Followed *each, int kind, int64_t why) noexcept nogil
cdef void followed_note_changed(Followed *each) noexcept nogil  # the next Fetch looks at it
cdef bint followed_is_in_session(const Followed *each) noexcept nogil
cdef void befell(Followed *each, int kind, int64_t first, int64_t second) noexcept nogil
cdef void link_init(Link *list) noexcept nogil
cdef void link_add(Link *list, Link *link) noexcept nogil   # adds it at the end, and removes it from its former list
cdef void link_remove(Link *link) noexcept nogil
cdef Followed *of_all(Link *link) noexcept nogil
cdef Followed *of_changed(Link *link) noexcept nogil
cdef Followed *of_line(Link *link) noexcept nogil
