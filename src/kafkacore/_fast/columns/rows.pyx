"""Collects rows of records and exports them. rows.pxd has the contract."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport add64
from kafkacore._fast.base.cursor cimport (
    Reader, Writer, reader_init, reserve, write_raw, writer_detach, writer_free, writer_init,
)
from kafkacore._fast.base.text cimport put_text
from kafkacore._fast.columns.arrow cimport (
    MOST_DATA_BYTES, ArrowArray, ArrowSchema, Shared, array_borrow, array_capsule, array_drop, array_init,
    array_own, blob_add, blob_end_row, blob_export, blob_free, blob_init, mark_null, mark_valid, schema_capsule,
    schema_drop, schema_init, shared_new, shared_release,
)
from kafkacore._fast.record.record cimport (
    BATCH_BAD_RECORD, BATCH_NO_MEMORY, BATCH_OK, RecordView, next_record_header,
)

cdef void rows_init(Rows *rows, int wanted) noexcept nogil:
    rows.wanted = wanted
    rows.count = rows.size_bytes = rows.lists_null = 0
    rows.first_offset = rows.last_offset = -1
    blob_init(&rows.keys)
    blob_init(&rows.values)
    blob_init(&rows.names)
    blob_init(&rows.contents)
    writer_init(&rows.offsets, MOST_DATA_BYTES)
    writer_init(&rows.timestamps, MOST_DATA_BYTES)
    writer_init(&rows.types, MOST_DATA_BYTES)
    writer_init(&rows.lists, MOST_DATA_BYTES)
    writer_init(&rows.lists_valid, MOST_DATA_BYTES)


cdef void rows_free(Rows *rows) noexcept nogil:
    blob_free(&rows.keys)
    blob_free(&rows.values)
    blob_free(&rows.names)
    blob_free(&rows.contents)
    writer_free(&rows.offsets)
    writer_free(&rows.timestamps)
    writer_free(&rows.types)
    writer_free(&rows.lists)
    writer_free(&rows.lists_valid)
    rows_init(rows, rows.wanted)


cdef int64_t row_bytes(const Rows *rows, const Row *row) noexcept nogil:
    cdef int64_t size = ROW_BYTES
    if rows.wanted & KEY and row.key_size > 0:
        size += row.key_size
    if rows.wanted & VALUE and row.value_size > 0:
        size += row.value_size
    if rows.wanted & HEADERS:
        size += row.headers_size + <int64_t> HEADER_ENTRY_BYTES * row.header_count
    return size


cdef inline int put_int64(Writer *out, int64_t value) noexcept nogil:
    cdef uint8_t *p = reserve(out, sizeof(int64_t))
    if p == NULL:
        return -1
    memcpy(p, &value, sizeof(int64_t))
    return 0


cdef inline int put_int32(Writer *out, int32_t value) noexcept nogil:
    cdef uint8_t *p = reserve(out, sizeof(int32_t))
    if p == NULL:
        return -1
    memcpy(p, &value, sizeof(int32_t))
    return 0


cdef bint is_ascii(const uint8_t *data, int32_t size) noexcept nogil:
    cdef uint8_t bits = 0
    cdef int32_t i
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


cdef int add_headers(Rows *rows, const Row *row) noexcept nogil:
    """Adds the list of headers of a row. A row without headers gets a null, as in Spark's connector."""
    cdef Reader reader
    cdef RecordView header
    cdef int32_t _i
    if rows.count == 0 and put_int32(&rows.lists, 0) < 0:
        return BATCH_NO_MEMORY
    reader_init(&reader, row.headers, row.headers_size)
    for _i in range(row.header_count):
        if next_record_header(&reader, &header) != BATCH_OK:
            return BATCH_BAD_RECORD
        if is_ascii(header.key, header.key_size):
            write_raw(&rows.names.data, header.key, header.key_size)
        else:
            put_text(&rows.names.data, header.key, header.key_size, False)
        if blob_end_row(&rows.names) < 0 or blob_add(&rows.contents, header.value, header.value_size) < 0:
            return BATCH_NO_MEMORY
    if put_int32(&rows.lists, <int32_t> rows.names.rows) < 0:
        return BATCH_NO_MEMORY
    if row.header_count > 0:
        return BATCH_OK if mark_valid(&rows.lists_valid, rows.count) == 0 else BATCH_NO_MEMORY
    rows.lists_null += 1
    return BATCH_OK if mark_null(&rows.lists_valid, rows.count) == 0 else BATCH_NO_MEMORY


cdef int rows_add(Rows *rows, const Row *row) noexcept nogil:
    cdef int wanted = rows.wanted
    cdef int status
    cdef int bad = 0
    if wanted & KEY:
        bad |= blob_add(&rows.keys, row.key, row.key_size)
    if wanted & VALUE:
        bad |= blob_add(&rows.values, row.value, row.value_size)
    if wanted & OFFSET:
        bad |= put_int64(&rows.offsets, row.offset)
    if wanted & TIMESTAMP:
        bad |= put_int64(&rows.timestamps, microseconds(row.timestamp_ms))
    if wanted & TIMESTAMP_TYPE:
        bad |= put_int32(&rows.types, row.timestamp_type)
    if bad:
        return BATCH_NO_MEMORY
    if wanted & HEADERS:
        status = add_headers(rows, row)
        if status != BATCH_OK:
            return status
    rows.size_bytes += row_bytes(rows, row)
    if rows.count == 0:
        rows.first_offset = row.offset
    rows.last_offset = row.offset
    rows.count += 1
    return BATCH_OK


# --- constant columns ----------------------------------------------------------------------------------------------

cdef Shared *constant_columns(const char *topic, int64_t topic_size, int32_t partition, int64_t rows) noexcept nogil:
    """Creates the constant columns. Block 0 holds the partition of each row, and then the offset at which each row's
    topic begins. Block 1 holds the topic once for each row."""
    cdef Shared *shared = shared_new()
    cdef int32_t *numbers
    cdef char *text
    cdef int64_t i
    if shared == NULL:
        return NULL
    numbers = <int32_t *> malloc((2 * rows + 1) * sizeof(int32_t))
    text = <char *> malloc(rows * topic_size + 1)
    shared.blocks[0] = numbers
    shared.blocks[1] = text
    if numbers == NULL or text == NULL:
        shared_release(shared)
        return NULL
    for i in range(rows):
        numbers[i] = partition
        numbers[rows + i] = <int32_t> (i * topic_size)
        memcpy(text + i * topic_size, topic, topic_size)
    numbers[2 * rows] = <int32_t> (rows * topic_size)
    return shared


# --- export --------------------------------------------------------------------------------------------------------

cdef int export_fixed(Writer *column, ArrowArray *array, int64_t count) noexcept nogil:
    if array_init(array, count, 0, 2, 0, NULL) < 0:
        return -1
    array_own(array, 1, writer_detach(column))
    return 0


cdef int export_headers(Rows *rows, ArrowArray *array) noexcept nogil:
    cdef ArrowArray *entries
    cdef int64_t count = rows.names.rows
    if array_init(array, rows.count, rows.lists_null, 2, 1, NULL) < 0:
        return -1
    if rows.lists_null:
        array_own(array, 0, writer_detach(&rows.lists_valid))
    array_own(array, 1, writer_detach(&rows.lists))
    entries = array.children[0]
    if array_init(entries, count, 0, 1, 2, NULL) < 0 or blob_export(&rows.names, entries.children[0]) < 0:
        return -1
    return blob_export(&rows.contents, entries.children[1])


cdef int export_constant(
    ArrowArray *array, int64_t count, const Shared *constants, int64_t most, bint is_topic
) noexcept nogil:
    cdef Shared *shared = <Shared *> constants
    cdef const int32_t *numbers = <const int32_t *> constants.blocks[0]
    add64(&shared.count, 1)
    if array_init(array, count, 0, 3 if is_topic else 2, 0, shared) < 0:
        return -1
    array_borrow(array, 1, numbers + most if is_topic else numbers)
    if is_topic:
        array_borrow(array, 2, constants.blocks[1])
    return 0


cdef int export_rows(Rows *rows, const Shared *constants, int64_t most, ArrowArray *array) noexcept nogil:
    """Fills a struct array with the wanted columns. Returns -1 if no memory is left. The caller must drop the array in
    any case."""
    cdef int64_t count = rows.count
    cdef int number = 0
    cdef int bit = 1
    cdef int wanted = rows.wanted
    cdef int failed = 0
    cdef ArrowArray *child
    if array_init(array, count, 0, 1, column_count(wanted), NULL) < 0:
        return -1
    while bit <= HEADERS and not failed:
        if wanted & bit:
            child = array.children[number]
            number += 1
            if bit == KEY or bit == VALUE:
                failed = blob_export(&rows.keys if bit == KEY else &rows.values, child)
            elif bit == TOPIC or bit == PARTITION:
                failed = export_constant(child, count, constants, most, bit == TOPIC)
            elif bit == OFFSET or bit == TIMESTAMP:
                failed = export_fixed(&rows.offsets if bit == OFFSET else &rows.timestamps, child, count)
            elif bit == TIMESTAMP_TYPE:
                failed = export_fixed(&rows.types, child, count)
            else:
                failed = export_headers(rows, child)
        bit <<= 1
    return failed


cdef int column_count(int wanted) noexcept nogil:
    cdef int count = 0
    while wanted:
        count += wanted & 1
        wanted >>= 1
    return count


cdef int headers_schema(ArrowSchema *schema) noexcept nogil:
    cdef ArrowSchema *entry
    if schema_init(schema, "+l", "headers", 1) < 0:
        return -1
    entry = schema.children[0]
    if schema_init(entry, "+s", "element", 2) < 0 or schema_init(entry.children[0], "u", "key", 0) < 0:
        return -1
    return schema_init(entry.children[1], "z", "value", 0)


cdef int record_schema(int wanted, ArrowSchema *schema) noexcept nogil:
    cdef ArrowSchema *child
    cdef int number = 0
    cdef int bit = 1
    cdef int failed = schema_init(schema, "+s", "", column_count(wanted))
    if failed:
        return -1
    schema.flags = 0
    while bit <= HEADERS and not failed:
        if wanted & bit:
            child = schema.children[number]
            number += 1
            if bit == KEY:
                failed = schema_init(child, "z", "key", 0)
            elif bit == VALUE:
                failed = schema_init(child, "z", "value", 0)
            elif bit == TOPIC:
                failed = schema_init(child, "u", "topic", 0)
            elif bit == PARTITION:
                failed = schema_init(child, "i", "partition", 0)
            elif bit == OFFSET:
                failed = schema_init(child, "l", "offset", 0)
            elif bit == TIMESTAMP:
                failed = schema_init(child, "tsu:UTC", "timestamp", 0)
            elif bit == TIMESTAMP_TYPE:
                failed = schema_init(child, "i", "timestampType", 0)
            else:
                failed = headers_schema(child)
        bit <<= 1
    return failed


cdef ArrowRows finished_rows(Rows *rows, const Shared *constants, int64_t most):
    cdef ArrowRows made = ArrowRows.__new__(ArrowRows)
    cdef int failed
    made.num_rows = rows.count
    made.nbytes = rows.size_bytes
    made.first_offset = rows.first_offset
    made.last_offset = rows.last_offset
    with nogil:
        failed = record_schema(rows.wanted, &made.schema)
        if not failed:
            failed = export_rows(rows, constants, most, &made.array)
        rows_free(rows)
    if failed:
        raise MemoryError
    return made


cdef class ArrowRows:
    """One Arrow record batch. rows.pyi describes it."""

    def __dealloc__(self):
        array_drop(&self.array)
        schema_drop(&self.schema)

    def __len__(self):
        return self.num_rows

    def __arrow_c_schema__(self):
        cdef ArrowSchema copy
        if copy_schema(&self.schema, &copy) < 0:
            schema_drop(&copy)
            raise MemoryError
        return schema_capsule(&copy)

    def __arrow_c_array__(self, requested_schema=None):
        """Returns the schema and the array. Raises ValueError if they have already been exported."""
        if self.array.release == NULL:
            raise ValueError("these rows were exported already")
        schema = self.__arrow_c_schema__()
        return schema, array_capsule(&self.array)


cdef int copy_schema(const ArrowSchema *source, ArrowSchema *copy) noexcept nogil:
    """Copies a schema. Formats and names are static, so the copy shares them. If this returns -1, the caller must drop
    the copy."""
    cdef int64_t i
    if schema_init(copy, source.format, source.name, <int> source.n_children) < 0:
        return -1
    copy.flags = source.flags
    for i in range(source.n_children):
        if copy_schema(source.children[i], copy.children[i]) < 0:
            return -1
    return 0
