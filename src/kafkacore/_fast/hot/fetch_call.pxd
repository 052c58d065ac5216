"""One Fetch under way: its partitions and its answer. fetch.pyx reads and waits; fetch_call.pyx knows the wire."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.hot.fetch_session cimport FetchSession
from kafkacore._fast.hot.hot cimport HotState
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
    Partition *partition          # counted; NULL when it is not known here
    uint8_t topic_id[16]
    Slice topic                   # in the call's arena
    int32_t index
    int32_t current_leader_epoch
    int32_t last_fetched_epoch
    int32_t max_bytes
    int64_t offset
    int16_t error
    AbortedEntry *aborted   # that touch what was read, malloc'ed; of a reader of committed records
    int64_t aborted_count
    ReadResult read               # its segment is counted while `size` is above zero
    FetchView view
    Waiter waiter

ctypedef struct FetchCall:
    Parked parked                 # first: a call is found from its mail
    Job job                       # a read that must wait for the disk
    Request *request              # NULL once the connection is gone
    HotState *state
    int64_t now_ms                # of the plane's clock, when the request came
    Arena arena
    int64_t held_bytes            # counted in the plane's budget since it was parked
    FetchRequest body             # until it is parked: it points into the frame
    FetchResponse answer
    FetchSession *session         # counted: an incremental fetch's; else NULL
    bint starts_session           # a full fetch that asks for a session
    Part *parts
    int32_t count
    int32_t known_count           # parts with a partition
    Part **named                  # the parts that the answer names; answers[i] is named[i]'s
    PartitionData *answers
    int64_t bytes                 # that the last reading found
    bint failed                   # a known partition has an error or diverges: answer at once
    bint reading                  # a job of the I/O pool owns `parts` until it is done
    bint waits_no_more            # its deadline has passed meanwhile
    int16_t forced_error          # the gate's, for every partition

# Which partitions the request means: its own, or its session's after its changes. Nothing of `parts` points into the
# frame. 0, -1 without memory, or the error
# code of the whole response.
cdef int call_partitions(FetchCall *call) noexcept nogil
# Updates the session and fills request.answer; takes over the counts of the segments. False without memory.
cdef bint call_answer(FetchCall *call) noexcept nogil
cdef bint call_answer_error(FetchCall *call, int16_t error) noexcept nogil
