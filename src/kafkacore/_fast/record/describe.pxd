"""Describes batches and records as lines of text: either the lines of kafka-dump-log, or one JSON object on each line.

The text is valid UTF-8, whatever the bytes in keys and values are.
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
    DESCRIBE_RECORDS = 1    # also a line for each record of a batch
    DESCRIBE_METADATA = 2   # the lines of records have offset, time, sizes, sequence number and header keys
    DESCRIBE_CONTENTS = 4   # the lines of records have key and value
    DESCRIBE_DECODED = 8    # the caller describes the records itself, except the records of control batches

# Describes the batch at `position` of its file. `valid` says whether the batch's checksum is right.
cdef void describe_batch(Writer *out, int style, const BatchHeader *header, int64_t position,
                         bint valid) noexcept nogil
# Describes a record. Writes no line end, because the caller may add to the line. For a control record, the line names
# the transaction marker.
cdef void describe_record(Writer *out, int style, int flags, const BatchHeader *header,
                          const RecordView *record) noexcept nogil
# Like `describe_record`, for a message of magic 0 or 1 at `offset`. `header` is the header of the entry that contains
# the message.
cdef void describe_message(Writer *out, int style, int flags, const BatchHeader *header, const OldMessage *message,
                           int64_t offset) noexcept nogil


cdef class Description(RecordScan):
    cdef int style
    cdef int flags
    cdef Writer out
    cdef Writer gaps             # pairs of offsets, each an int64 in host order
    cdef int64_t last_offset     # the offset of the previous record
    cdef int fault               # the fault of the last returned batch: a `BatchStatus` (record.pxd)
    cdef bint taken              # the caller must describe the records of the last returned batch
