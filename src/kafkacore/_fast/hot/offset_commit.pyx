"""Reads, checks, records and answers an OffsetCommit. offset_commit.pxd has the contract."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkacore._fast.base.api_keys cimport OFFSET_COMMIT
from kafkacore._fast.base.cursor cimport Reader, Writer, reader_init, reserve, write_raw, writer_free, writer_init
from kafkacore._fast.hot.offset_records cimport (
    OFFSET_KEY_BYTES, OFFSET_VALUE_BYTES, TOPIC_ID_BYTES, copy_topic_id, put_offset_key, put_offset_value,
)
from kafkacore._fast.record.record cimport BATCH_OK, BatchBuilder, builder_append
from kafkacore._fast.record.record_source cimport RecordSource
from kafkacore._fast.schema.schema cimport FAULT_ELEMENTS, FAULT_NO_ROOM, FAULT_NONE, MAX_STRING, Slice
from kafkacore._fast.schema.view cimport (
    Binding, Gap, Program, arena_alloc, arena_free, arena_init, view_read, view_write,
)

from kafkacore._fast.base.errors import ProtocolError, UnsupportedVersionError
from kafkacore._fast.schema.message import message_class

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *data, Py_ssize_t size, const char *errors)

cdef enum:
    LOWEST = 2
    HIGHEST = 10
    MAX_ELEMENTS = 1000000      # topics and partitions, as in every request
    MAX_ARENA = 96 << 20        # enough for MAX_ELEMENTS elements
    MAX_RESPONSE = 0x7FFFFFFF
    BIG = 32768                 # larger requests are read and written without the GIL
    TOPICS_AT_ONCE = 2000       # `read_more` decodes the texts of at most this many topics
    # The largest sizes of the parts of an answer: the head, a topic without its name, and a partition.
    ANSWER_BYTES = 16
    TOPIC_ANSWER_BYTES = 32
    PARTITION_ANSWER_BYTES = 8


cdef inline int32_t at(const void *struct, const void *field) noexcept:
    return <int32_t> (<const char *> field - <const char *> struct)


cdef tuple layout_partition():
    cdef CommittedPartition s
    return sizeof(s), {
        "partition_index": at(&s, &s.partition_index), "committed_offset": at(&s, &s.committed_offset),
        "committed_leader_epoch": at(&s, &s.committed_leader_epoch),
        "committed_metadata": at(&s, &s.committed_metadata), "error_code": at(&s, &s.error_code),
    }


cdef tuple layout_topic():
    cdef CommittedTopic s
    return sizeof(s), {
        "name": at(&s, &s.name), "topic_id": at(&s, &s.topic_id[0]), "partitions": at(&s, &s.partitions),
    }


cdef tuple layout_request():
    cdef CommitRequest s
    return sizeof(s), {
        "group_id": at(&s, &s.group_id), "member_id": at(&s, &s.member_id),
        "group_instance_id": at(&s, &s.group_instance_id), "retention_time_ms": at(&s, &s.retention_time_ms),
        "generation_id_or_member_epoch": at(&s, &s.generation_id_or_member_epoch),
        "throttle_time_ms": at(&s, &s.throttle_time_ms), "topics": at(&s, &s.topics),
    }


cdef Binding bound(str name):
    return Binding(name, LOWEST, HIGHEST, {
        name: layout_request(), f"{name}Topic": layout_topic(), f"{name}Partition": layout_partition(),
    })


cdef Binding REQUEST = bound("OffsetCommitRequest")
cdef Binding RESPONSE = bound("OffsetCommitResponse")


cdef int64_t count_of(const CommitRequest *request) noexcept nogil:
    """Returns the number of topics and partitions in the request."""
    cdef int32_t i
    cdef int64_t count = request.topics.count
    for i in range(request.topics.count):
        count += (<CommittedTopic *> request.topics.items)[i].partitions.count
    return count


cdef str text_of(const Slice *text):
    """Returns a text as str, or None if it is null. Raises UnicodeDecodeError."""
    return None if text.size < 0 else PyUnicode_DecodeUTF8(<const char *> text.data, text.size, NULL)


cdef bint too_long(const Slice *metadata, int64_t limit) except -1:
    """Returns whether a text has more than `limit` Java characters. A character outside the Basic Multilingual Plane
    counts as two. A text never has more Java characters than bytes."""
    if metadata.size <= limit:
        return False
    return len(text_of(metadata).encode("utf-16-le")) > limit * 2


@cython.final
@cython.auto_pickle(False)
cdef class OffsetCommit(RecordSource):

    API_KEY = OFFSET_COMMIT

    def __cinit__(self, data, int version):
        cdef const Program *program = REQUEST.program(version)
        cdef Reader reader
        cdef int fault
        arena_init(&self.arena, MAX_ARENA)
        if program == NULL:
            raise UnsupportedVersionError(f"OffsetCommit {version} is not supported; {LOWEST} to {HIGHEST} are")
        self.version = version
        self.body = bytes(data)
        self.request = <CommitRequest *> arena_alloc(&self.arena, program.size)
        if self.request == NULL:
            raise MemoryError
        reader_init(&reader, PyBytes_AS_STRING(self.body), PyBytes_GET_SIZE(self.body))
        if PyBytes_GET_SIZE(self.body) > BIG:
            with nogil:
                fault = view_read(program, &reader, self.request, &self.arena)
        else:
            fault = view_read(program, &reader, self.request, &self.arena)
        if fault == FAULT_NONE and count_of(self.request) > MAX_ELEMENTS:
            fault = FAULT_ELEMENTS
        if fault != FAULT_NONE:
            self.refuse_body(fault)
        self.take_texts()
        self.read_more()

    def __dealloc__(self):
        arena_free(&self.arena)

    cdef int refuse_body(self, int fault) except -1:
        """Raises an error for a malformed body. Decoding the body again with the message's class gives the text of the
        error."""
        self.message()
        raise MemoryError if fault == FAULT_NO_ROOM else ProtocolError(f"OffsetCommitRequest: fault {fault}")

    cdef int take_texts(self) except -1:
        """Decodes the texts of the request that belong to no topic."""
        cdef CommitRequest *request = self.request
        self.generation_id_or_member_epoch = request.generation_id_or_member_epoch
        self.retention_time_ms = request.retention_time_ms
        self.names = []
        self.found = []
        try:
            self.group_id = text_of(&request.group_id)
            self.member_id = text_of(&request.member_id)
            self.group_instance_id = text_of(&request.group_instance_id)
        except UnicodeDecodeError as error:
            self.refuse_text(error)
        return 0

    cdef int refuse_text(self, error) except -1:
        self.message()
        raise ProtocolError("OffsetCommitRequest: a text is not UTF-8") from error

    @property
    def is_read(self):
        return len(self.names) == self.request.topics.count

    def read_more(self):
        cdef CommittedTopic *topic
        cdef const Slice *metadata
        cdef int32_t i, j
        cdef int32_t first = <int32_t> len(self.names)
        cdef int32_t name_size = 0
        try:
            for i in range(first, min(first + TOPICS_AT_ONCE, self.request.topics.count)):
                topic = &(<CommittedTopic *> self.request.topics.items)[i]
                self.names.append(text_of(&topic.name))
                name_size = max(name_size, topic.name.size)
                for j in range(topic.partitions.count):
                    metadata = &(<CommittedPartition *> topic.partitions.items)[j].committed_metadata
                    if metadata.size > 0:
                        text_of(metadata)
                        self.metadata_size = max(self.metadata_size, metadata.size)
        except UnicodeDecodeError as error:
            self.refuse_text(error)
        self.name_size = max(self.name_size, name_size)
        self.make_room(self.name_size)

    cdef int make_room(self, int32_t name_size) except -1:
        """Makes room for the longest possible record. `name_size` is the size of the longest topic name."""
        cdef size_t size = OFFSET_KEY_BYTES + OFFSET_VALUE_BYTES + <size_t> self.request.group_id.size
        size += <size_t> name_size + <size_t> self.metadata_size
        if size > self.scratch_size:
            self.scratch = <uint8_t *> arena_alloc(&self.arena, size)
            if self.scratch == NULL:
                raise MemoryError
            self.scratch_size = size
        return 0

    def message(self):
        return message_class("OffsetCommitRequest").decode_prefix(self.body, self.version)[0]

    def __repr__(self):
        return repr(self.message())

    # --- the topics and partitions of the request ---

    cdef CommittedTopic *topic(self, Py_ssize_t number) except NULL:
        if not 0 <= number < self.request.topics.count:
            raise IndexError(number)
        return &(<CommittedTopic *> self.request.topics.items)[number]

    def topic_id(self, Py_ssize_t number):
        return PyBytes_FromStringAndSize(<const char *> self.topic(number).topic_id, TOPIC_ID_BYTES)

    def find(self, Py_ssize_t number, str name not None, topic_id, const int32_t[::1] rows not None, int16_t error):
        cdef CommittedTopic *topic = self.topic(number)
        cdef CommittedPartition *each
        cdef int32_t i
        cdef bytes encoded
        copy_topic_id(topic.topic_id, topic_id)
        if name != self.names[number]:
            encoded = name.encode()
            if len(encoded) > MAX_STRING:
                raise ValueError(f"a topic's name has {len(encoded)} bytes, more than {MAX_STRING}")
            self.make_room(<int32_t> PyBytes_GET_SIZE(encoded))
            self.found.append(encoded)
            topic.name.data = <const uint8_t *> PyBytes_AS_STRING(encoded)
            topic.name.size = <int32_t> PyBytes_GET_SIZE(encoded)
            self.names[number] = name
        for i in range(topic.partitions.count):
            each = &(<CommittedPartition *> topic.partitions.items)[i]
            if not 0 <= each.partition_index < rows.shape[0] or rows[each.partition_index] < 0:
                each.refused = error

    def refuse(self, Py_ssize_t number, int16_t error):
        cdef CommittedTopic *topic = self.topic(number)
        cdef int32_t i
        for i in range(topic.partitions.count):
            (<CommittedPartition *> topic.partitions.items)[i].refused = error

    def partitions(self, Py_ssize_t number):
        cdef CommittedTopic *topic = self.topic(number)
        cdef CommittedPartition *each
        cdef int32_t i
        cdef list found = []
        for i in range(topic.partitions.count):
            each = &(<CommittedPartition *> topic.partitions.items)[i]
            if each.refused == 0:
                found.append(each.partition_index)
        return found

    def accepted(self):
        cdef CommittedTopic *topic
        cdef int32_t i, j
        cdef list found = []
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            for j in range(topic.partitions.count):
                if (<CommittedPartition *> topic.partitions.items)[j].refused == 0:
                    found.append(i)
                    break
        return found

    # --- the records ---

    def __len__(self):
        cdef int32_t i, j
        cdef CommittedTopic *topic
        cdef Py_ssize_t count = 0
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            for j in range(topic.partitions.count):
                count += (<CommittedPartition *> topic.partitions.items)[j].refused == 0
        return count

    def accept(self, int64_t now_ms, int64_t expire_timestamp, int64_t metadata_limit, int16_t error):
        cdef int32_t i, j
        cdef CommittedTopic *topic
        cdef CommittedPartition *each
        self.written.commit_timestamp = now_ms
        self.written.expire_timestamp = expire_timestamp
        self.too_large = error
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            for j in range(topic.partitions.count):
                each = &(<CommittedPartition *> topic.partitions.items)[j]
                if each.refused == 0 and too_long(&each.committed_metadata, metadata_limit):
                    each.refused = error

    cdef int append_to(self, BatchBuilder *builder, int64_t timestamp) noexcept nogil:
        cdef OffsetFields fields = self.written
        cdef size_t least = OFFSET_KEY_BYTES + OFFSET_VALUE_BYTES + <size_t> self.request.group_id.size
        cdef CommittedTopic *topic
        cdef CommittedPartition *each
        cdef int32_t i, j
        cdef uint8_t *key = self.scratch
        cdef uint8_t *value
        cdef uint8_t *end
        cdef int status
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            memcpy(fields.topic_id, topic.topic_id, TOPIC_ID_BYTES)
            grow_at_once(&builder.out, <size_t> topic.partitions.count * (least + <size_t> topic.name.size))
            for j in range(topic.partitions.count):
                each = &(<CommittedPartition *> topic.partitions.items)[j]
                if each.refused:
                    continue
                value = put_offset_key(key, &self.request.group_id, &topic.name, each.partition_index)
                end = put_value(value, &fields, each)
                status = builder_append(
                    builder, builder.header.last_offset_delta + 1, timestamp, key, <int32_t> (value - key),
                    value, <int32_t> (end - value), NULL, 0, 0,
                )
                if status != BATCH_OK:
                    return status
        return BATCH_OK

    def __iter__(self):
        cdef OffsetFields fields = self.written
        cdef CommittedTopic *topic
        cdef CommittedPartition *each
        cdef int32_t i, j
        cdef uint8_t *key = self.scratch
        cdef uint8_t *value
        cdef uint8_t *end
        cdef list records = []
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            memcpy(fields.topic_id, topic.topic_id, TOPIC_ID_BYTES)
            for j in range(topic.partitions.count):
                each = &(<CommittedPartition *> topic.partitions.items)[j]
                if each.refused == 0:
                    value = put_offset_key(key, &self.request.group_id, &topic.name, each.partition_index)
                    end = put_value(value, &fields, each)
                    records.append(((<char *> key)[:value - key], (<char *> value)[:end - value]))
        return iter(records)

    # --- the answer ---

    def response(self, bytes prefix not None):
        cdef CommittedTopic *topic
        cdef CommittedPartition *each
        cdef Writer writer
        cdef Gap no_gap
        cdef int gaps = 0
        cdef int32_t i, j
        cdef int fault
        cdef size_t size = PyBytes_GET_SIZE(prefix) + ANSWER_BYTES
        for i in range(self.request.topics.count):
            topic = &(<CommittedTopic *> self.request.topics.items)[i]
            size += TOPIC_ANSWER_BYTES + <size_t> topic.name.size
            size += PARTITION_ANSWER_BYTES * <size_t> topic.partitions.count
            for j in range(topic.partitions.count):
                each = &(<CommittedPartition *> topic.partitions.items)[j]
                each.error_code = each.refused or self.error
                # In Kafka, the group checks the metadata. So an error of the group takes precedence over the error for
                # metadata that is too large.
                if self.error and each.refused == self.too_large:
                    each.error_code = self.error
        writer_init(&writer, MAX_RESPONSE)
        grow_at_once(&writer, size)
        write_raw(&writer, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        fault = view_write(RESPONSE.program(self.version), self.request, &writer, &no_gap, 0, &gaps)
        try:
            if fault != FAULT_NONE or writer.bad:
                raise MemoryError
            return PyBytes_FromStringAndSize(<char *> writer.data, writer.size)
        finally:
            writer_free(&writer)


cdef inline void grow_at_once(Writer *writer, size_t size) noexcept nogil:
    """Makes room for `size` more bytes in one step, so that the buffer is not copied several times."""
    if size <= writer.limit - writer.size and reserve(writer, size) != NULL:
        writer.size -= size


cdef inline uint8_t *put_value(uint8_t *p, OffsetFields *fields, const CommittedPartition *each) noexcept nogil:
    """Writes the record value of one partition. `fields` holds the fields that all values share."""
    fields.offset = each.committed_offset
    fields.leader_epoch = each.committed_leader_epoch
    fields.metadata = each.committed_metadata
    return put_offset_value(p, fields)
