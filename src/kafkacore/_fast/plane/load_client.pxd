"""The client side: prebuilt requests, pipelined over many connections by one thread without the GIL, answers counted
and timed.

For benchmarks, where it must never be the bottleneck: a request's bytes are made once and sent as they are but for the
correlation id, and an answer may be thrown away inside the kernel.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    HEAD_BYTES = 12           # size, API key, version, correlation id: a copy of its own for each request under way
    ANSWER_HEAD_BYTES = 512   # of an answer, kept to look for its error code
    SUB_BUCKETS = 64          # of each power of two of ns: 1.6 % apart
    BUCKETS = 2560            # up to 2^40 ns

ctypedef struct Outbound:     # a prebuilt request
    const uint8_t *data
    int64_t size

ctypedef struct Channel:
    int handle
    int32_t in_flight
    int64_t next              # request to send: an index that goes round
    int64_t sent              # bytes of the request under way; -1: none
    int64_t sent_count
    int64_t answered_count
    uint8_t head[12]          # HEAD_BYTES
    int64_t *started_ns       # `depth` of them, by turn
    int32_t head_received
    int64_t left              # bytes of the answer under way that are still to come
    uint8_t answer[512]       # ANSWER_HEAD_BYTES
    bint want_write
    bint broken

ctypedef struct Run:
    Channel *channels
    int32_t channel_count
    int32_t depth
    int epoll
    const Outbound *requests
    int64_t request_count
    int64_t most_requests     # of all channels together; -1: until the deadline
    int64_t deadline_ns
    int32_t error_at          # where in an answer (without its size) an int16 error code lies; -1: not looked for
    bint discard              # the rest of an answer is dropped inside the kernel
    bint spin                 # never sleep
    uint8_t *scratch
    # Results.
    int64_t started
    int64_t answers
    int64_t errors
    int64_t broken
    int64_t bytes_sent
    int64_t bytes_received
    int64_t started_ns
    int64_t ended_ns
    int64_t buckets[2560]     # BUCKETS
