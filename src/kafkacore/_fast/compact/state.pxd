"""The producers that a compaction meets in a log: their transactions, which decide which records were aborted and which
markers are still needed (Kafka's CleanedTransactionMetadata), and the last batch of each, which stays because it holds
the producer's sequence.

One thread at a time.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.log.producers cimport Producers
from kafkacore._fast.record.record cimport BatchHeader
from kafkacore._fast.log.txn_index cimport AbortedTransaction

# A producer that the compaction has met, and its transaction.
ctypedef struct SeenProducer:
    int64_t producer_id      # -1: an empty slot
    int32_t aborted          # index of its aborted transaction that has begun; -1: none
    bint observed            # batches of that transaction are still there
    bint committing          # it has batches of a transaction that no index lists as aborted

ctypedef struct SeenTransactions:
    AbortedTransaction *aborted  # by first offset; the caller's
    int64_t aborted_count
    int64_t next             # the first of them that has not begun
    SeenProducer *slots
    int32_t slot_count       # a power of two
    int32_t used
    bint out_of_memory       # results since then are not valid
    Writer *index            # the transaction index of the compacted segment; NULL: none is made

cdef int transactions_init(SeenTransactions *seen, AbortedTransaction *aborted, int64_t aborted_count) noexcept nogil
cdef void transactions_free(SeenTransactions *seen) noexcept nogil
# Notes the log's next batch, a whole one of magic 2 (control batches are not compressed). True: the batch can go,
# because its transaction was aborted or it is the marker of a transaction without batches.
cdef bint transactions_note(SeenTransactions *seen, const uint8_t *batch, const BatchHeader *header) noexcept nogil

# The last batch of a producer that the log knows.
ctypedef struct LastBatch:
    int64_t producer_id
    int64_t last_offset      # -1: it has only a marker
    int16_t producer_epoch

ctypedef struct LastBatches:
    LastBatch *items         # by producer id
    int32_t count

cdef int last_batches_take(LastBatches *last, const Producers *producers) noexcept nogil  # 0 or -ENOMEM; log's lock
cdef void last_batches_sort(LastBatches *last) noexcept nogil
cdef void last_batches_free(LastBatches *last) noexcept nogil
cdef bint is_last_batch(const LastBatches *last, const BatchHeader *header) noexcept nogil
