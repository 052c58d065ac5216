"""Orders of Python's thread to a driver. They are mail to its processor, which carries them out in the order in which
they were posted. An order owns itself, and holds the driver and the partitions that it names."""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkacore._fast.follow.driver cimport Driver
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.mail cimport Mail

cdef enum:
    ORDER_FOLLOW = 0        # and to stop, for items without an epoch
    ORDER_ATTACH = 1        # the socket `handle`; it rings the bell, and so does ORDER_LOOK
    ORDER_BROKER_EPOCH = 2
    ORDER_LOSE = 3          # the connection, because of `why`
    ORDER_HOLD = 4
    ORDER_LOOK = 5
    ORDER_SHUT = 6

cdef enum:
    NO_EPOCH = -1

ctypedef struct OrderItem:
    Partition *partition    # counted
    int32_t leader_epoch    # NO_EPOCH: it is followed no longer

ctypedef struct Order:
    Mail mail               # first
    Driver *driver          # counted
    int32_t kind
    int handle
    int16_t fetch_version
    int16_t offsets_version
    int64_t broker_epoch
    int32_t why
    bint holds_reads
    bint holds_writes
    int32_t count           # of `items`
    OrderItem items[1]

# With room for `count` items. NULL when memory runs out.
cdef Order *order_new(Driver *d, int kind, int32_t count) noexcept nogil
cdef void order_post(Order *order) noexcept nogil   # any thread
