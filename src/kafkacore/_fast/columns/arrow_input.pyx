"""Reads Arrow record batches of other libraries. arrow_input.pxd has the contract."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset, strcmp, strncmp

from kafkacore._fast.columns.arrow cimport ArrowArray, ArrowSchema

cdef dict COLUMN_TYPES = {
    "key": "binary or string", "value": "binary or string", "topic": "string", "partition": "int32",
    "timestamp": "timestamp", "headers": "list<struct<key: string, value: binary>>",
}


cdef class ArrowInput:
    """The columns of one Arrow record batch of Kafka records: value, and optionally key, topic, partition, timestamp
    and headers.

    Raises TypeError for an object without `__arrow_c_array__` and for a column with a wrong type, and ValueError for a
    column that records do not have.
    """

    def __init__(self, columns):
        cdef ArrowSchema *schema
        cdef ArrowArray *array
        cdef int64_t i
        if not hasattr(columns, "__arrow_c_array__"):
            raise TypeError(f"an Arrow record batch is expected, not {type(columns).__name__}")
        self.schema_capsule, self.array_capsule = columns.__arrow_c_array__()
        schema = <ArrowSchema *> PyCapsule_GetPointer(self.schema_capsule, "arrow_schema")
        array = <ArrowArray *> PyCapsule_GetPointer(self.array_capsule, "arrow_array")
        if strcmp(schema.format, "+s") or array.null_count > 0:
            raise TypeError("an Arrow record batch is expected: a struct array without nulls")
        self.num_rows = array.length
        for i in range(schema.n_children):
            self.bind(schema.children[i], array.children[i], array.offset)
        if self.value.kind == ABSENT:
            raise ValueError("a column `value` is needed")

    cdef bind(self, ArrowSchema *schema, ArrowArray *array, int64_t offset):
        cdef bytes raw = schema.name
        name = raw.decode("utf-8", "replace")
        if name not in COLUMN_TYPES:
            raise ValueError(f"there is no column {name!r} in records; there are {', '.join(COLUMN_TYPES)}")
        if name == "key":
            fits = open_column(&self.key, BYTES, schema, array, offset)
        elif name == "value":
            fits = open_column(&self.value, BYTES, schema, array, offset)
        elif name == "topic":
            fits = open_column(&self.topic, BYTES, schema, array, offset)
        elif name == "partition":
            fits = open_column(&self.partition, INT32, schema, array, offset)
        elif name == "timestamp":
            fits = open_column(&self.timestamp, TIME, schema, array, offset)
        else:
            fits = self.bind_headers(schema, array, offset)
        if not fits:
            raw = schema.format
            raise TypeError(f"the column {name} must be {COLUMN_TYPES[name]}, and its Arrow format is {raw.decode()}")

    cdef bint bind_headers(self, ArrowSchema *schema, ArrowArray *array, int64_t offset):
        cdef ArrowSchema *entry
        cdef ArrowArray *items
        if not open_column(&self.headers, LIST, schema, array, offset):
            return False
        if self.headers.is_null:
            return True
        entry = schema.children[0]
        items = array.children[0]
        if strcmp(entry.format, "+s") or entry.n_children != 2:
            return False
        memset(&self.entries, 0, sizeof(Column))
        self.entries.kind = LIST
        self.entries.offset = items.offset
        self.entries.valid = <const uint8_t *> items.buffers[0]
        return (
            open_column(&self.names, BYTES, entry.children[0], items.children[0], items.offset)
            and open_column(&self.contents, BYTES, entry.children[1], items.children[1], items.offset)
        )


cdef bint open_column(Column *column, int kind, ArrowSchema *schema, ArrowArray *array, int64_t offset):
    """Fills `column` from an array. Returns whether the array has the right type."""
    cdef const char *format = schema.format
    memset(column, 0, sizeof(Column))
    column.kind = kind
    column.offset = array.offset + offset
    column.numerator = column.denominator = 1
    if schema.dictionary != NULL:
        return False
    if strcmp(format, "n") == 0:
        column.is_null = True
        return True
    if kind == BYTES:
        column.is_large = strcmp(format, "Z") == 0 or strcmp(format, "U") == 0
        if not column.is_large and strcmp(format, "z") and strcmp(format, "u"):
            return False
        column.data = <const uint8_t *> array.buffers[2]
    elif kind == INT32:
        if strcmp(format, "i"):
            return False
    elif kind == LIST:
        column.is_large = strcmp(format, "+L") == 0
        if not column.is_large and strcmp(format, "+l"):
            return False
    elif not open_time(column, format):
        return False
    column.valid = <const uint8_t *> array.buffers[0] if array.null_count else NULL
    column.numbers = array.buffers[1]
    return True


cdef bint open_time(Column *column, const char *format):
    if strncmp(format, "tss:", 4) == 0:
        column.numerator = 1000
    elif strncmp(format, "tsu:", 4) == 0:
        column.denominator = 1000
    elif strncmp(format, "tsn:", 4) == 0:
        column.denominator = 1000000
    elif strncmp(format, "tsm:", 4):
        return False
    return True
