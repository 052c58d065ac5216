"""A segment: one .log file with its offset, time and transaction index (Kafka's UnifiedLog/LogSegment).

Counted; a dropped segment is unlinked at once and closed by its last holder. Active indexes live in memory and are
appended with pwrite; sealed ones are read. No file is mapped for writing.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.env cimport Disk

# Kafka's on-disk entries: 8 bytes (relative offset, position), 12 bytes (timestamp, relative offset); kept in host order.
ctypedef struct OffsetEntry:
    int32_t relative_offset
    int32_t position

ctypedef struct TimeEntry:
    int64_t timestamp_ms
    int32_t relative_offset

ctypedef struct Segment:
    int32_t refs          # atomic
    int32_t dropped       # atomic: unlinked, closed by the last holder
    const Disk *disk
    int file              # .log; -1 when closed
    int offset_index_file
    int time_index_file
    int64_t base_offset
    int64_t next_offset   # base offset of what is appended next
    int64_t size          # bytes of .log; atomic for readers without the lock
    int64_t synced_size   # bytes that a sync has covered
    int64_t max_timestamp_ms        # largest so far, -1 when none
    int64_t offset_of_max_timestamp
    int64_t created_ms
    int64_t first_timestamp_ms      # of the first batch, for time based rolls; -1 when none
    int64_t bytes_since_index
    OffsetEntry *offset_index
    int32_t offset_count
    int32_t offset_capacity
    TimeEntry *time_index
    int32_t time_count
    int32_t time_capacity
    char *path            # without suffix: directory + 20 digits

cdef void segment_hold(Segment *segment) noexcept nogil
cdef void segment_release(Segment *segment) noexcept nogil
