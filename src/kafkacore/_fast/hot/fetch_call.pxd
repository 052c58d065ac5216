"""One Fetch under way: its partitions and its answer. fetch.pyx reads the logs and waits; fetch_call.pyx reads the
request and writes the answer."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.hot.session_partitions cimport FetchSession, SessionPartition
from kafkacore._fast.hot.state cimport NodeState
from kafkacore._fast.wait.io cimport Job
from kafkacore._fast.log.read cimport ReadResult
from kafkacore._fast.wait.park cimport Parked, Waiter
from kafkacore._fast.log.partition cimport FetchView, Partition
from kafkacore._fast.plane.plane cimport Request
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.log.txn_index cimport AbortedTransaction as AbortedEntry
from kafkacore._fast.schema.view cimport Arena
from kafkacore._fast.schema.wire cimport FetchRequest, FetchResponse, PartitionData

cdef enum:
    TOPIC_ID_VERSION = 13

# One partition of the call, in the order of fetching.
ctypedef struct Part:
    Partition *partition          # counted; NULL when the node does not know it
    uint8_t topic_id[16]
    Slice topic                   # in the call's arena
    int32_t index
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int32_t max_bytes
    int64_t offset
    int64_t log_start_offset      # of the follower that asks
    SessionPartition *kept        # counted: its place in the session; NULL without one
    int32_t preferred             # the replica that the client should read from; -1: this one
    int16_t error
    AbortedEntry *aborted         # malloc'ed; aborted transactions within the read range, for READ_COMMITTED
    int64_t aborted_count
    ReadResult read               # holds a reference to its segment while `size` is above zero
    FetchView view
    Waiter waiter

ctypedef struct FetchCall:
    Parked parked                 # first, so that its address is the call's
    Job job                       # the job that reads where a read must wait for the disk
    Request *request              # NULL once the connection is closed
    NodeState *state
    int64_t now_ms                # when the request came, by the plane's clock
    int32_t follower_id           # the broker that asks; -1: a client
    int64_t follower_epoch        # its broker epoch; -1: not sent
    int64_t asked_ms              # monotonic; when the request came
    bint noted                    # the first read is over, so the follower's positions are noted
    bint from_any_replica         # the client may read from a follower (KIP-392)
    Arena arena
    int64_t held_bytes            # bytes of the plane's budget, since the call was first parked
    FetchRequest body             # its texts and arrays are valid until the call is parked
    FetchResponse answer
    FetchSession *session         # counted; NULL unless the fetch is incremental
    bint looks_at_all             # the whole session, because more than its partitions decide about the answer
    bint is_overtaken             # another request of the session has come: this one gets an error
    int32_t settled_count         # partitions of the session that have nothing new, and no part
    bint starts_session           # a full fetch that asks for a session
    Part *parts
    int32_t count
    int32_t capacity              # of `parts`
    int32_t known_count           # parts with a partition
    Part **named                  # the parts that the answer names; answers[i] belongs to named[i]
    PartitionData *answers
    int64_t bytes                 # bytes that the last read found
    bint sends_elsewhere          # a part names another replica: answer at once
    bint is_behind                # a read lies in an older segment: answer at once
    bint failed                   # a known partition has an error or diverges: answer at once
    bint reading                  # a job of the I/O pool owns `parts` until it is done
    bint waits_no_more            # the deadline passed while the job was reading
    int16_t forced_error          # the gate's error for every partition

# Fills `parts` with the request's partitions, or, after the request changed its session, with those of the session
# that changed. Nothing in `parts` points into the frame. 0; -1 when memory runs out; or the error code of the
# whole response.
cdef int call_partitions(FetchCall *call) noexcept nogil
# Before another look, which `release_reads` precedes: adds the partitions of the session that changed since the last
# one. False when memory runs out.
cdef bint call_look_again(FetchCall *call) noexcept nogil
# Under the session's lock: gives the parts that no answer named back to the session.
cdef void call_give_back(FetchCall *call) noexcept nogil
# Updates the session and fills request.answer, which takes over the references to segments. False when memory runs out.
cdef bint call_answer(FetchCall *call) noexcept nogil
cdef bint call_answer_error(FetchCall *call, int16_t error) noexcept nogil
