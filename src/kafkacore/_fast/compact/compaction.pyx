"""Compaction for Python callers. Python decides which log is compacted and how fast. Each step runs without the GIL, on
its own low-priority thread, which ends with the step. (The calling thread must keep its priority, because it may hold
the GIL.)"""

cimport cython
from libc.errno cimport EFBIG, EILSEQ, EOVERFLOW
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.atomics cimport load64
from kafkacore._fast.compact.log cimport (
    COMPACTION_DONE, COMPACTION_SWAP, Compaction as NativeCompaction, compaction_close, compaction_copy,
    compaction_map, compaction_open, compaction_swap,
)
from kafkacore._fast.log.log cimport LOG_BLOCKED, SegmentList, log_dir, log_hold_segments, segments_release
from kafkacore._fast.log.read cimport segment_max_timestamp
from kafkacore._fast.compact.offset_map cimport KeyOffsets, OffsetMap
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.wait.park cimport park_release
from kafkacore._fast.base.thread_priority cimport lower_priority
from kafkacore._fast.record.record cimport BATCH_OK, HEADER_BYTES, BatchHeader, parse_header
from kafkacore._fast.log.segment cimport Segment, file_of, segment_hold, segment_open_log, segment_release
from kafkacore._fast.wait.sleeper cimport Sleeper, sleep_until_woken, sleeper_new
from kafkacore._fast.base.sync cimport Thread, thread_join, thread_start

from os import strerror

from typing import NamedTuple

cdef extern from "<errno.h>" nogil:
    int ECANCELED, ENOBUFS

MAP = "map"
COPY = "copy"
SWAP = "swap"
DONE = "done"


class CompactionCancelled(Exception):
    """Raised when the log was truncated, moved or closed during the round. Since then, the round has changed
    nothing."""


class UncleanableLog(Exception):
    """Raised when the log cannot be compacted. The log is unchanged."""


class CompactionTotals(NamedTuple):
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    kept_records: int
    keyless_records: int


cdef enum:
    STEP_OPEN = 0
    STEP_MAP = 1
    STEP_COPY = 2
    STEP_SWAP = 3
    STEP_CLOSE = 4

# One step, which a low-priority thread performs, and its result.
ctypedef struct Step:
    NativeCompaction *c
    Partition *partition
    OffsetMap *map
    Sleeper *sleeper
    int64_t max_bytes
    int64_t first_dirty
    int64_t upper_bound
    int64_t now_ms
    int64_t delete_retention_ms
    int what
    int nice
    int result


cdef void take(Step *step) noexcept nogil:
    if step.what == STEP_OPEN:
        step.result = compaction_open(step.c, &step.partition.log, step.map, step.first_dirty, step.upper_bound,
                                      step.now_ms, step.delete_retention_ms, step.max_bytes)
    elif step.what == STEP_MAP:
        step.result = compaction_map(step.c, step.max_bytes)
    elif step.what == STEP_COPY:
        step.result = compaction_copy(step.c, step.max_bytes)
    elif step.what == STEP_CLOSE:
        compaction_close(step.c)
    else:
        step.result = compaction_swap(step.c, &step.sleeper.waiter)
        while step.result == LOG_BLOCKED:
            sleep_until_woken(step.sleeper, -1)
            step.result = compaction_swap(step.c, &step.sleeper.waiter)


cdef void *take_low(void *argument) noexcept nogil:
    cdef Step *step = <Step *> argument
    lower_priority(step.nice)
    take(step)
    return NULL


cdef void run(Step *step) noexcept nogil:
    cdef Thread thread
    if log_dir(&step.partition.log).agenda != NULL:
        take(step)  # a simulated world has only one thread
    elif thread_start(&thread, b"kc-cleaner", take_low, step) == 0:
        thread_join(thread, NULL)
    else:
        take(step)  # no thread can be started now


@cython.no_gc
cdef class Compaction:
    """One compaction round of one log. First call `keys.begin` for the log's dirty section. Then call `step` until it
    returns "done".

    The methods block, so call them on a separate thread. Always call `close` at the end. It discards a copied group of
    segments that has not replaced the original segments yet. Raises CompactionCancelled, UncleanableLog, OSError.
    """
    cdef NativeCompaction native
    cdef PartitionHandle handle
    cdef KeyOffsets keys
    cdef readonly str phase
    cdef int nice
    cdef bint opened

    def __init__(self, PartitionHandle handle not None, KeyOffsets keys not None, int64_t first_dirty,
                 int64_t upper_bound, *, int64_t now_ms, int64_t delete_retention_ms, int64_t buffer_bytes,
                 int nice=0):
        cdef Step step
        if self.opened:
            raise ValueError("a Compaction serves one round of one log; make a new one")
        if keys.map.slots == NULL:
            raise ValueError("the offset map has no memory; call begin() first")
        self.handle = handle
        self.keys = keys
        self.nice = nice
        self.opened = True
        self.phase = MAP
        step.first_dirty = first_dirty
        step.upper_bound = upper_bound
        step.now_ms = now_ms
        step.delete_retention_ms = delete_retention_ms
        step.map = &keys.map
        keys.held += 1
        self.run(&step, STEP_OPEN, buffer_bytes)

    def __dealloc__(self):
        self.close()

    def close(self):
        """Removes the files of an unfinished group. Further calls do nothing."""
        cdef Step step
        if self.opened and self.native.log != NULL:
            self.run(&step, STEP_CLOSE, 0)
            self.keys.held -= 1

    cdef int run(self, Step *step, int what, int64_t max_bytes) except -1:
        step.c = &self.native
        step.partition = self.handle.partition
        step.sleeper = NULL
        step.what = what
        step.nice = self.nice
        step.max_bytes = max_bytes
        step.result = 0
        if what == STEP_SWAP:
            step.sleeper = sleeper_new(self.handle.directory.dir)
        with nogil:
            run(step)
            if step.sleeper != NULL:
                park_release(&step.sleeper.parked)
        if step.result < 0:
            self.fail(-step.result)
        return 0

    cdef int fail(self, int error) except -1:
        cdef str name = f"{self.handle.topic}-{self.handle.index} in {self.handle.directory.path}"
        if error == ECANCELED:
            raise CompactionCancelled(f"{name} was truncated, moved or closed while it was compacted")
        if error == EILSEQ:
            where = "a segment"
            if self.native.bad_segment != NULL:
                where = self.native.bad_segment.path.decode(errors="replace") + ".log"
            raise UncleanableLog(f"{name}: {where} has a malformed batch or a wrong checksum at byte "
                                 f"{self.native.position}")
        if error == ENOBUFS:
            raise UncleanableLog(f"{name}: the keys of one batch do not fit into the cleaner's memory; raise "
                                 "log.cleaner.dedupe.buffer.size, or lower log.cleaner.threads")
        if error == EFBIG or error == EOVERFLOW:
            raise UncleanableLog(f"{name}: a compacted segment would outgrow its file or its index")
        raise OSError(error, f"compacting {name}: {strerror(error)}")

    def step(self, int64_t max_bytes):
        """Processes about `max_bytes`. Returns the next phase: "map", "copy", "swap" or "done"."""
        cdef Step step
        if self.native.log == NULL:
            raise ValueError("the compaction is closed")
        if self.phase == MAP:
            self.run(&step, STEP_MAP, max_bytes)
            if step.result == COMPACTION_DONE:
                self.phase = COPY
        elif self.phase == COPY:
            self.run(&step, STEP_COPY, max_bytes)
            if step.result == COMPACTION_DONE:
                self.phase = DONE
            elif step.result == COMPACTION_SWAP:
                self.phase = SWAP
        elif self.phase == SWAP:
            self.run(&step, STEP_SWAP, 0)
            self.phase = COPY
        return self.phase

    @property
    def end_offset(self):
        """The offset at which the log's dirty section begins after this round. Valid after the map phase."""
        return self.native.end_offset

    @property
    def totals(self):
        return CompactionTotals(
            self.native.mapped_bytes, self.native.compactor.mapped_records, self.native.read_bytes,
            self.native.compactor.read_records, self.native.written_bytes, self.native.compactor.kept_records,
            self.native.compactor.keyless_records)


# --- timestamps of segments ---

cdef Segment *segment_at(PartitionHandle handle, int64_t base_offset) noexcept:
    """Returns the segment that begins at `base_offset`, with a reference that the caller must release. Returns NULL if
    no segment begins there."""
    cdef Segment *found = NULL
    cdef SegmentList *list
    cdef int32_t i
    with nogil:
        list = log_hold_segments(&handle.partition.log)
        if list != NULL:
            for i in range(list.count):
                if list.items[i].base_offset == base_offset:
                    found = list.items[i]
                    segment_hold(found)
            segments_release(list)
    return found


def largest_timestamp(PartitionHandle handle not None, int64_t base_offset):
    """Returns the largest timestamp of a segment in ms. Returns -1 if the segment has no timestamp or does not exist.
    Blocking. Raises OSError."""
    cdef Segment *segment = segment_at(handle, base_offset)
    cdef int64_t timestamp_ms, unused
    cdef int result
    if segment == NULL:
        return -1
    with nogil:
        result = segment_max_timestamp(&handle.partition.log, segment, &timestamp_ms, &unused)
        segment_release(segment)
    if result < 0:
        raise OSError(-result, f"{handle.topic}-{handle.index} in {handle.directory.path}: {strerror(-result)}")
    return timestamp_ms


def first_timestamp(PartitionHandle handle not None, int64_t base_offset):
    """Returns the largest timestamp of a segment's first batch in ms, or -1 if the batch has none. Blocking. Raises
    OSError."""
    cdef uint8_t raw[HEADER_BYTES]
    cdef BatchHeader header
    cdef Segment *segment = segment_at(handle, base_offset)
    cdef int64_t timestamp_ms = -1
    cdef int64_t got
    if segment == NULL:
        return -1
    with nogil:
        got = segment_open_log(segment)
        if got == 0 and load64(&segment.size) > 0:
            got = segment.disk.pread(segment.disk.self, file_of(segment), raw, HEADER_BYTES, 0)
            if got > 0 and parse_header(raw, <size_t> got, &header) == BATCH_OK:
                timestamp_ms = header.max_timestamp
        segment_release(segment)
    if got < 0:
        raise OSError(-got, f"{handle.topic}-{handle.index} in {handle.directory.path}: {strerror(-got)}")
    return timestamp_ms
