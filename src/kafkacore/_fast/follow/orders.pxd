"""The orders that Python's thread sends to a driver (driver.pxd). Each order is a mail, a message to the driver's
processor (mail.pxd). The processor executes the oldest order first. An order holds references to the driver and to the
partitions that it names. After it was executed, it frees itself.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from kafkacore._fast.follow.driver cimport Driver
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.wait.mail cimport Mail

cdef enum:
    ORDER_FOLLOW = 0        # follow the items that have a leader epoch, and stop following the other items
    ORDER_ATTACH = 1        # use the socket `handle`; then post the driver's mail `news` to Python's thread
    ORDER_BROKER_EPOCH = 2
    ORDER_LOSE = 3          # end the connection, for the reason `why`
    ORDER_HOLD = 4
    ORDER_LOOK = 5          # only post the driver's mail `news`
    ORDER_SHUT = 6

cdef enum:
    NO_EPOCH = -1

ctypedef struct OrderItem:
    Partition *partition    # holds a reference
    int32_t leader_epoch    # NO_EPOCH: stop following the partition

ctypedef struct Order:
    Mail mail               # must be the first field
    Driver *driver          # holds a reference
    int32_t kind
    int handle
    int16_t fetch_version
    int16_t offsets_version
    int64_t broker_epoch
    int32_t why
    bint holds_reads
    bint holds_writes
    int32_t count           # the number of `items`
    OrderItem items[1]

# Creates an order with room for `count` items. Returns NULL if memory runs out.
cdef Order *order_new(Driver *d, int kind, int32_t count) noexcept nogil
cdef void order_post(Order *order) noexcept nogil   # any thread may call this
