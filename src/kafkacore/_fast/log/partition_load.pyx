"""Implements partition_load.pyi: loads logs for Python callers."""

from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.errno cimport EINVAL
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, strlen

from kafkacore._fast.base.atomics cimport load64, store32
from kafkacore._fast.log.log cimport Log, log_directory_path
from kafkacore._fast.log.files cimport read_small_file
from kafkacore._fast.log.partition cimport Partition
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.log.recovery cimport (
    FILE_HAS_ABORTED, FILE_HAS_INDEXES, LoadPlan, LoadReport as NativeReport, log_load,
)
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

from os import strerror

from typing import NamedTuple

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    const char *PyUnicode_1BYTE_DATA "(const char *) PyUnicode_1BYTE_DATA"(object text)

cdef enum:
    OFFSET_DIGITS = 20
    ID_CHARACTERS = 22

# The kinds of files in a log's directory, by the ends of their names.
cdef enum:
    IS_LOG = 1
    IS_OFFSET_INDEX = 2
    IS_TIME_INDEX = 4
    IS_ABORTED_INDEX = 8
    IS_SNAPSHOT = 16
    ANY_INDEX = IS_OFFSET_INDEX | IS_TIME_INDEX | IS_ABORTED_INDEX


class LoadReport(NamedTuple):
    recovered_bytes: int
    truncated_bytes: int
    recovered_segments: int
    dropped_segments: int


class Damage(NamedTuple):
    segment: int
    position: int
    offset: int


cdef class LoadProgress:
    cdef int64_t bytes
    cdef int64_t segments
    cdef int64_t segments_left
    cdef int32_t is_abandoned

    @property
    def bytes_done(self):
        return load64(&self.bytes)

    @property
    def segments_done(self):
        return load64(&self.segments)

    @property
    def segments_to_recover(self):
        return load64(&self.segments_left)

    def abandon(self):
        store32(&self.is_abandoned, 1)


# --- the files of a directory ---

cdef bint ends(const char *name, Py_ssize_t size, const char *end) noexcept nogil:
    cdef Py_ssize_t length = <Py_ssize_t> strlen(end)
    return size >= length and memcmp(name + size - length, end, length) == 0


cdef bint is_left_over(const char *name, Py_ssize_t size) noexcept nogil:
    """Returns whether an unfinished operation left this file behind. Returns False for metadata snapshots that are
    being deleted, because the metadata log handles those."""
    if ends(name, size, b".deleted"):
        return not ends(name, size, b".checkpoint.deleted")
    return ends(name, size, b".cleaned") or ends(name, size, b".swap")


cdef int kind_of(const char *end, Py_ssize_t size) noexcept nogil:
    if size == 4 and memcmp(end, b".log", 4) == 0:
        return IS_LOG
    if size == 6 and memcmp(end, b".index", 6) == 0:
        return IS_OFFSET_INDEX
    if size == 10 and memcmp(end, b".timeindex", 10) == 0:
        return IS_TIME_INDEX
    if size == 9 and memcmp(end, b".txnindex", 9) == 0:
        return IS_ABORTED_INDEX
    return IS_SNAPSHOT if size == 9 and memcmp(end, b".snapshot", 9) == 0 else 0


cdef int64_t offset_of(const char *name) noexcept nogil:
    """Returns the offset in the first 20 characters of a name, or -1 if they are not an offset."""
    cdef uint64_t value = 0
    cdef int i
    if name[0] != c"0":
        return -1  # the greatest offset has 19 digits
    for i in range(OFFSET_DIGITS):
        if not c"0" <= name[i] <= c"9":
            return -1
        value = value * 10 + <uint64_t> (name[i] - c"0")
    return <int64_t> value if value <= <uint64_t> INT64_MAX else -1


cdef class LogFiles:
    """The segments and producer snapshots of a log. The arrays have room for as many entries as there are names."""
    cdef int64_t *offsets
    cdef int32_t *files
    cdef int64_t *snapshots
    cdef int32_t count
    cdef int32_t snapshot_count
    cdef bint left_over

    def __cinit__(self, list names not None):
        cdef int64_t room = len(names) + 1
        self.offsets = <int64_t *> calloc(room, sizeof(int64_t))
        self.files = <int32_t *> calloc(room, sizeof(int32_t))
        self.snapshots = <int64_t *> calloc(room, sizeof(int64_t))
        if self.offsets == NULL or self.files == NULL or self.snapshots == NULL:
            raise MemoryError
        self.sort(names)

    def __dealloc__(self):
        free(self.offsets)
        free(self.files)
        free(self.snapshots)

    cdef int sort(self, list names) except -1:
        """Sorts the files into the arrays. The names are in ascending order, so names with the same offset are
        consecutive."""
        cdef const char *text
        cdef Py_ssize_t size
        cdef int64_t at, offset = -1
        cdef int kind, kinds = 0
        for name in names:
            if not PyUnicode_IS_ASCII(<str?> name):
                continue
            text = PyUnicode_1BYTE_DATA(name)
            size = PyUnicode_GET_LENGTH(name)
            if is_left_over(text, size):
                self.left_over = True
                continue
            at = offset_of(text) if size > OFFSET_DIGITS else -1
            kind = kind_of(text + OFFSET_DIGITS, size - OFFSET_DIGITS) if at >= 0 else 0
            if kind == 0:
                continue
            if at != offset:
                self.note(offset, kinds)
                offset, kinds = at, 0
            kinds |= kind
        self.note(offset, kinds)
        return 0

    cdef void note(self, int64_t offset, int kinds) noexcept:
        """Notes which kinds of files have this offset in their names."""
        if kinds & IS_SNAPSHOT:
            self.snapshots[self.snapshot_count] = offset
            self.snapshot_count += 1
        if not kinds & IS_LOG:
            self.left_over = self.left_over or (kinds & ANY_INDEX) != 0
            return
        if kinds & IS_OFFSET_INDEX and kinds & IS_TIME_INDEX:
            self.files[self.count] |= FILE_HAS_INDEXES
        if kinds & IS_ABORTED_INDEX:
            self.files[self.count] |= FILE_HAS_ABORTED
        self.offsets[self.count] = offset
        self.count += 1

    @property
    def has_left_overs(self):
        return self.left_over

    @property
    def base_offsets(self):
        return [self.offsets[i] for i in range(self.count)]


# --- partition.metadata ---

cdef int digit_of(char character) noexcept nogil:
    """Returns the value of a digit of URL-safe base64, or -1 for any other character."""
    if c"A" <= character <= c"Z":
        return character - c"A"
    if c"a" <= character <= c"z":
        return character - c"a" + 26
    if c"0" <= character <= c"9":
        return character - c"0" + 52
    if character == c"-":
        return 62
    return 63 if character == c"_" else -1


cdef bint parse_id(const char *text, uint8_t *topic_id) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int held = 0
    cdef int at = 0
    cdef int i, digit
    for i in range(ID_CHARACTERS):
        digit = digit_of(text[i])
        if digit < 0:
            return False
        bits = (bits << 6 | <uint64_t> digit) & 0xFFFFFF
        held += 6
        if held >= 8:
            held -= 8
            topic_id[at] = bits >> held & 0xFF
            at += 1
    return not digit & 15  # the spare bits are zero


cdef bint parse_metadata(const char *text, int64_t size, uint8_t *topic_id) noexcept nogil:
    """Reads the topic id. Accepts only text in the form that Kafka and this node write, with an id that a topic can
    have."""
    cdef const char *head = b"version: 0\ntopic_id: "
    cdef int64_t length = <int64_t> strlen(head)
    cdef uint8_t nobody[16]
    cdef int i
    if size == length + ID_CHARACTERS + 1 and text[size - 1] == c"\n":
        size -= 1
    if size != length + ID_CHARACTERS or memcmp(text, head, length) != 0 or not parse_id(text + length, topic_id):
        return False
    for i in range(16):
        nobody[i] = 0
    return memcmp(topic_id, nobody, 16) != 0


cdef bint take_topic_id(Partition *p) noexcept nogil:
    cdef char *path = log_directory_path(&p.log)
    cdef uint8_t topic_id[16]
    cdef uint8_t *text
    cdef int64_t size
    cdef bint known
    if path == NULL:
        return False
    size = read_small_file(p.log.dir.disk, path, b"partition.metadata", &text)
    known = size >= 0 and parse_metadata(<const char *> text, size, topic_id)
    free(text)
    free(path)
    if known:
        mutex_lock(&p.log.lock)
        memcpy(p.topic_id, topic_id, 16)
        p.log.topic_id = p.topic_id
        mutex_unlock(&p.log.lock)
    return known


def read_topic_ids(list handles not None):
    cdef Py_ssize_t count = len(handles)
    cdef Py_ssize_t i
    cdef list held = list(handles)  # other threads may change the list after this thread has released the GIL
    cdef Partition **partitions = <Partition **> calloc(count + 1, sizeof(Partition *))
    cdef bint *known = <bint *> calloc(count + 1, sizeof(bint))
    try:
        if partitions == NULL or known == NULL:
            raise MemoryError
        for i in range(count):
            partitions[i] = (<PartitionHandle?> held[i]).partition
        with nogil:
            for i in range(count):
                known[i] = take_topic_id(partitions[i])
        return [bool(known[i]) for i in range(count)]
    finally:
        free(partitions)
        free(known)


# --- the load ---

ctypedef struct Task:
    Log *log
    LoadPlan plan
    NativeReport told
    int result


cdef class LogLoad:
    cdef readonly PartitionHandle handle
    cdef LogFiles found        # owns the arrays that the plan points to
    cdef LoadProgress progress  # owns the counters that the plan points to
    cdef Task task

    def __cinit__(self, PartitionHandle handle not None, LogFiles found not None, *, int64_t log_start_offset=0,
                  int64_t recovery_point=0, int64_t trusted_until=0, int64_t gaps_until=0,
                  bint clean=False, bint at_rest=False,
                  LoadProgress progress=None):
        self.handle = handle
        self.found = found
        self.progress = progress if progress is not None else LoadProgress()
        self.task.log = &handle.partition.log
        self.task.plan.base_offsets = found.offsets
        self.task.plan.files = found.files
        self.task.plan.count = found.count
        self.task.plan.snapshots = found.snapshots
        self.task.plan.snapshot_count = found.snapshot_count
        self.task.plan.log_start_offset = log_start_offset
        self.task.plan.recovery_point = recovery_point
        self.task.plan.trusted_until = trusted_until
        self.task.plan.gaps_until = gaps_until
        self.task.plan.clean = clean
        self.task.plan.at_rest = at_rest
        self.task.plan.progress = &self.progress.bytes
        self.task.plan.segments_done = &self.progress.segments
        self.task.plan.segments_left = &self.progress.segments_left
        self.task.plan.is_abandoned = &self.progress.is_abandoned
        self.task.result = -EINVAL

    @property
    def damage(self):
        cdef NativeReport *told = &self.task.told
        return Damage(told.damaged_segment, told.damaged_at, told.damaged_offset)

    def report(self):
        cdef NativeReport *told = &self.task.told
        if self.task.result < 0:
            why = "leader-epoch-checkpoint is malformed" if self.task.result == -EINVAL else strerror(-self.task.result)
            handle = self.handle
            raise OSError(-self.task.result, f"{handle.topic}-{handle.index} in {handle.directory.path}: {why}")
        return LoadReport(told.recovered_bytes, told.truncated_bytes, told.recovered_segments, told.dropped_segments)


def run(list loads not None):
    cdef Py_ssize_t count = len(loads)
    cdef Py_ssize_t i
    cdef list held = list(loads)
    cdef Task **tasks = <Task **> calloc(count + 1, sizeof(Task *))
    if tasks == NULL:
        raise MemoryError
    try:
        for i in range(count):
            tasks[i] = &(<LogLoad?> held[i]).task
        with nogil:
            for i in range(count):
                tasks[i].result = log_load(tasks[i].log, &tasks[i].plan, &tasks[i].told)
    finally:
        free(tasks)
