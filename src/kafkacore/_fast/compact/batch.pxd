"""One batch in a compaction: first its keys go into the offset map, later it is filtered (Kafka's Cleaner, RecordFilter
and MemoryRecords.filterTo; KIP-534 for delete horizons).

A batch that loses no record stays the same, byte for byte. A batch that loses some keeps the encoding of the others and
its header, except count, length, greatest timestamp and checksum. A batch that gets a delete horizon is encoded again.
Offsets never change.
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
    int64_t first_offset       # records from here on go into the map
    int64_t upper_bound        # the round ends here: its last batch stays, empty if need be
    bint keep_old_deletes      # tombstones of magic 0 and 1, which have no horizon
    Writer inflated            # scratch
    Writer rebuilt             # the filtered batch, if it changed
    int64_t mapped_records
    int64_t read_records
    int64_t kept_records
    int64_t keyless_records    # dropped: a compacted log holds no records without a key

ctypedef struct Kept:
    const uint8_t *data        # within the batch, or `rebuilt`; NULL: nothing is left
    size_t size
    int64_t last_offset
    int64_t max_timestamp

cdef enum:
    COMPACT_MAP_FULL = 1       # compact_map: the batch did not fit
    COMPACT_BAD_BATCH = -1
    COMPACT_NO_MEMORY = -2

cdef void compactor_free(Compactor *compactor) noexcept nogil  # its buffers
# Both expect a whole batch whose checksum is right. 0, or a value of the enum.
cdef int compact_map(Compactor *compactor, const uint8_t *batch, const BatchHeader *header) noexcept nogil
cdef int compact_filter(Compactor *compactor, const uint8_t *batch, const BatchHeader *header,
                        Kept *kept) noexcept nogil
