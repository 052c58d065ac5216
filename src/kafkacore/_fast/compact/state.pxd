"""The state of a log's producers during a compaction.

The transactions of the producers decide which records were aborted and which markers are still needed (Kafka's
CleanedTransactionMetadata). The last batch of each producer stays in the log, because it holds the producer's sequence
number.

Only one thread at a time may use these structs.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.producers cimport Producers
from kafkacore._fast.record.record cimport BatchHeader
from kafkacore._fast.log.txn_index cimport AbortedTransaction

# A producer that wrote to the part of the log that is being compacted, and its current transaction.
ctypedef struct SeenProducer:
    int64_t producer_id      # -1 for an empty slot
    # The index of the producer's current aborted transaction in `SeenTransactions.aborted`; -1 for none.
    int32_t aborted
    bint observed            # whether batches of that transaction are still in the log
    bint committing          # whether the log has batches of a transaction that no index lists as aborted

ctypedef struct SeenTransactions:
    AbortedTransaction *aborted  # ordered by first offset; owned by the caller
    int64_t aborted_count
    int64_t next             # the index of the first transaction in `aborted` whose first batch was not processed yet
    SeenProducer *slots
    int32_t slot_count       # a power of two
    int32_t used
    bint out_of_memory       # the results are invalid once this is set
    Writer *index            # the transaction index of the compacted segment; NULL if none is written

cdef int transactions_init(SeenTransactions *seen, AbortedTransaction *aborted, int64_t aborted_count) noexcept nogil
cdef void transactions_free(SeenTransactions *seen) noexcept nogil
# Processes the next batch of the log, which must be a whole batch of magic 2. (Control batches are never compressed.)
# Returns True if the batch can be removed: either its transaction was aborted, or it is the marker of a transaction
# that has no batches left.
cdef bint transactions_note(SeenTransactions *seen, const uint8_t *batch, const BatchHeader *header) noexcept nogil

# The last batch of a producer, according to the log's producer state (producers.pxd).
ctypedef struct LastBatch:
    int64_t producer_id
    int64_t last_offset      # -1 if the producer has only a marker
    int16_t producer_epoch

ctypedef struct LastBatches:
    LastBatch *items         # ordered by producer id
    int32_t count

# Returns 0 or -ENOMEM. Call this with `Log.lock` held.
cdef int last_batches_take(LastBatches *last, const Producers *producers) noexcept nogil
cdef void last_batches_sort(LastBatches *last) noexcept nogil
cdef void last_batches_free(LastBatches *last) noexcept nogil
cdef bint is_last_batch(const LastBatches *last, const BatchHeader *header) noexcept nogil
