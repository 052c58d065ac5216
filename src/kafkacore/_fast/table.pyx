"""The partition table, as table.pxd says."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.atomics cimport add32, load32
from kafkacore._fast.partition cimport Partition, partition_hold, partition_release
from kafkacore._fast.partition_handle cimport PartitionHandle

from kafkacore._fast.uuid import Uuid

cdef enum:
    LEAST_PLACES = 8

cdef int32_t live_tables = 0  # atomic; tests hold it against zero


# --- topics ---

cdef Topic *topic_new(const uint8_t *topic_id, const char *name, int32_t name_size, int32_t count) noexcept nogil:
    cdef Topic *topic = <Topic *> calloc(1, sizeof(Topic))
    if topic == NULL:
        return NULL
    topic.name = <char *> malloc(name_size + 1)
    topic.partitions = <Partition **> calloc(count + 1, sizeof(Partition *))
    if topic.name == NULL or topic.partitions == NULL:
        free(topic.name)
        free(topic.partitions)
        free(topic)
        return NULL
    topic.refs = 1
    memcpy(topic.topic_id, topic_id, 16)
    memcpy(topic.name, name, name_size)
    topic.name_size = name_size
    topic.count = count
    return topic


cdef void topic_release(Topic *topic) noexcept nogil:
    cdef int32_t i
    if topic == NULL or add32(&topic.refs, -1) != 0:
        return
    for i in range(topic.count):
        if topic.partitions[i] != NULL:
            partition_release(topic.partitions[i])
    free(topic.partitions)
    free(topic.name)
    free(topic)


# --- places ---

cdef uint64_t mix(const uint8_t *data, int32_t size) noexcept nogil:
    """FNV-1a, folded once more: names are chosen by clients, but a table only ever holds names that were created."""
    cdef uint64_t hashed = <uint64_t> 0xCBF29CE484222325u
    cdef int32_t i
    for i in range(size):
        hashed = (hashed ^ data[i]) * <uint64_t> 0x100000001B3u
    return hashed ^ (hashed >> 29)


cdef Topic **place_of_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil:
    cdef int32_t at = <int32_t> (mix(topic_id, 16) & <uint64_t> table.mask)
    while table.by_id[at] != NULL and memcmp(table.by_id[at].topic_id, topic_id, 16) != 0:
        at = (at + 1) & table.mask
    return &table.by_id[at]


cdef Topic **place_of_name(const PartitionTable *table, const uint8_t *name, int32_t size) noexcept nogil:
    cdef int32_t at = <int32_t> (mix(name, size) & <uint64_t> table.mask)
    cdef Topic *topic
    while table.by_name[at] != NULL:
        topic = table.by_name[at]
        if topic.name_size == size and memcmp(topic.name, name, size) == 0:
            break
        at = (at + 1) & table.mask
    return &table.by_name[at]


# --- tables ---

cdef PartitionTable *table_new(int32_t topics) noexcept nogil:
    cdef PartitionTable *table = <PartitionTable *> calloc(1, sizeof(PartitionTable))
    cdef int32_t places = LEAST_PLACES
    if table == NULL:
        return NULL
    while places < topics * 2:
        places *= 2
    table.by_id = <Topic **> calloc(places, sizeof(Topic *))
    table.by_name = <Topic **> calloc(places, sizeof(Topic *))
    if table.by_id == NULL or table.by_name == NULL:
        free(table.by_id)
        free(table.by_name)
        free(table)
        return NULL
    table.refs = 1
    table.mask = places - 1
    add32(&live_tables, 1)
    return table


cdef void table_put(PartitionTable *table, Topic *topic) noexcept nogil:
    """Takes the count of `topic` over; it is not there yet."""
    place_of_id(table, topic.topic_id)[0] = topic
    place_of_name(table, <const uint8_t *> topic.name, topic.name_size)[0] = topic
    table.count += 1


cdef void table_hold(PartitionTable *table) noexcept nogil:
    add32(&table.refs, 1)


cdef void table_release(PartitionTable *table) noexcept nogil:
    cdef int32_t i
    if table == NULL or add32(&table.refs, -1) != 0:
        return
    for i in range(table.mask + 1):
        topic_release(table.by_id[i])
    free(table.by_id)
    free(table.by_name)
    free(table)
    add32(&live_tables, -1)


cdef Topic *table_topic_by_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil:
    return place_of_id(table, topic_id)[0]


cdef Topic *table_topic_by_name(const PartitionTable *table, const uint8_t *name, int32_t size) noexcept nogil:
    return place_of_name(table, name, size)[0]


cdef Partition *partition_of(const Topic *topic, int32_t index) noexcept nogil:
    if topic == NULL or index < 0 or index >= topic.count:
        return NULL
    return topic.partitions[index]


cdef Partition *table_find_id(const PartitionTable *table, const uint8_t *topic_id, int32_t index) noexcept nogil:
    return partition_of(place_of_id(table, topic_id)[0], index)


cdef Partition *table_find_name(const PartitionTable *table, const uint8_t *topic, int32_t size,
                                int32_t index) noexcept nogil:
    if size < 0:
        return NULL
    return partition_of(place_of_name(table, topic, size)[0], index)


cdef bint table_knows_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil:
    return place_of_id(table, topic_id)[0] != NULL


# --- Python ---

cdef Topic *topic_of(str name, topic_id, partitions) except NULL:
    """`partitions`: by index, None where this node has none."""
    cdef bytes raw = bytes(topic_id)
    cdef bytes encoded = name.encode()
    cdef PartitionHandle handle
    cdef int32_t i
    cdef Topic *topic = topic_new(<const uint8_t *> <char *> raw, encoded, <int32_t> len(encoded),
                                  <int32_t> len(partitions))
    if topic == NULL:
        raise MemoryError
    for i, partition in enumerate(partitions):
        if partition is not None:
            handle = partition
            partition_hold(handle.partition)
            topic.partitions[i] = handle.partition
    return topic


cdef void mark_id(PartitionTable *table, uint8_t *leaves, bytes topic_id) except *:
    cdef Topic **place = place_of_id(table, <const uint8_t *> <char *> topic_id)
    if place[0] != NULL:
        leaves[place - table.by_id] = 1


cdef void mark_name(PartitionTable *table, uint8_t *leaves, bytes name) except *:
    cdef Topic *topic = place_of_name(table, <const uint8_t *> <char *> name, <int32_t> len(name))[0]
    if topic != NULL:
        leaves[place_of_id(table, topic.topic_id) - table.by_id] = 1


cdef void copy_rest(PartitionTable *table, const uint8_t *leaves, PartitionTable *made) noexcept nogil:
    cdef int32_t i
    for i in range(table.mask + 1):
        if table.by_id[i] != NULL and not leaves[i]:
            add32(&table.by_id[i].refs, 1)
            table_put(made, table.by_id[i])


cdef class Table:
    """An immutable table of topics; empty when made by itself. `changed` makes the next one."""

    def __cinit__(self):
        self.table = NULL

    def __init__(self):
        self.table = table_new(0)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        with nogil:
            table_release(self.table)

    def __len__(self):
        return self.table.count

    def changed(self, topics, gone=()):
        """A new table: this one's topics, with `topics` (`(name, topic id, [PartitionHandle or None])`) put in place of
        what had their id or name, and without the topic ids in `gone`. Costs little for each topic that stays."""
        cdef Table made = Table.__new__(Table)
        cdef uint8_t *leaves = <uint8_t *> calloc(self.table.mask + 1, 1)
        if leaves == NULL:
            raise MemoryError
        try:
            for topic_id in gone:
                mark_id(self.table, leaves, bytes(topic_id))
            for name, topic_id, _ in topics:
                mark_id(self.table, leaves, bytes(topic_id))
                mark_name(self.table, leaves, name.encode())
            made.table = table_new(self.table.count + <int32_t> len(topics))
            if made.table == NULL:
                raise MemoryError
            with nogil:
                copy_rest(self.table, leaves, made.table)
            for name, topic_id, partitions in topics:
                table_put(made.table, topic_of(name, topic_id, partitions))
        finally:
            free(leaves)
        return made

    def topics(self):
        """`[(name, topic id, how many partitions)]`, in no order."""
        cdef int32_t i
        cdef Topic *topic
        cdef list found = []
        for i in range(self.table.mask + 1):
            topic = self.table.by_id[i]
            if topic != NULL:
                found.append((topic.name[:topic.name_size].decode(), Uuid(topic.topic_id[:16]), topic.count))
        return found

    def find(self, topic, int32_t index):
        """Whether the partition of a topic name or a topic id (Uuid) is here."""
        cdef bytes key = bytes(topic) if isinstance(topic, Uuid) else topic.encode()
        if isinstance(topic, Uuid):
            return table_find_id(self.table, <const uint8_t *> <char *> key, index) != NULL
        return table_find_name(self.table, <const uint8_t *> <char *> key, <int32_t> len(key), index) != NULL


def live_count():
    """Tables that somebody holds in this process."""
    return load32(&live_tables)
