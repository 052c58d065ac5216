"""Implements partition_table.pxd."""

from libc.errno cimport ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.base.keyed_hash cimport hash_bytes, process_hash_key
from kafkacore._fast.log.partition cimport Partition, partition_hold, partition_release
from kafkacore._fast.log.partition_handle cimport PartitionHandle

from kafkacore._fast.base.uuid import Uuid

cdef enum:
    LEAST_PLACES = 8
    # The intended number of topics in a shard. A change copies two shards, and only the pointers to all other shards.
    TOPICS_A_SHARD = 32
    SPARSE = 8           # if a table has more than this many times the shards it needs, the next table has fewer

cdef int32_t live_tables = 0  # both are atomic; tests check that they return to zero
cdef int32_t live_topic_count = 0


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
    add32(&live_topic_count, 1)
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
    add32(&live_topic_count, -1)


# --- shards ---

cdef inline uint64_t key_hash(const uint8_t *key, int32_t size) noexcept nogil:
    """Returns a hash with the process's secret key. The hash needs a key because clients choose the names of the topics
    that they create and request."""
    return hash_bytes(process_hash_key(), key, <size_t> size)


cdef inline const uint8_t *key_of(const Topic *topic, bint is_id) noexcept nogil:
    if is_id:
        return topic.topic_id
    return <const uint8_t *> topic.name


cdef inline int32_t key_size(const Topic *topic, bint is_id) noexcept nogil:
    return 16 if is_id else topic.name_size


cdef inline int32_t shard_at(uint64_t hashed, int32_t mask) noexcept nogil:
    return <int32_t> ((hashed >> 32) & <uint64_t> mask)  # the bits that do not choose the place within a shard


cdef Topic *find(Shard **index, int32_t mask, const uint8_t *key, int32_t size, bint is_id) noexcept nogil:
    cdef uint64_t hashed = key_hash(key, size)
    cdef const Shard *shard = index[shard_at(hashed, mask)]
    cdef Topic *topic
    cdef int32_t at
    if shard == NULL:
        return NULL
    at = <int32_t> (hashed & <uint64_t> shard.mask)
    while shard.places[at] != NULL:
        topic = shard.places[at]
        if key_size(topic, is_id) == size and memcmp(key_of(topic, is_id), key, size) == 0:
            return topic
        at = (at + 1) & shard.mask
    return NULL


cdef void shard_put(Shard *shard, Topic *topic, bint is_id) noexcept nogil:
    """Adds a topic to a shard. The shard must have room, and must not contain the topic yet."""
    cdef int32_t at = <int32_t> (key_hash(key_of(topic, is_id), key_size(topic, is_id)) & <uint64_t> shard.mask)
    while shard.places[at] != NULL:
        at = (at + 1) & shard.mask
    add32(&topic.refs, 1)
    shard.places[at] = topic
    shard.count += 1


cdef int32_t shard_longest_probe(const Shard *shard, bint is_id) noexcept nogil:
    cdef const Topic *topic
    cdef int32_t longest = 0
    cdef int32_t at, home
    if shard == NULL:
        return 0
    for at in range(shard.mask + 1):
        topic = shard.places[at]
        if topic != NULL:
            home = <int32_t> (key_hash(key_of(topic, is_id), key_size(topic, is_id)) & <uint64_t> shard.mask)
            longest = max(longest, (at - home) & shard.mask)
    return longest


cdef void shard_release(Shard *shard) noexcept nogil:
    cdef int32_t i
    if shard == NULL or add32(&shard.refs, -1) != 0:
        return
    for i in range(shard.mask + 1):
        topic_release(shard.places[i])
    free(shard.places)
    free(shard)


cdef Shard *shard_with_room(const Shard *from_, int32_t more, const Topic *without, bint is_id) noexcept nogil:
    """Returns a copy of the shard, with room for `more` further topics. Leaves out the topic `without`, unless it is
    NULL. No table uses the copy yet. Returns NULL if memory runs out."""
    cdef Shard *shard = <Shard *> calloc(1, sizeof(Shard))
    cdef int32_t count = (from_.count if from_ != NULL else 0) + more
    cdef int32_t places = LEAST_PLACES
    cdef int32_t i
    if shard == NULL:
        return NULL
    while places < count * 2:
        places *= 2
    shard.places = <Topic **> calloc(places, sizeof(Topic *))
    if shard.places == NULL:
        free(shard)
        return NULL
    shard.refs = 1
    shard.mask = places - 1
    if from_ != NULL:
        for i in range(from_.mask + 1):
            if from_.places[i] != NULL and from_.places[i] != without:
                shard_put(shard, from_.places[i], is_id)
    return shard


# --- tables ---

cdef int32_t shards_for(int32_t topics) noexcept nogil:
    cdef int32_t shards = 1
    while shards * TOPICS_A_SHARD < topics:
        shards *= 2
    return shards


cdef PartitionTable *table_new(int32_t shards) noexcept nogil:
    cdef PartitionTable *table = <PartitionTable *> calloc(1, sizeof(PartitionTable))
    if table == NULL:
        return NULL
    table.by_id = <Shard **> calloc(shards, sizeof(Shard *))
    table.by_name = <Shard **> calloc(shards, sizeof(Shard *))
    if table.by_id == NULL or table.by_name == NULL:
        free(table.by_id)
        free(table.by_name)
        free(table)
        return NULL
    table.refs = 1
    table.mask = shards - 1
    add32(&live_tables, 1)
    return table


cdef Shard **shard_of(PartitionTable *table, const Topic *topic, bint is_id) noexcept nogil:
    cdef Shard **index = table.by_id if is_id else table.by_name
    return &index[shard_at(key_hash(key_of(topic, is_id), key_size(topic, is_id)), table.mask)]


cdef int index_put(PartitionTable *table, Topic *topic, bint is_id) noexcept nogil:
    """Adds the topic to its shard in one of the two indexes. If another table uses this shard too, or if the shard is
    full, first puts a copy in the place of the shard."""
    cdef Shard **shard = shard_of(table, topic, is_id)
    cdef Shard *own = shard[0]
    if own == NULL or load32(&own.refs) > 1 or (own.count + 1) * 2 > own.mask + 1:
        own = shard_with_room(shard[0], 1, NULL, is_id)
        if own == NULL:
            return -ENOMEM
        shard_release(shard[0])
        shard[0] = own
    shard_put(own, topic, is_id)
    return 0


cdef int table_put(PartitionTable *table, Topic *topic) noexcept nogil:
    """Adds a topic, whose id and name must not be in the table yet. The table's shards take their own references."""
    cdef int error = index_put(table, topic, True)
    if error == 0:
        error = index_put(table, topic, False)
    table.count += 1
    return error


cdef int index_drop(PartitionTable *table, Topic *topic, bint is_id) noexcept nogil:
    cdef Shard **shard = shard_of(table, topic, is_id)
    cdef Shard *own = shard_with_room(shard[0], 0, topic, is_id)
    if own == NULL:
        return -ENOMEM
    shard_release(shard[0])
    shard[0] = own
    return 0


cdef int table_drop(PartitionTable *table, Topic *topic) noexcept nogil:
    """Removes a topic that is in the table. The previous table keeps the topic alive until this returns."""
    cdef int error
    if topic == NULL:
        return 0
    error = index_drop(table, topic, True)
    if error == 0:
        error = index_drop(table, topic, False)
    table.count -= 1
    return error


cdef PartitionTable *table_copy(PartitionTable *table, int32_t topics) noexcept nogil:
    """Creates a table with the same topics, for a change that leaves it with `topics` topics. Shares the shards of the
    old table, unless the new one needs more shards or far fewer."""
    cdef int32_t shards = shards_for(topics)
    cdef bint is_same = table.mask // SPARSE < shards <= table.mask + 1
    cdef PartitionTable *made = table_new(table.mask + 1 if is_same else shards)
    cdef int32_t i
    if made == NULL:
        return NULL
    for i in range(table.mask + 1):
        if is_same:
            made.by_id[i] = hold_shard(table.by_id[i])
            made.by_name[i] = hold_shard(table.by_name[i])
        elif put_all(made, table.by_id[i]) != 0:
            table_release(made)
            return NULL
    if is_same:
        made.count = table.count
    return made


cdef Shard *hold_shard(Shard *shard) noexcept nogil:
    if shard != NULL:
        add32(&shard.refs, 1)
    return shard


cdef int put_all(PartitionTable *made, const Shard *shard) noexcept nogil:
    cdef int32_t i
    cdef int error = 0
    if shard != NULL:
        for i in range(shard.mask + 1):
            if shard.places[i] != NULL and error == 0:
                error = table_put(made, shard.places[i])
    return error


cdef void table_release(PartitionTable *table) noexcept nogil:
    cdef int32_t i
    if table == NULL or add32(&table.refs, -1) != 0:
        return
    for i in range(table.mask + 1):
        shard_release(table.by_id[i])
        shard_release(table.by_name[i])
    free(table.by_id)
    free(table.by_name)
    free(table)
    add32(&live_tables, -1)


cdef Topic *table_topic_by_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil:
    return find(table.by_id, table.mask, topic_id, 16, True)


cdef Topic *table_topic_by_name(const PartitionTable *table, const uint8_t *name, int32_t size) noexcept nogil:
    return find(table.by_name, table.mask, name, size, False)


cdef Partition *partition_of(const Topic *topic, int32_t index) noexcept nogil:
    if topic == NULL or index < 0 or index >= topic.count:
        return NULL
    return topic.partitions[index]


cdef Partition *table_find_id(const PartitionTable *table, const uint8_t *topic_id, int32_t index) noexcept nogil:
    # A broker that has just started has no table yet, but followers may already fetch from it.
    return partition_of(table_topic_by_id(table, topic_id), index) if table != NULL else NULL


cdef Partition *table_find_name(const PartitionTable *table, const uint8_t *topic, int32_t size,
                                int32_t index) noexcept nogil:
    if size < 0 or table == NULL:
        return NULL
    return partition_of(table_topic_by_name(table, topic, size), index)


cdef bint table_knows_id(const PartitionTable *table, const uint8_t *topic_id) noexcept nogil:
    return table != NULL and table_topic_by_id(table, topic_id) != NULL


# --- the Python interface ---

cdef Topic *topic_of(str name, topic_id, partitions) except NULL:
    """Creates a topic. `partitions` has one item for each index: None where this node has no replica."""
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


cdef int drop_id(PartitionTable *table, bytes topic_id) except -1:
    if table_drop(table, table_topic_by_id(table, <const uint8_t *> <char *> topic_id)) != 0:
        raise MemoryError
    return 0


cdef int drop_name(PartitionTable *table, bytes name) except -1:
    if table_drop(table, table_topic_by_name(table, <const uint8_t *> <char *> name, <int32_t> len(name))) != 0:
        raise MemoryError
    return 0


cdef int put_new(PartitionTable *table, Topic *topic) except -1:
    cdef int error = table_put(table, topic)
    topic_release(topic)
    if error != 0:
        raise MemoryError
    return 0


cdef class Table:
    """An immutable table of topics. `Table()` is empty; `changed` creates the next table."""

    def __cinit__(self):
        self.table = NULL

    def __init__(self):
        self.table = table_new(1)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        with nogil:
            table_release(self.table)

    def __len__(self):
        return self.table.count

    def changed(self, topics, gone=()):
        """Returns a new table. It has the topics of this table, except the topics whose ids are in `gone`, and it has
        `topics`. Each item of `topics` is `(name, topic id, [PartitionHandle or None])`, and replaces the topic with
        the same id or name. Both tables share the topics that do not change."""
        cdef Table made = Table.__new__(Table)
        cdef int32_t bound = self.table.count + <int32_t> len(topics)
        with nogil:
            made.table = table_copy(self.table, bound)
        if made.table == NULL:
            raise MemoryError
        for topic_id in gone:
            drop_id(made.table, bytes(topic_id))
        for name, topic_id, partitions in topics:
            drop_id(made.table, bytes(topic_id))
            drop_name(made.table, name.encode())
            put_new(made.table, topic_of(name, topic_id, partitions))
        return made

    def topics(self):
        """Returns `[(name, topic id, number of partitions)]`, in no particular order."""
        cdef int32_t i, at
        cdef Topic *topic
        cdef list found = []
        cdef Shard *shard
        for i in range(self.table.mask + 1):
            shard = self.table.by_id[i]
            if shard == NULL:
                continue
            for at in range(shard.mask + 1):
                topic = shard.places[at]
                if topic != NULL:
                    found.append((topic.name[:topic.name_size].decode(), Uuid(topic.topic_id[:16]), topic.count))
        return found

    def longest_probe(self):
        """Returns the highest number of places that a look-up of a topic visits. Tests check its limit."""
        cdef int32_t i
        cdef int32_t longest = 0
        for i in range(self.table.mask + 1):
            longest = max(longest, shard_longest_probe(self.table.by_id[i], True),
                          shard_longest_probe(self.table.by_name[i], False))
        return longest

    def find(self, topic, int32_t index):
        """Returns whether the table has the partition. `topic` is a topic name or a topic id (Uuid)."""
        cdef bytes key = bytes(topic) if isinstance(topic, Uuid) else topic.encode()
        if isinstance(topic, Uuid):
            return table_find_id(self.table, <const uint8_t *> <char *> key, index) != NULL
        return table_find_name(self.table, <const uint8_t *> <char *> key, <int32_t> len(key), index) != NULL


def live_count():
    """Returns the number of tables in this process that have not been freed."""
    return load32(&live_tables)


def live_topics():
    """Returns the number of topics in this process that have not been freed. Tables share topics."""
    return load32(&live_topic_count)
