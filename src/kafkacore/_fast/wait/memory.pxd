"""Frames (the buffers of requests), and the budget that bounds their memory (queued.max.request.bytes).

When a connection has read the length of a frame, it reserves the frame's memory from the budget of its plane (a group
of listeners with common limits, see plane.pxd). If the budget has no room, the processor (the thread that serves the
connection) stops reading from the connection until the budget has room. Memory for a large frame is reserved in steps,
each as large as the bytes received so far. So a client cannot take memory from others just by announcing a large size.
The buffer is allocated as a whole, but the kernel commits its pages only as bytes arrive. Each thread recycles frames
by size class, so a Produce request of a megabyte usually gets pages that the kernel has already committed.

A frame has begun when it has some memory. Begun frames get memory before new frames, because a frame releases its
memory only after it is complete and handled. One begun frame at a time may overdraw the budget. Otherwise several begun
frames could wait for each other's bytes forever. The frame that overdraws gets all the memory that it needs, at most
socket.request.max.bytes beyond the limit.

A parked request waits for data, acknowledgements or a timeout. It has given its frame back. `budget_park` counts the
memory that the request keeps. Clients choose how long their requests stay parked, so parked requests may fill at most
half of the budget. The other half is reserved for frames. If a large Fetch finds no room in the half for parked
requests, it is answered immediately instead of being parked. A small Fetch that finds no room is parked, but its memory
is not counted. A Produce has already appended its records and must wait for acknowledgements, so it is counted even
beyond that half. No request ever waits for memory in order to be parked, so a full budget cannot cause a deadlock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.wait.mail cimport Inbox, Mail
from kafkacore._fast.base.sync cimport Mutex

# A connection that waits for memory.
ctypedef struct Reservation:
    Mail mail             # wakes the connection's thread (mail.pxd); posted when the bytes are granted
    Inbox *inbox
    Reservation *next
    int64_t size          # the bytes of this step
    int64_t rest          # bytes that a begun frame still needs, this step included; 0 if the frame has not begun
    bint waiting
    bint overdraft        # granted beyond the limit

ctypedef struct WaitingLine:
    Reservation *oldest
    Reservation *newest

cdef enum:
    CACHE_LINE_BYTES = 64
    FRAME_STEP_BYTES = 2 << 20  # the first step; enough for a request with one batch of the default message.max.bytes

ctypedef struct Budget:
    Mutex lock
    int64_t limit
    int64_t used          # atomic
    int64_t parked        # atomic: the part of `used` that parked requests keep
    int64_t parked_limit
    int32_t waiting       # atomic: the number of reservations in the two queues below
    WaitingLine under_way  # begun frames, which get memory before `new`; `lock` guards this field and those below
    WaitingLine new       # frames that have not begun, in order of arrival
    bint overdrawn        # a frame has overdrawn the budget

cdef int budget_init(Budget *budget, int64_t limit) noexcept nogil
cdef void budget_close(Budget *budget) noexcept nogil
# Returns True if the reservation is granted now. Otherwise queues the reservation and returns False. When the budget
# grants a queued reservation, it posts the reservation's mail. A size above the limit is never granted, so callers must
# refuse such a size first (socket.request.max.bytes).
cdef bint budget_reserve(Budget *budget, Reservation *reservation, int64_t size) noexcept nogil
# Reserves the next step of a frame that has begun. Returns the same values as `budget_reserve`. Once the step is
# granted, `reservation.size` is the granted size: `size`, or `rest` if the frame overdraws the budget.
cdef bint budget_grow(Budget *budget, Reservation *reservation, int64_t size, int64_t rest) noexcept nogil
# Cancels a waiting reservation and returns True. Returns False if the reservation is not waiting. A queued reservation
# that no longer waits has been granted, and its mail has been posted.
cdef bint budget_cancel(Budget *budget, Reservation *reservation) noexcept nogil
cdef void budget_release(Budget *budget, int64_t size, bint overdraft) noexcept nogil
# Counts the memory that a parked request keeps. If parked requests would then exceed their share of the budget, counts
# nothing and returns False. With `must`, counts the memory even beyond this share.
cdef bint budget_park(Budget *budget, int64_t size, bint must) noexcept nogil
cdef void budget_unpark(Budget *budget, int64_t size) noexcept nogil

ctypedef struct Frame:
    int32_t refs          # atomic
    int32_t overdraft     # whether a part of `reserved` is beyond the budget's limit
    int64_t size          # bytes of the request, without its 4-byte size prefix
    int64_t received
    int64_t capacity
    int64_t reserved      # the frame may receive this many bytes; they return to `budget` with the last reference
    Budget *budget        # NULL if no budget counts the frame
    uint8_t *data

# Returns NULL if no memory is left. The frame's data begins `skew` bytes into a cache line if there is room for that.
cdef Frame *frame_new(Budget *budget, int64_t size, int64_t reserved, int skew) noexcept nogil
cdef void frame_hold(Frame *frame) noexcept nogil
cdef void frame_release(Frame *frame) noexcept nogil
# `frame_drop` and `frame_return` together do the work of `frame_release`. A thread that holds the GIL may call
# `frame_drop`, which takes no lock. If it returns True, the thread must call `frame_return` without the GIL.
cdef bint frame_drop(Frame *frame) noexcept nogil  # returns True if it dropped the last reference
cdef void frame_return(Frame *frame) noexcept nogil
cdef void frames_trim() noexcept nogil  # frees the frames that this thread keeps for recycling
