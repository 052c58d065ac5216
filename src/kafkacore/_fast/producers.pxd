"""What a log remembers of its producers: the last five batches of each, to tell a retry from a new batch (KIP-98), and
open transactions. Covered by the log's lock. Written to and read from `.snapshot` files (ProducerStateManager's format).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    PRODUCER_BATCHES = 5

ctypedef struct ProducerBatch:
    int32_t first_sequence
    int32_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp_ms

ctypedef struct Producer:
    int64_t producer_id
    int16_t producer_epoch
    int32_t coordinator_epoch
    int64_t last_timestamp_ms
    int64_t transaction_first_offset     # -1 when no transaction is open
    int32_t batch_count                  # in `batches`, oldest first
    ProducerBatch batches[PRODUCER_BATCHES]

ctypedef struct Producers  # a hash table by producer id; producers.pyx owns its layout
