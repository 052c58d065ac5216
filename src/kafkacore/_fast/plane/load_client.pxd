"""The client of benchmarks. One thread, without the GIL, sends prebuilt requests over many connections. Each connection
may have several unanswered requests. The client counts the answers and measures their latency.

The client must never be the bottleneck. So it makes the bytes of a request only once, and then changes only the
correlation id. The client can also let the kernel discard the answers.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    # The size of a request's head: size, API key, version, correlation id. Each channel has its own copy of the head
    # for the request that it sends.
    HEAD_BYTES = 12
    ANSWER_HEAD_BYTES = 512   # the first bytes of an answer, which the client keeps to read the error code
    SUB_BUCKETS = 64          # the number of buckets for each power of two of ns; they are 1.6 % apart
    BUCKETS = 2560            # up to 2^40 ns

ctypedef struct Outbound:     # a prebuilt request
    const uint8_t *data
    int64_t size

ctypedef struct Channel:
    int handle
    int32_t in_flight
    int64_t next              # index of the next request, modulo the number of requests
    int64_t sent              # the sent bytes of the current request; -1 if there is no current request
    int64_t sent_count
    int64_t answered_count
    uint8_t head[12]          # HEAD_BYTES
    int64_t *started_ns       # a ring of `depth` times
    int32_t head_received
    int64_t left              # bytes of the current answer that are still to come
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
    int64_t most_requests     # the limit for the requests of all channels together; -1 to run until the deadline
    int64_t deadline_ns
    int32_t error_at          # the offset of an int16 error code after an answer's size prefix; -1 if there is none
    bint discard              # lets the kernel discard the rest of an answer
    bint spin                 # the client never sleeps
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
