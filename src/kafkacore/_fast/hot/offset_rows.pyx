"""Stores the committed offsets of one topic as rows. offset_rows.pxd has the contract."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from kafkacore._fast.hot.offset_commit cimport CommittedPartition, CommittedTopic, OffsetCommit
from kafkacore._fast.hot.offset_records cimport TOPIC_ID_BYTES, OffsetFields, copy_topic_id

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    LEAST_CAPACITY = 4
    MAX_CAPACITY = 1 << 28
    MIX = 0x9E3779B1            # the factor of Knuth's multiplicative hash, which spreads consecutive numbers


cdef inline uint32_t hash_of(int32_t partition) noexcept:
    cdef uint32_t mixed = <uint32_t> partition * <uint32_t> MIX
    return mixed ^ (mixed >> 16)


@cython.final
@cython.no_gc
@cython.auto_pickle(False)
cdef class TopicOffsets:

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            free(<void *> self.rows[i].fields.metadata.data)
        free(self.rows)
        free(self.slots)

    # --- rows ---

    cdef int32_t row_of(self, int32_t partition) noexcept:
        """Returns the index of the row, or -1 if it does not exist."""
        cdef uint32_t slot
        cdef int32_t next_row = self.last + 1
        if next_row < self.count and self.rows[next_row].partition == partition:
            self.last = next_row
            return next_row
        if self.slots == NULL:
            return -1
        slot = hash_of(partition) & self.mask
        while self.slots[slot]:
            if self.rows[self.slots[slot] - 1].partition == partition:
                self.last = self.slots[slot] - 1
                return self.last
            slot = (slot + 1) & self.mask
        return -1

    cdef int grow(self) except -1:
        """Makes room for one more row."""
        cdef int32_t capacity = self.capacity * 2 if self.capacity else LEAST_CAPACITY
        cdef OffsetRow *rows
        cdef int32_t *slots
        cdef int32_t i
        cdef uint32_t slot, mask = <uint32_t> capacity * 2 - 1
        if capacity > MAX_CAPACITY:
            raise MemoryError
        rows = <OffsetRow *> realloc(self.rows, <size_t> capacity * sizeof(OffsetRow))
        if rows == NULL:
            raise MemoryError
        self.rows = rows
        slots = <int32_t *> calloc(<size_t> mask + 1, sizeof(int32_t))
        if slots == NULL:
            raise MemoryError
        free(self.slots)
        self.slots, self.mask, self.capacity = slots, mask, capacity
        for i in range(self.count):
            slot = hash_of(rows[i].partition) & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = i + 1
        return 0

    cdef int put_row(self, int32_t partition, const OffsetFields *fields, int64_t at) except -1:
        cdef int32_t row = self.row_of(partition)
        cdef int32_t size = max(fields.metadata.size, 0)
        cdef uint8_t *metadata = NULL
        cdef uint32_t slot
        if row >= 0 and self.rows[row].at > at:
            return 0
        if row < 0 and self.count == self.capacity:
            self.grow()
        if size:
            metadata = <uint8_t *> malloc(size)
            if metadata == NULL:
                raise MemoryError
            memcpy(metadata, fields.metadata.data, size)
        if row < 0:
            row = self.last = self.count
            self.count += 1
            slot = hash_of(partition) & self.mask
            while self.slots[slot]:
                slot = (slot + 1) & self.mask
            self.slots[slot] = row + 1
            self.rows[row].partition = partition
        else:
            free(<void *> self.rows[row].fields.metadata.data)
        self.rows[row].fields = fields[0]
        self.rows[row].fields.metadata.data = metadata
        self.rows[row].fields.metadata.size = size
        self.rows[row].at = at
        return 0

    # --- Python interface ---

    def __len__(self):
        return self.count

    def __contains__(self, int32_t partition):
        return self.row_of(partition) >= 0

    def __iter__(self):
        cdef int32_t i
        return iter([self.rows[i].partition for i in range(self.count)])

    def get(self, int32_t partition):
        cdef int32_t row = self.row_of(partition)
        return None if row < 0 else fields_of(&self.rows[row].fields)

    def items(self):
        cdef int32_t i
        return [(self.rows[i].partition, fields_of(&self.rows[i].fields)) for i in range(self.count)]

    def put(
        self, int32_t partition, int64_t offset, int32_t leader_epoch, str metadata not None, int64_t commit_timestamp,
        int64_t expire_timestamp, topic_id, int64_t at
    ):
        cdef OffsetFields fields
        cdef Py_ssize_t size = 0
        fields.metadata.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(metadata, &size)
        if size > 0x7FFFFFFF:
            raise ValueError(f"an offset's metadata has {size} bytes, more than 2147483647")
        fields.metadata.size = <int32_t> size
        fields.offset, fields.leader_epoch = offset, leader_epoch
        fields.commit_timestamp, fields.expire_timestamp = commit_timestamp, expire_timestamp
        copy_topic_id(fields.topic_id, topic_id)
        self.put_row(partition, &fields, at)

    def take(self, OffsetCommit commit not None, Py_ssize_t number, int64_t at):
        cdef CommittedTopic *topic = commit.topic(number)
        cdef CommittedPartition *each
        cdef OffsetFields fields = commit.written
        cdef int32_t i
        memcpy(fields.topic_id, topic.topic_id, TOPIC_ID_BYTES)
        self.last = -1
        for i in range(topic.partitions.count):
            each = &(<CommittedPartition *> topic.partitions.items)[i]
            if each.refused == 0:
                fields.offset = each.committed_offset
                fields.leader_epoch = each.committed_leader_epoch
                fields.metadata = each.committed_metadata
                self.put_row(each.partition_index, &fields, at)

    def remove(self, int32_t partition, int64_t at):
        cdef int32_t row = self.row_of(partition)
        cdef int32_t final = self.count - 1
        if row < 0 or self.rows[row].at > at:
            return False
        free(<void *> self.rows[row].fields.metadata.data)
        self.free_slot(self.slot_of(row))
        if row != final:
            self.slots[self.slot_of(final)] = row + 1
            self.rows[row] = self.rows[final]
        self.count = final
        self.last = -1
        return True

    cdef uint32_t slot_of(self, int32_t row) noexcept:
        cdef uint32_t slot = hash_of(self.rows[row].partition) & self.mask
        while self.slots[slot] != row + 1:
            slot = (slot + 1) & self.mask
        return slot

    cdef void free_slot(self, uint32_t hole) noexcept:
        """Closes the hole that a removed entry leaves in the hash table. Moves a later entry into the hole if the
        look-up of this entry passes the hole. So no look-up ends at a hole."""
        cdef uint32_t slot = hole
        cdef uint32_t home
        while True:
            slot = (slot + 1) & self.mask
            if self.slots[slot] == 0:
                break
            home = hash_of(self.rows[self.slots[slot] - 1].partition) & self.mask
            if ((slot - home) & self.mask) >= ((slot - hole) & self.mask):
                self.slots[hole] = self.slots[slot]
                hole = slot
        self.slots[hole] = 0


cdef tuple fields_of(const OffsetFields *fields):
    metadata = PyUnicode_DecodeUTF8(<const char *> fields.metadata.data, fields.metadata.size, NULL)
    topic_id = PyBytes_FromStringAndSize(<const char *> fields.topic_id, TOPIC_ID_BYTES)
    return (
        fields.offset, fields.leader_epoch, metadata, fields.commit_timestamp, fields.expire_timestamp, topic_id,
    )
