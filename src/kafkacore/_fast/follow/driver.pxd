"""Drives a fetcher over an outbound connection, on a processor and without the GIL.

The processor owns a driver and its fetcher. Python's thread reaches them by orders, which are mail to the processor,
and hears of them by a bell: the counters below are atomic, and events are passed over when Python has read the last.
Python makes the connection when `link` says LINK_WANTED, and hands the socket over.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.follow.followed cimport MOST_EVENTS, Event, Fetcher, FetcherLimits
from kafkacore._fast.plane.connection cimport Reactor
from kafkacore._fast.plane.outbound cimport Outbound
from kafkacore._fast.plane.plane cimport Plane
from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.wait.timer cimport Timer

cdef enum:
    LINK_IDLE = 0           # there is nothing to fetch
    LINK_WANTED = 1
    LINK_UP = 2
    LINK_ENDED = 3          # the driver is shut, and nothing of it is left on the processor

cdef enum:
    MOST_CLIENT_ID = 128
    COUNTED_EVERY_MS = 1000  # a count looks at every partition

ctypedef struct Driver:
    Outbound out            # first
    int32_t refs            # atomic: the handle, the processor, and each order under way
    Fetcher *fetcher        # counted
    Timer timer             # the end of the next pause, of a partition or of the driver, or of the wait for an answer
    char client_id[MOST_CLIENT_ID]
    int16_t client_id_size
    int32_t correlation_id
    int64_t timeout_ms      # replica.socket.timeout.ms
    int64_t asked_ms        # when the request under way was sent
    int64_t rests_until_ms  # after an answer with an error of its own
    int64_t counted_ms
    bint is_shut
    bint has_answered       # this connection
    # For Python.
    Inbox bell
    Mail news
    int32_t link            # atomic: LINK_...
    int64_t orders          # atomic: how many were carried out
    int32_t answered        # atomic: connections that had an answer without an error
    int32_t losses          # atomic: how many connections were lost
    int32_t lost_why        # atomic: the last one's reason, LOST_... of outbound.pxd
    int32_t refusals        # atomic: answers in a row with an error of their own
    int32_t refusal         # atomic: the last one's error
    int32_t event_count     # atomic: of `events`; only Python's thread sets it to 0, and only the processor to more
    Event events[MOST_EVENTS]

# NULL with -errno in `error`. It begins on the processor with its first order.
cdef Driver *driver_new(Reactor *reactor, Plane *plane, const FetcherLimits *limits, int64_t most_answer_bytes,
                        int *error) noexcept nogil
cdef void driver_release(Driver *d) noexcept nogil
# The rest runs on the processor.
cdef void driver_begin(Driver *d) noexcept nogil      # no-op when it has begun
cdef void driver_attach(Driver *d, int handle, int16_t fetch_version, int16_t offsets_version,
                        int64_t broker_epoch) noexcept nogil
cdef void driver_look(Driver *d) noexcept nogil       # goes on in this turn or the next
cdef void driver_lose(Driver *d, int why) noexcept nogil
cdef void driver_shut(Driver *d) noexcept nogil       # LINK_ENDED follows, when no job is out
