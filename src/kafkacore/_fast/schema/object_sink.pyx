"""The object sink: the walker's callbacks that read into and write from Python objects.

The callbacks are declared nogil, because the walker, which calls them, is declared nogil. But the walker's caller holds
the GIL, so the callbacks can use the raw C API. After an error, the Python exception stays pending. The callbacks use
cast function pointers to call functions that need the GIL.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kafkacore._fast.base.cursor cimport (
    be16, be32, be64, put16, put32, put64, reserve, write_i32, write_raw, write_uvarint,
)
from kafkacore._fast.schema.class_plan cimport Plan, class_of, load, new_instance, store, unknown_at
from kafkacore._fast.base.raw_python cimport (
    Py_buffer, Py_False, Py_INCREF, Py_None, Py_True, Py_TYPE, PyBUF_SIMPLE, PyBuffer_Release, PyBytes_AS_STRING,
    PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, PyErr_Format, PyErr_Occurred, PyExc_TypeError,
    PyFloat_AsDouble, PyFloat_FromDouble, PyList_Append, PyList_Check, PyList_GET_ITEM, PyList_GET_SIZE, PyList_New,
    PyList_SetItem, PyLong_AsLongLong, PyLong_FromLongLong, PyObject_GetBuffer, PyObject_TypeCheck, PyTuple_Check,
    PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTypeObject, PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_DecodeUTF8,
)
from kafkacore._fast.schema.schema cimport (
    BOOL, COMPACT, FAULT_NONE, FAULT_PYTHON, FAULT_RANGE, FLOAT64, INT16, INT32, INT64, STRING, UINT16, UUID, Op, Shape,
    Sink, Slice, Walk, fixed_width,
)

from kafkacore._fast.base.uuid import ZERO, Uuid

cdef extern from *:
    """
    #include <Python.h>
    /* A subclass of bytes keeps its value in the same place as bytes. The hash is computed on first use. */
    static PyObject *kc_new_uuid(PyTypeObject *type, const void *value) {
        PyObject *made = type->tp_alloc(type, 16);
        if (made != NULL) {
            memcpy(PyBytes_AS_STRING(made), value, 16);
    #if PY_VERSION_HEX < 0x030e0000
            _Py_COMP_DIAG_PUSH
            _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    #endif
            ((PyBytesObject *) made)->ob_shash = -1;
    #if PY_VERSION_HEX < 0x030e0000
            _Py_COMP_DIAG_POP
    #endif
        }
        return made;
    }
    """
    PyObject *new_uuid "kc_new_uuid"(PyTypeObject *type, const void *value) nogil

cdef enum:
    MAX_SIZE = 0x7FFFFFFF

ctypedef PyObject *(*NewInstance)(const Shape *) noexcept nogil
ctypedef PyTypeObject *(*ClassOf)(const Shape *) noexcept nogil
ctypedef Py_ssize_t (*UnknownAt)(const Shape *) noexcept nogil
ctypedef int32_t (*EncodedCount)(PyObject *) noexcept nogil

cdef PyTypeObject *UUID_TYPE = <PyTypeObject *> Uuid
cdef PyObject *UUID_ZERO = <PyObject *> ZERO


cdef class Encoded:

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.count

    @property
    def body(self):
        """The bytes of the elements, without the count in front of the elements."""
        return (<const char *> self.data)[:self.size] if self.size else b""


cdef PyTypeObject *ENCODED_TYPE = <PyTypeObject *> Encoded


# --- reading: the walker's callbacks ---------------------------------------------------------------------------------

cdef inline void keep(Walk *walk, void *target, const Op *op, PyObject *value) noexcept nogil:
    if value == NULL:
        walk.fault = FAULT_PYTHON
    else:
        store(<PyObject *> target, op.offset, value)


cdef inline PyObject *box(int kind, int64_t value) noexcept nogil:
    cdef double number
    cdef PyObject *made
    if kind == BOOL:
        made = Py_True if value else Py_False
        Py_INCREF(made)
        return made
    if kind == FLOAT64:
        memcpy(&number, &value, 8)
        return PyFloat_FromDouble(number)
    return PyLong_FromLongLong(value)


cdef PyObject *box_slice(int kind, const uint8_t *data, int32_t size) noexcept nogil:
    cdef int i
    if size < 0:
        Py_INCREF(Py_None)
        return Py_None
    if kind == STRING:
        return PyUnicode_DecodeUTF8(<const char *> data, size, NULL)
    if kind != UUID:
        return PyBytes_FromStringAndSize(<const char *> data, size)
    for i in range(16):
        if data[i]:
            return new_uuid(UUID_TYPE, data)
    Py_INCREF(UUID_ZERO)
    return UUID_ZERO


cdef void put_integer(Walk *walk, void *target, const Op *op, int64_t value) noexcept nogil:
    keep(walk, target, op, box(op.kind, value))


cdef void put_slice(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t size) noexcept nogil:
    keep(walk, target, op, box_slice(op.kind, data, size))


cdef void put_null(Walk *walk, void *target, const Op *op) noexcept nogil:
    Py_INCREF(Py_None)
    keep(walk, target, op, Py_None)


cdef inline PyObject *box_at(int kind, const uint8_t *at) noexcept nogil:
    if kind == INT32:
        return PyLong_FromLongLong(<int32_t> be32(at))
    if kind == INT64 or kind == FLOAT64:
        return box(kind, <int64_t> be64(at))
    if kind == INT16:
        return PyLong_FromLongLong(<int16_t> be16(at))
    if kind == UINT16:
        return PyLong_FromLongLong(be16(at))
    if kind == UUID:
        return box_slice(UUID, at, 16)
    return box(kind, <int8_t> at[0])


cdef PyObject *new_list(Walk *walk, int32_t count) noexcept nogil:
    """Returns a list whose items are None, so that other code can safely read the list while a walk is paused."""
    cdef PyObject *made = PyList_New(count)
    cdef int32_t i
    if made == NULL:
        walk.fault = FAULT_PYTHON
        return NULL
    for i in range(count):
        Py_INCREF(Py_None)
        PyList_SetItem(made, i, Py_None)
    return made


cdef inline void set_item(Walk *walk, PyObject *items, int32_t index, PyObject *value) noexcept nogil:
    if value == NULL:
        walk.fault = FAULT_PYTHON
    elif PyList_SetItem(items, index, value) < 0:
        walk.fault = FAULT_PYTHON


cdef void put_block(Walk *walk, void *target, const Op *op, const uint8_t *data, int32_t count) noexcept nogil:
    cdef PyObject *made = new_list(walk, count)
    cdef int32_t i
    cdef int32_t step = fixed_width(op.element)
    if made == NULL:
        return
    keep(walk, target, op, made)
    for i in range(count):
        set_item(walk, made, i, box_at(op.element, data + i * step))


cdef void *put_array(Walk *walk, void *target, const Op *op, int32_t count) noexcept nogil:
    cdef PyObject *made = new_list(walk, count)
    if made != NULL:
        keep(walk, target, op, made)
    return made


cdef void *put_item(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    cdef PyObject *made = (<NewInstance> <void *> new_instance)(op.child)
    set_item(walk, <PyObject *> items, index, made)
    return made


cdef void put_element(Walk *walk, void *items, const Op *op, int32_t index, const uint8_t *data,
                      int32_t size) noexcept nogil:
    set_item(walk, <PyObject *> items, index, box_slice(op.element, data, size))


cdef void *put_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *made = (<NewInstance> <void *> new_instance)(op.child)
    keep(walk, target, op, made)
    return made

cdef void put_unknown(Walk *walk, void *target, uint32_t tag, const uint8_t *data, int32_t size) noexcept nogil:
    with gil:
        try:
            (<object> <PyObject *> target).unknown_tagged_fields[tag] = (<const char *> data)[:size]
        except BaseException:
            walk.fault = FAULT_PYTHON
            PyErr_Format(PyExc_TypeError, "an unknown tagged field could not be kept")


# --- writing: the walker's callbacks ---------------------------------------------------------------------------------

cdef PyObject *field(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = load(<PyObject *> target, op.offset)
    if value == NULL:
        PyErr_Format(PyExc_TypeError, "was deleted")
        walk.fault = FAULT_PYTHON
    return value


cdef void refuse(Walk *walk, const char *expected, PyObject *value) noexcept nogil:
    if walk.fault == FAULT_NONE:
        PyErr_Format(PyExc_TypeError, "%s is expected, not %s", expected, Py_TYPE(value).tp_name)
        walk.fault = FAULT_PYTHON


cdef inline int64_t unbox(Walk *walk, int kind, PyObject *value) noexcept nogil:
    cdef double number
    cdef int64_t bits
    if kind == FLOAT64:
        number = PyFloat_AsDouble(value)
        memcpy(&bits, &number, 8)
        if number == -1.0 and PyErr_Occurred() != NULL:
            walk.fault = FAULT_PYTHON
        return bits
    bits = PyLong_AsLongLong(value)
    if bits == -1 and PyErr_Occurred() != NULL:
        walk.fault = FAULT_PYTHON
    elif kind == BOOL:
        return bits != 0
    return bits


cdef int64_t get_integer(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    return unbox(walk, op.kind, value) if value != NULL else 0


cdef Slice unbox_slice(Walk *walk, int kind, PyObject *value) noexcept nogil:
    cdef Slice found
    cdef Py_ssize_t size = 0
    cdef Py_buffer buffer
    found.data = NULL
    found.size = -1
    if value == Py_None and kind != UUID:
        return found
    if kind == STRING:
        if not PyUnicode_Check(value):
            refuse(walk, "str", value)
            return found
        found.data = <const uint8_t *> PyUnicode_AsUTF8AndSize(value, &size)
        if found.data == NULL:
            walk.fault = FAULT_PYTHON
    elif PyBytes_Check(value):
        found.data = <const uint8_t *> PyBytes_AS_STRING(value)
        size = PyBytes_GET_SIZE(value)
    elif kind != UUID and PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) == 0:
        # The view can be released here, because the message keeps the object alive and the walker copies the bytes
        # before any other Python code runs.
        found.data = <const uint8_t *> buffer.buf
        size = buffer.len
        PyBuffer_Release(&buffer)
    elif PyErr_Occurred() != NULL:
        walk.fault = FAULT_PYTHON
    else:
        refuse(walk, "Uuid", value)
    if size > MAX_SIZE or (kind == UUID and size != 16):
        refuse(walk, "Uuid" if kind == UUID else "fewer bytes", value)
    found.size = <int32_t> size
    return found


cdef Slice get_slice(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    cdef Slice nothing
    nothing.data = NULL
    nothing.size = -1
    return unbox_slice(walk, op.kind, value) if value != NULL else nothing


cdef bint get_encoded(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    if value == NULL or Py_TYPE(value) != ENCODED_TYPE:
        return False
    with gil:
        put_encoded(walk, <Encoded> value, op)
    return True


cdef void put_encoded(Walk *walk, Encoded value, const Op *op) noexcept:
    cdef Plan plan = <Plan> op.child.owner
    cdef Plan root = <Plan> walk.frames[0].shape.owner
    if value.struct != plan.cls.__name__ or value.message != root.cls.__name__ or (
            root.shape(value.version) != walk.frames[0].shape):
        refuse(walk, "rows that were encoded for this message and version", <PyObject *> value)
        return
    if op.flags & COMPACT:
        write_uvarint(walk.writer, <uint32_t> value.count + 1)
    else:
        write_i32(walk.writer, value.count)
    write_raw(walk.writer, value.data, value.size)


cdef int32_t get_array(Walk *walk, void *target, const Op *op, void **items) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    cdef Py_ssize_t count
    if value == NULL or value == Py_None:
        return -1
    if PyList_Check(value):
        count = PyList_GET_SIZE(value)
    elif PyTuple_Check(value):
        count = PyTuple_GET_SIZE(value)
    elif Py_TYPE(value) == ENCODED_TYPE:
        return (<EncodedCount> <void *> encoded_count)(value)
    else:
        refuse(walk, "list", value)
        return -1
    items[0] = value
    hold(walk, value)
    if count > MAX_SIZE:
        refuse(walk, "a shorter list", value)
    return <int32_t> count


cdef int32_t encoded_count(PyObject *value) noexcept:
    return (<Encoded> value).count


cdef inline void hold(Walk *walk, PyObject *value) noexcept nogil:
    """Keeps `value` alive during a paused encode, even if the caller changes the message."""
    if walk.context != NULL and PyList_Append(<PyObject *> walk.context, value) < 0:
        walk.fault = FAULT_PYTHON


cdef inline PyObject *item_at(Walk *walk, void *items, int32_t index) noexcept nogil:
    cdef PyObject *value = <PyObject *> items
    if PyList_Check(value):
        if index < PyList_GET_SIZE(value):
            return PyList_GET_ITEM(value, index)
    elif index < PyTuple_GET_SIZE(value):
        return PyTuple_GET_ITEM(value, index)
    refuse(walk, "a list that stays as it is", value)
    return NULL


cdef void get_block(Walk *walk, void *items, const Op *op, int32_t count) noexcept nogil:
    cdef int32_t i
    cdef int32_t step = fixed_width(op.element)
    cdef uint8_t *at = reserve(walk.writer, <size_t> count * step)
    cdef PyObject *value
    cdef Slice uuid
    if at == NULL:
        return
    for i in range(count):
        value = item_at(walk, items, i)
        if value == NULL:
            return
        if op.element == UUID:
            uuid = unbox_slice(walk, UUID, value)
            if walk.fault:
                return
            memcpy(at, uuid.data, 16)
        else:
            put_number(walk, op.element, at, unbox(walk, op.element, value))
        if walk.fault:
            walk.frames[walk.depth].index, walk.frames[walk.depth].count = i, count
            return
        at += step


cdef inline void put_number(Walk *walk, int kind, uint8_t *at, int64_t value) noexcept nogil:
    if kind == INT32:
        put32(at, <uint32_t> value)
        if value != <int32_t> value:
            walk.fault = FAULT_RANGE
    elif kind == INT64 or kind == FLOAT64:
        put64(at, <uint64_t> value)
    elif kind == INT16 or kind == UINT16:
        put16(at, <uint16_t> value)
        if value != (<int64_t> <int16_t> value if kind == INT16 else <int64_t> <uint16_t> value):
            walk.fault = FAULT_RANGE
    else:
        at[0] = <uint8_t> value
        if value != <int8_t> value:
            walk.fault = FAULT_RANGE


cdef inline PyObject *checked(Walk *walk, PyObject *value, const Shape *shape) noexcept nogil:
    """Returns `value` if it is an instance of the shape's class."""
    cdef PyTypeObject *cls = (<ClassOf> <void *> class_of)(shape)
    if PyObject_TypeCheck(value, cls):
        hold(walk, value)
        return value
    refuse(walk, cls.tp_name, value)
    return NULL


cdef void *get_item(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    cdef PyObject *value = item_at(walk, items, index)
    return checked(walk, value, op.child) if value != NULL else NULL


cdef Slice get_element(Walk *walk, void *items, const Op *op, int32_t index) noexcept nogil:
    cdef PyObject *value = item_at(walk, items, index)
    cdef Slice found
    found.data = NULL
    found.size = -1
    return unbox_slice(walk, op.element, value) if value != NULL else found


cdef void *get_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    if value == NULL or value == Py_None:
        return NULL
    return checked(walk, value, op.child) if op.child != NULL else value


cdef int32_t count_unknown(Walk *walk, void *target, const Shape *shape) noexcept nogil:
    cdef PyObject *kept = load(<PyObject *> target, (<UnknownAt> <void *> unknown_at)(shape))
    if kept == NULL:
        return 0
    with gil:
        return count_tags(walk, <object> kept, shape)


cdef int32_t count_tags(Walk *walk, fields, const Shape *shape) noexcept:
    cdef int32_t i
    try:
        for tag in fields:
            if not 0 <= tag < 0x100000000 or not isinstance(fields[tag], bytes):
                raise ValueError(f"unknown tagged field {tag!r} needs a tag from 0 to 2^32 - 1 and bytes as its value")
            for i in range(shape.tagged_count):
                if shape.tagged[i].tag == tag:
                    raise ValueError(f"tag {tag} is known in this version, so its field is not an unknown tagged field")
        return len(fields)
    except Exception as error:
        message = str(error).encode()
        PyErr_Format(PyExc_TypeError, "%s", <const char *> message)
        walk.fault = FAULT_PYTHON
        return 0


cdef void get_unknown(Walk *walk, void *target, int64_t above, int64_t below) noexcept nogil:
    cdef Py_ssize_t at = (<UnknownAt> <void *> unknown_at)(walk.frames[walk.depth].shape)
    if load(<PyObject *> target, at) == NULL:
        return
    with gil:
        write_unknown(walk, <dict> load(<PyObject *> target, at), above, below)


cdef void write_unknown(Walk *walk, dict fields, int64_t above, int64_t below) noexcept:
    cdef bytes raw
    for tag in sorted(fields):
        if above < tag < below:
            raw = fields[tag]
            write_uvarint(walk.writer, tag)
            write_uvarint(walk.writer, len(raw))
            write_raw(walk.writer, <const char *> raw, len(raw))


cdef Sink SINK
SINK.put_integer = put_integer
SINK.put_slice = put_slice
SINK.put_null = put_null
SINK.put_block = put_block
SINK.put_array = put_array
SINK.put_item = put_item
SINK.put_element = put_element
SINK.put_struct = put_struct
SINK.put_unknown = put_unknown
SINK.get_integer = get_integer
SINK.get_slice = get_slice
SINK.get_encoded = get_encoded
SINK.get_array = get_array
SINK.get_block = get_block
SINK.get_item = get_item
SINK.get_element = get_element
SINK.get_struct = get_struct
SINK.count_unknown = count_unknown
SINK.get_unknown = get_unknown


cdef const Sink *object_sink() noexcept nogil:
    return &SINK
