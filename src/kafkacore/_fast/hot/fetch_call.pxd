"""A call: one Fetch that has no answer yet, with its partitions and the answer that is being made. fetch.pyx reads the
logs and waits. fetch_call.pyx reads the request and writes the answer. A parked call waits for an event in a partition,
or for a timeout (park.pxd).
"""

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
from kafkacore._fast.world.environment cimport Clock

cdef enum:
    TOPIC_ID_VERSION = 13

# One partition of the call. The parts are in the order in which the call reads them.
ctypedef struct Part:
    Partition *partition          # holds a reference; NULL for an unknown partition
    uint8_t topic_id[16]
    Slice topic                   # in the call's arena
    int32_t index
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int32_t max_bytes
    int64_t offset
    int64_t log_start_offset      # the log start offset of the follower that sent the request
    bint counted                  # whether this part has been counted as a fetch request of its topic
    SessionPartition *kept        # holds a reference to the partition's entry in the session; NULL without a session
    int32_t preferred             # the replica from which the client should read; -1 for this node's replica
    int16_t error
    AbortedEntry *aborted         # from malloc; aborted transactions in the range that was read, for READ_COMMITTED
    int64_t aborted_count
    ReadResult read               # holds a reference to its segment while `size` is above zero
    FetchView view
    Waiter waiter

ctypedef struct FetchCall:
    Parked parked                 # must be the first field, so that it has the address of the call
    Job job                       # the job that reads if a read must wait for the disk
    Request *request              # NULL after the connection has closed; jobs on the I/O pool must not use it
    NodeState *state
    const Clock *clock            # the plane's clock; it outlives all calls
    int64_t now_ms                # time of receipt by the plane's clock
    int32_t follower_id           # the broker that sent the request; -1 for a client
    int64_t follower_epoch        # the broker epoch of the follower; -1 if not sent
    int64_t asked_ms              # time of receipt by the monotonic clock
    bint noted                    # whether the first read has recorded the follower's positions
    bint from_any_replica         # the client may read from a follower (KIP-392)
    Arena arena
    int64_t held_bytes            # bytes that the plane's budget counts since the call was first parked (memory.pxd)
    int32_t watched               # number of partitions that the call waits for; 0 if it does not wait
    FetchRequest body             # the request; its texts and arrays are valid only until the call is parked
    FetchResponse answer
    FetchSession *session         # holds a reference; NULL unless the fetch is incremental
    bint looks_at_all  # the call reads all partitions of its session, not only the changed ones
    bint is_overtaken             # a newer request of the session has arrived, so this call's answer is an error
    int32_t settled_count         # number of the session's partitions that have nothing new, and therefore no part
    bint starts_session           # this is a full fetch, and the client asks for a new session
    Part *parts
    int32_t count
    int32_t capacity              # capacity of `parts`
    int32_t known_count           # number of parts whose partition is known
    Part **named                  # the parts that the answer contains; `answers[i]` belongs to `named[i]`
    PartitionData *answers
    int64_t bytes                 # number of bytes that the last read found
    bint sends_elsewhere          # a part refers the client to another replica: answer at once
    bint is_behind                # a read is from an older segment: answer at once
    bint failed                   # a known partition has an error or diverges: answer at once
    bint reading                  # a job on the I/O pool owns `parts` until the job has ended
    bint waits_no_more            # the deadline has passed while the job was reading
    int16_t forced_error          # the error that the gate sets for every partition; NONE if it sets no error

# Fills `parts` with the request's partitions, or, if the request has a session, with the session's changed partitions.
# Nothing in `parts` points into the frame (the bytes of the request). Returns 0, -1 if no memory is left, or the error
# code of the whole response.
cdef int call_partitions(FetchCall *call) noexcept nogil
# Prepares another read of the partitions: adds the partitions of the session that have changed since the last read.
# Call `release_reads` first. Returns False if no memory is left.
cdef bint call_look_again(FetchCall *call) noexcept nogil
# Gives the partitions of all parts back to the session, for a call that ends without an answer. Call this with the
# session's lock held.
cdef void call_give_back(FetchCall *call) noexcept nogil
# Updates the session and fills `request.answer`, which takes over the references to segments. Returns False if no
# memory is left.
cdef bint call_answer(FetchCall *call) noexcept nogil
cdef bint call_answer_error(FetchCall *call, int16_t error) noexcept nogil
