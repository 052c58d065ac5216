"""Converts Arrow columns to record batches. record_encoder.pyi has the contract."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from kafkacore._fast.base.cursor cimport Writer, put32, write_raw, write_varint, writer_free, writer_init
from kafkacore._fast.base.crc32c cimport crc32c
from kafkacore._fast.codec.compression cimport Codec, codec_id
from kafkacore._fast.codec.context cimport LEVEL_DEFAULT
from kafkacore._fast.columns.arrow_input cimport ABSENT, ArrowInput, Column, bounds, bytes_of, is_valid
from kafkacore._fast.record.record cimport (
    ATTRIBUTES_AT, BATCH_BAD_RECORD, BATCH_FULL, BATCH_NO_MEMORY, BATCH_OK, CRC_AT, HEADER_BYTES, MAX_BATCH_BYTES,
    TRANSACTIONAL, BatchBuilder, BatchHeader, builder_append, builder_close, builder_free, builder_init, check_batch,
    write_header,
)

from kafkacore._fast.base.errors import CorruptBatchError, InvalidRecordError

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <string.h>
    /* The hash of Kafka's default partitioner (Utils.murmur2 in Kafka: MurmurHash2 with this seed, little-endian). */
    static uint32_t kc_murmur2(const uint8_t *data, uint32_t size) {
        const uint32_t m = 0x5bd1e995u;
        uint32_t h = 0x9747b28cu ^ size, k, i, left = size & 3;
        for (i = 0; i + 4 <= size; i += 4) {
            k = (uint32_t)data[i] | (uint32_t)data[i + 1] << 8 | (uint32_t)data[i + 2] << 16
                | (uint32_t)data[i + 3] << 24;
            k *= m; k ^= k >> 24; k *= m;
            h *= m; h ^= k;
        }
        if (left == 3) h ^= (uint32_t)data[i + 2] << 16;
        if (left >= 2) h ^= (uint32_t)data[i + 1] << 8;
        if (left >= 1) { h ^= data[i]; h *= m; }
        h ^= h >> 13; h *= m; h ^= h >> 15;
        return h;
    }
    """
    uint32_t kc_murmur2(const uint8_t *data, uint32_t size)

cdef enum:
    MOST_TOPICS = 1 << 16
    RECORD_ROOM = 32             # an upper bound for the size of a record without its key, value and headers
    MOST_PARTITIONS = 1 << 20

cdef enum EncodeStatus:          # in addition to the values of BatchStatus
    ENCODE_BAD_PARTITION = -21
    ENCODE_BAD_HEADER = -22
    ENCODE_TOO_LARGE = -23

ctypedef struct Made:            # a closed batch
    uint8_t *data
    size_t size
    int32_t partition
    int32_t count


class UnknownPartition(InvalidRecordError):
    """See record_encoder.pyi."""


def murmur2(bytes key):
    """Returns Kafka's hash of a key as an unsigned number."""
    return kc_murmur2(<const uint8_t *> PyBytes_AS_STRING(key), <uint32_t> PyBytes_GET_SIZE(key))


def seal(bytes batch, int64_t producer_id, int producer_epoch, int32_t base_sequence, bint transactional=False):
    """Returns the batch with its producer id, epoch and sequence. Raises CorruptBatchError unless `batch` is exactly
    one valid batch."""
    cdef BatchHeader header
    cdef Py_ssize_t size = PyBytes_GET_SIZE(batch)
    cdef bytes made
    cdef uint8_t *data
    cdef int status = check_batch(PyBytes_AS_STRING(batch), size, &header)
    if status != BATCH_OK or header.size_bytes != size or header.magic != 2:
        raise CorruptBatchError("the bytes are not one sound record batch of magic 2")
    made = PyBytes_FromStringAndSize(PyBytes_AS_STRING(batch), size)
    data = <uint8_t *> PyBytes_AS_STRING(made)
    header.producer_id = producer_id
    header.producer_epoch = <short> producer_epoch
    header.base_sequence = base_sequence
    header.attributes = (header.attributes & ~TRANSACTIONAL) | (TRANSACTIONAL if transactional else 0)
    with nogil:
        write_header(data, &header)
        put32(data + CRC_AT, crc32c(0, data + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
    return made


@cython.final
cdef class RecordEncoder:
    """See record_encoder.pyi."""

    cdef ArrowInput rows
    cdef int32_t *topic_of       # the number of each row's topic; NULL without a column `topic`
    cdef readonly list topics
    cdef Codec codec
    cdef int codec_number
    cdef int level
    cdef size_t batch_bytes
    cdef size_t most_bytes
    cdef int64_t now_ms
    cdef Writer header_bytes     # the headers of the row that is being added
    cdef BatchBuilder *builders  # by partition; a builder without memory has no records
    cdef int32_t partition_count
    cdef Made *made
    cdef size_t made_count
    cdef int64_t row             # the current row, for error messages

    def __cinit__(self, *args, **kwargs):
        writer_init(&self.header_bytes, MAX_BATCH_BYTES)

    def __init__(
        self, columns, *, int64_t now_ms, codec="none", level=None, int64_t batch_bytes=1 << 18,
        int64_t most_bytes=1 << 20
    ):
        if self.rows is not None:
            raise TypeError("an encoder can be initialized only once")
        if not 1 <= batch_bytes <= MAX_BATCH_BYTES or not 1 <= most_bytes <= MAX_BATCH_BYTES:
            raise ValueError("batch_bytes and most_bytes must be from 1 to 2^31 - 1")
        self.rows = ArrowInput(columns)
        self.codec = Codec()
        self.codec_number = codec_id(codec)
        self.level = LEVEL_DEFAULT if level is None else level
        self.batch_bytes = <size_t> max(batch_bytes, <int64_t> HEADER_BYTES)
        self.most_bytes = <size_t> max(most_bytes, <int64_t> HEADER_BYTES)
        self.now_ms = now_ms
        self.find_topics()

    def __dealloc__(self):
        self.drop()
        free(self.topic_of)
        writer_free(&self.header_bytes)

    def __len__(self):
        return self.rows.num_rows

    cdef void drop(self) noexcept nogil:
        cdef int32_t i
        cdef size_t j
        if self.builders != NULL:
            for i in range(self.partition_count):
                builder_free(&self.builders[i])
        free(self.builders)
        self.builders = NULL
        for j in range(self.made_count):
            free(self.made[j].data)
        free(self.made)
        self.made = NULL
        self.made_count = 0

    cdef find_topics(self):
        """Numbers the names in the column `topic`. A row with the same topic as the previous row needs no Python
        object."""
        cdef const uint8_t *name
        cdef const uint8_t *before = NULL
        cdef int64_t row, size
        cdef int64_t size_before = -1
        cdef int32_t number = -1
        self.topics = None
        if self.rows.topic.kind == ABSENT:
            return
        self.topic_of = <int32_t *> calloc(self.rows.num_rows + 1, sizeof(int32_t))
        if self.topic_of == NULL:
            raise MemoryError
        known = {}
        for row in range(self.rows.num_rows):
            size = bytes_of(&self.rows.topic, row, &name)
            if size < 0:
                raise InvalidRecordError(f"row {row} has no topic")
            if size != size_before or memcmp(name, before, size):
                number = known.setdefault(name[:size].decode("utf-8", "replace"), len(known))
                if len(known) > MOST_TOPICS:
                    raise ValueError(f"a batch may name {MOST_TOPICS} topics")
                before, size_before = name, size
            self.topic_of[row] = number
        self.topics = list(known)

    def encode(self, int32_t partition_count, *, topic=None, partition=None, int32_t sticky=0, bint ignore_keys=False):
        cdef int32_t wanted = -1
        cdef int32_t fixed = -1 if partition is None else partition
        cdef bint one_topic = topic is not None
        cdef int status
        if not 1 <= partition_count <= MOST_PARTITIONS:
            raise ValueError(f"a topic has 1 to {MOST_PARTITIONS} partitions, not {partition_count}")
        if partition is not None and not 0 <= fixed < partition_count:
            raise ValueError(f"there is no partition {fixed}: the topic has {partition_count}")
        if topic is not None:
            if self.topics is None or topic not in self.topics:
                return [], sticky
            wanted = self.topics.index(topic)
        self.drop()
        self.partition_count = partition_count
        self.builders = <BatchBuilder *> calloc(partition_count, sizeof(BatchBuilder))
        if self.builders == NULL:
            raise MemoryError
        sticky = (sticky & 0x7FFFFFFF) % partition_count
        with nogil:
            status = self.add_all(wanted, one_topic, fixed, &sticky, ignore_keys)
        try:
            if status != BATCH_OK:
                self.refuse(status)
            found = [
                (self.made[i].partition, PyBytes_FromStringAndSize(<char *> self.made[i].data, self.made[i].size),
                 self.made[i].count)
                for i in range(self.made_count)
            ]
        finally:
            self.drop()
        return found, sticky

    def refuse(self, int status):
        """Raises the error that belongs to a status below zero."""
        where = f"row {self.row}"
        if status == ENCODE_BAD_PARTITION:
            raise UnknownPartition(f"{where} has a partition that is not from 0 to {self.partition_count - 1}")
        if status == ENCODE_BAD_HEADER:
            raise InvalidRecordError(f"{where} has a header without a key")
        if status == BATCH_BAD_RECORD:
            raise InvalidRecordError(f"{where} has a timestamp before 1970, or one beyond 64 bits of milliseconds")
        if status == ENCODE_TOO_LARGE or status == BATCH_FULL:
            raise OverflowError(f"{where} is larger than {self.most_bytes} bytes")
        if status == BATCH_NO_MEMORY:
            raise MemoryError
        raise InvalidRecordError("a batch cannot be compressed with this codec and level")

    cdef int add_all(
        self, int32_t wanted, bint one_topic, int32_t fixed, int32_t *sticky, bint ignore_keys
    ) noexcept nogil:
        cdef int64_t row
        cdef int32_t partition
        cdef int status
        for row in range(self.rows.num_rows):
            if one_topic and self.topic_of[row] != wanted:
                continue
            self.row = row
            partition = fixed if fixed >= 0 else self.choose(row, sticky[0], ignore_keys)
            if partition < 0:
                return ENCODE_BAD_PARTITION
            status = self.add(row, partition, sticky)
            if status != BATCH_OK:
                return status
        for partition in range(self.partition_count):
            if self.builders[partition].header.record_count:
                status = self.finish(partition)
                if status != BATCH_OK:
                    return status
        return BATCH_OK

    cdef int32_t choose(self, int64_t row, int32_t sticky, bint ignore_keys) noexcept nogil:
        """Chooses the partition of a row: by the column `partition`, else by the key, else the sticky partition
        (KIP-480). Returns -1 if the partition is out of range."""
        cdef const uint8_t *key
        cdef int64_t size
        cdef int32_t partition
        if self.rows.partition.kind != ABSENT and is_valid(&self.rows.partition, row):
            partition = (<const int32_t *> self.rows.partition.numbers)[row + self.rows.partition.offset]
            return partition if 0 <= partition < self.partition_count else -1
        size = -1 if ignore_keys else bytes_of(&self.rows.key, row, &key)
        if size < 0:
            return sticky
        return <int32_t> (kc_murmur2(key, <uint32_t> size) & 0x7FFFFFFF) % self.partition_count

    cdef int64_t time_of(self, int64_t row) noexcept nogil:
        """Returns the timestamp of a row in ms. Times before 1970 or beyond 64 bits become -2, which the builder
        rejects."""
        cdef const Column *times = &self.rows.timestamp
        cdef int64_t value
        if times.kind == ABSENT or not is_valid(times, row):
            return self.now_ms
        value = (<const int64_t *> times.numbers)[row + times.offset]
        if value > INT64_MAX // times.numerator:
            return -2
        if value < 0:
            # In Kafka, -1 ms means no timestamp.
            return -1 if times.numerator == 1 and value // times.denominator == -1 else -2
        return value * times.numerator // times.denominator

    cdef int encode_headers(self, int64_t row) noexcept nogil:
        """Encodes the headers of a row into `header_bytes`. Returns the number of headers, or a status below zero."""
        cdef const uint8_t *data
        cdef int64_t start, count, i, size
        self.header_bytes.size = 0
        if self.rows.headers.kind == ABSENT or not is_valid(&self.rows.headers, row):
            return 0
        count = bounds(&self.rows.headers, row, &start)
        for i in range(start, start + count):
            if not is_valid(&self.rows.entries, i):
                return ENCODE_BAD_HEADER
            size = bytes_of(&self.rows.names, i, &data)
            if size < 0:
                return ENCODE_BAD_HEADER
            if size > MAX_BATCH_BYTES:
                return ENCODE_TOO_LARGE
            write_varint(&self.header_bytes, <int32_t> size)
            write_raw(&self.header_bytes, data, size)
            size = bytes_of(&self.rows.contents, i, &data)
            if size > MAX_BATCH_BYTES:
                return ENCODE_TOO_LARGE
            write_varint(&self.header_bytes, <int32_t> size)
            if size > 0:
                write_raw(&self.header_bytes, data, size)
        if self.header_bytes.bad or count > MAX_BATCH_BYTES:
            self.header_bytes.bad = False
            return ENCODE_TOO_LARGE
        return <int> count

    cdef int add(self, int64_t row, int32_t partition, int32_t *sticky) noexcept nogil:
        cdef BatchBuilder *builder = &self.builders[partition]
        cdef const uint8_t *key
        cdef const uint8_t *value
        cdef int64_t key_size = bytes_of(&self.rows.key, row, &key)
        cdef int64_t value_size = bytes_of(&self.rows.value, row, &value)
        cdef int headers = self.encode_headers(row)
        cdef int64_t room
        cdef int status
        if headers < 0:
            return headers
        room = max(key_size, 0) + max(value_size, 0) + <int64_t> self.header_bytes.size + RECORD_ROOM
        if key_size > MAX_BATCH_BYTES or value_size > MAX_BATCH_BYTES or room > MAX_BATCH_BYTES:
            return ENCODE_TOO_LARGE
        if builder.header.record_count and builder.out.size + room > self.batch_bytes:
            status = self.finish(partition)
            if status != BATCH_OK:
                return status
            if partition == sticky[0]:
                sticky[0] = (partition + 1) % self.partition_count
        if builder.header.record_count == 0:
            builder_free(builder)
            builder_init(builder, self.most_bytes, 0)
        return builder_append(
            builder, builder.header.last_offset_delta + 1, self.time_of(row), key, <int32_t> key_size, value,
            <int32_t> value_size, self.header_bytes.data, <int32_t> self.header_bytes.size, headers
        )

    cdef int finish(self, int32_t partition) noexcept nogil:
        """Closes the partition's batch."""
        cdef BatchBuilder *builder = &self.builders[partition]
        cdef Made *more
        cdef int status = builder_close(builder, self.codec_number, self.level, self.codec.context)
        if status != BATCH_OK:
            return status
        more = <Made *> realloc(self.made, (self.made_count + 1) * sizeof(Made))
        if more == NULL:
            return BATCH_NO_MEMORY
        self.made = more
        more[self.made_count].data = builder.out.data
        more[self.made_count].size = builder.out.size
        more[self.made_count].partition = partition
        more[self.made_count].count = builder.header.record_count
        self.made_count += 1
        builder.out.data = NULL
        builder.out.size = builder.out.capacity = 0
        builder.header.record_count = 0
        return BATCH_OK
