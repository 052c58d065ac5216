"""A driver sends the requests of a fetcher over an outbound connection, and passes the answers to the fetcher. A
fetcher follows the partitions that one other broker leads (followed.pxd). A driver runs without the GIL on a processor,
a thread that mainly serves clients (processor.pxd).

The processor owns the driver and the fetcher. Python's thread sends orders to the driver, each in a mail (a message to
the processor, see mail.pxd). Python's thread reads some fields of the driver, which are atomic. When one of them has
changed, the driver posts the mail `news` to the inbox `bell` of Python's thread. The driver passes new events to Python
only after Python has read the previous ones. When `link` is LINK_WANTED, Python connects a socket and passes it to the
driver.
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
    LINK_WANTED = 1         # the driver needs a socket
    LINK_UP = 2
    LINK_ENDED = 3          # the driver is shut, and the processor no longer uses it

cdef enum:
    MOST_CLIENT_ID = 128
    COUNTED_EVERY_MS = 1000  # the interval between updates of the fetcher's metrics; an update visits every partition

ctypedef struct Driver:
    Outbound out            # must be the first field
    int32_t refs            # atomic; held by the handle, the processor, and each order that has not been executed
    Fetcher *fetcher        # holds a reference
    # Fires when the next pause of a partition or of the driver ends, or when the wait for an answer times out.
    Timer timer
    char client_id[MOST_CLIENT_ID]
    int16_t client_id_size
    int32_t correlation_id
    int64_t timeout_ms      # replica.socket.timeout.ms
    int64_t asked_ms        # when the current request was sent
    int64_t rests_until_ms  # the end of the driver's pause, after an answer with a top-level error
    int64_t counted_ms
    bint is_shut
    bint has_answered       # whether an answer has arrived on the present connection
    # The fields that Python reads.
    Inbox bell
    Mail news
    int32_t link            # atomic: LINK_...
    int64_t orders          # atomic: the number of executed orders
    int32_t answered        # atomic: the number of connections on which an answer without an error arrived
    int32_t losses          # atomic: the number of lost connections
    int32_t lost_why        # atomic: why the last connection was lost; LOST_... of outbound.pxd
    int32_t refusals        # atomic: the number of consecutive answers with a top-level error
    int32_t refusal         # atomic: the error code of the last such answer
    # Atomic: the size of `events`; only Python's thread sets it to 0, and only the processor raises it.
    int32_t event_count
    Event events[MOST_EVENTS]

# After a failure, returns NULL and stores -errno in `error`. The driver starts on the processor with its first order.
cdef Driver *driver_new(Reactor *reactor, Plane *plane, const FetcherLimits *limits, int64_t most_answer_bytes,
                        int *error) noexcept nogil
cdef void driver_release(Driver *d) noexcept nogil
# The functions below run on the processor.
cdef void driver_begin(Driver *d) noexcept nogil      # does nothing if the driver has begun
cdef void driver_attach(Driver *d, int handle, int16_t fetch_version, int16_t offsets_version,
                        int64_t broker_epoch) noexcept nogil
# Makes the driver continue in the current pass of the processor's event loop, or in the next one.
cdef void driver_look(Driver *d) noexcept nogil
cdef void driver_lose(Driver *d, int why) noexcept nogil
cdef void driver_shut(Driver *d) noexcept nogil       # LINK_ENDED follows when no job is running
