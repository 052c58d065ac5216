"""Batches and records as lines of text: the lines of kafka-dump-log, or one JSON object on each line.

The text is valid UTF-8 whatever bytes keys and values hold.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer
from kafkacore._fast.record.message_set cimport OldMessage
from kafkacore._fast.record.record cimport BatchHeader, RecordView
from kafkacore._fast.record.record_scan cimport RecordScan

cdef enum Style:
    STYLE_TEXT = 0
    STYLE_JSON = 1

cdef enum DescribeFlags:
    DESCRIBE_RECORDS = 1    # a line for each record of a batch, too
    DESCRIBE_METADATA = 2   # of records: offset, time, sizes, sequence, header keys
    DESCRIBE_CONTENTS = 4   # of records: key and value
    DESCRIBE_DECODED = 8    # the caller describes the records itself, except those of control batches

# The batch at `position` of its file; `valid`: whether its checksum is right.
cdef void describe_batch(Writer *out, int style, const BatchHeader *header, int64_t position,
                         bint valid) noexcept nogil
# Writes no line end, because the caller may add to the line. For a control record the line names the transaction
# marker.
cdef void describe_record(Writer *out, int style, int flags, const BatchHeader *header,
                          const RecordView *record) noexcept nogil
# The same for a message of magic 0 or 1 at `offset` in the batch of `header`.
cdef void describe_message(Writer *out, int style, int flags, const BatchHeader *header, const OldMessage *message,
                           int64_t offset) noexcept nogil


cdef class Description(RecordScan):
    cdef int style
    cdef int flags
    cdef Writer out
    cdef Writer gaps             # pairs of offsets, int64 each in host order
    cdef int64_t last_offset     # of the record before
    cdef int fault               # of the batch given last: a BatchStatus
    cdef bint taken              # the caller must describe its records
