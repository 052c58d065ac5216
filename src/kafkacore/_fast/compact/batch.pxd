"""The two passes of a compaction over one batch. The first pass adds the keys of the batch to the offset map
(offset_map.pxd). The second pass filters the records of the batch. (In Kafka: Cleaner, RecordFilter and
MemoryRecords.filterTo; KIP-534 for delete horizons.)

A batch that loses no record stays the same, byte for byte. If a batch loses some records, the bytes of the remaining
records do not change. In the batch's header, only the count, the length, the greatest timestamp and the checksum
change. A batch that gets a delete horizon is encoded again. Offsets never change.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stddef cimport size_t

from kafkacore._fast.codec.context cimport CodecContext, InflateLimits
from kafkacore._fast.compact.state cimport LastBatches, SeenTransactions
from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.compact.offset_map cimport OffsetMap
from kafkacore._fast.record.record cimport BatchHeader

ctypedef struct Compactor:
    OffsetMap *map
    SeenTransactions *transactions
    const LastBatches *last
    CodecContext *codec
    InflateLimits limits
    int64_t now_ms
    int64_t delete_retention_ms
    int64_t first_offset       # the first pass adds the keys of the records from this offset on
    int64_t upper_bound        # the compaction ends at this offset; the last batch below it stays, even if empty
    bint keep_old_deletes      # whether tombstones of magic 0 and 1 stay; they have no delete horizon
    Writer inflated            # scratch memory for inflated records
    Writer rebuilt             # the filtered batch, if it changed
    int64_t mapped_records
    int64_t read_records
    int64_t kept_records
    int64_t keyless_records    # the number of records without a key; a compaction drops all of them

ctypedef struct Kept:
    const uint8_t *data        # points into the original batch or into `rebuilt`; NULL if nothing is left
    size_t size
    int64_t last_offset
    int64_t max_timestamp

cdef enum:
    COMPACT_MAP_FULL = 1       # a result of `compact_map`: the keys of the batch did not fit into the map
    COMPACT_BAD_BATCH = -1
    COMPACT_NO_MEMORY = -2
    COMPACT_NO_FILE = -3       # no file descriptor is free to open the codec's library

cdef void compactor_free(Compactor *compactor) noexcept nogil  # frees the compactor's buffers
# `compact_map` performs the first pass, and `compact_filter` the second pass. Both expect a whole batch with a correct
# checksum. They return 0 or one of the values above.
cdef int compact_map(Compactor *compactor, const uint8_t *batch, const BatchHeader *header) noexcept nogil
cdef int compact_filter(Compactor *compactor, const uint8_t *batch, const BatchHeader *header,
                        Kept *kept) noexcept nogil
