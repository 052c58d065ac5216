"""Frames and the budget that bounds them (queued.max.request.bytes).

A connection reserves its frame from the plane's budget when it knows the frame's length. Without room the connection
waits unread, first come first served. A large frame is reserved in steps, each as large as the bytes received so far,
so the claimed size alone takes no memory from others. Its buffer is whole from the start; pages are committed as bytes
arrive. Each thread recycles frames by size class: a Produce of a megabyte lands in warm pages.

Frames that have begun go before new ones, because their end returns memory. One of them at a time may overdraw, so that
they never wait for each other's bytes: it gets all that it lacks, at most socket.request.max.bytes beyond the limit.

A parked request gives its frame back and counts what it still keeps with `budget_park`. Clients choose how long their
requests stay parked, so these may fill at most half of the budget: frames always have the other half. A large Fetch
that finds no room is answered at once instead of parked; a small one waits uncounted. A Produce has appended its
records and must wait for their acknowledgements, so it is counted even beyond this half. Neither of them ever waits for
memory, so a full budget cannot deadlock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Mutex

# A connection that waits for memory.
ctypedef struct Reservation:
    Mail mail             # posted when the bytes are granted
    Inbox *inbox
    Reservation *next
    int64_t size
    int64_t rest          # bytes that a frame under way lacks, `size` included; 0: the frame has not begun
    bint waiting
    bint overdraft        # granted beyond the limit

ctypedef struct WaitingLine:
    Reservation *oldest
    Reservation *newest

cdef enum:
    CACHE_LINE_BYTES = 64
    FRAME_STEP_BYTES = 2 << 20  # the first step: a batch of the default message.max.bytes and its request

ctypedef struct Budget:
    Mutex lock
    int64_t limit
    int64_t used          # atomic
    int64_t parked        # atomic: the part of `used` that parked requests keep
    int64_t parked_limit
    int32_t waiting       # atomic: entries of the lines below
    WaitingLine under_way  # `lock` guards it and the fields below; goes first
    WaitingLine new       # in order of arrival
    bint overdrawn        # a frame has overdrawn

cdef int budget_init(Budget *budget, int64_t limit) noexcept nogil
cdef void budget_close(Budget *budget) noexcept nogil
# True: granted now. False: queued; the mail is posted when it is granted. A size above the limit is never granted;
# callers refuse it first (socket.request.max.bytes).
cdef bint budget_reserve(Budget *budget, Reservation *reservation, int64_t size) noexcept nogil
# The same for the next step of a frame under way. Once granted, `reservation` has the granted size.
cdef bint budget_grow(Budget *budget, Reservation *reservation, int64_t size, int64_t rest) noexcept nogil
# True: it waited and no longer does. False: it was not waiting; if it was queued, it is granted and its mail is posted.
cdef bint budget_cancel(Budget *budget, Reservation *reservation) noexcept nogil
cdef void budget_release(Budget *budget, int64_t size, bint overdraft) noexcept nogil
# Counts what a parked request keeps. False: it would pass the bound and is not counted; `must` counts it regardless.
cdef bint budget_park(Budget *budget, int64_t size, bint must) noexcept nogil
cdef void budget_unpark(Budget *budget, int64_t size) noexcept nogil

ctypedef struct Frame:
    int32_t refs          # atomic
    int32_t overdraft     # part of `reserved` is beyond the budget's limit
    int64_t size          # of the request, without its 4 byte prefix
    int64_t received
    int64_t capacity
    int64_t reserved      # it may receive up to here; returns to `budget` with the last reference
    Budget *budget        # NULL: not counted
    uint8_t *data

# NULL when memory runs out. Its data begins `skew` bytes into a cache line if there is room for that.
cdef Frame *frame_new(Budget *budget, int64_t size, int64_t reserved, int skew) noexcept nogil
cdef void frame_hold(Frame *frame) noexcept nogil
cdef void frame_release(Frame *frame) noexcept nogil
# The steps of `frame_release` for a thread that holds the GIL: only `frame_return` locks. It follows a drop that
# returns True.
cdef bint frame_drop(Frame *frame) noexcept nogil  # True: that was the last reference
cdef void frame_return(Frame *frame) noexcept nogil
cdef void frames_trim() noexcept nogil  # frees the frames that this thread keeps for recycling
