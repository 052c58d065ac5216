"""The object sink: messages as Python objects, made from their table on first use.

A class has one slot for each field of any version and one for the tagged fields it does not know; a field's offset in the
object is the `offset` of its Op, so that the walker's callbacks store and load slots without a look-up. The callbacks use the
raw C API: they are called from nogil code whose caller holds the GIL, and what goes wrong is left as the pending exception.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkacore._fast.cursor cimport (
    Writer, be16, be32, be64, put16, put32, put64, reader_init, remaining, reserve, write_raw, write_uvarint, writer_free,
    writer_init,
)
from kafkacore._fast.schema cimport (
    ARRAY, BOOL, DEFAULT_NULL, FAULT_NONE, FAULT_PYTHON, FAULT_RANGE, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING,
    STRUCT, UINT16, UUID, WALK_DONE, WALK_FAILED, WALK_PAUSED, BYTES, Layout, Op, Shape, Sink, Slice, Walk,
    compile_message, raise_fault, walk_begin, walk_read, walk_write,
)

from kafkacore._fast import tables
from kafkacore._fast.errors import ProtocolError, UnsupportedVersionError
from kafkacore._fast.uuid import ZERO, Uuid

cdef extern from "Python.h" nogil:
    # Declared here with raw pointers: no reference is counted and no exception looked for behind our back.
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    PyObject *PyExc_TypeError
    PyObject *PyExc_OverflowError
    void Py_INCREF(PyObject *)
    void Py_XDECREF(PyObject *)
    PyObject *PyErr_Occurred()
    PyObject *PyErr_Format(PyObject *, const char *, ...)
    PyObject *PyLong_FromLongLong(long long)
    long long PyLong_AsLongLong(PyObject *)
    PyObject *PyFloat_FromDouble(double)
    double PyFloat_AsDouble(PyObject *)
    bint PyLong_Check(PyObject *)
    PyObject *PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *)
    bint PyUnicode_Check(PyObject *)
    PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t)
    char *PyBytes_AS_STRING(PyObject *)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *)
    bint PyBytes_Check(PyObject *)
    PyObject *PyList_New(Py_ssize_t)
    bint PyList_Check(PyObject *)
    Py_ssize_t PyList_GET_SIZE(PyObject *)
    PyObject *PyList_GET_ITEM(PyObject *, Py_ssize_t)
    int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *)
    int PyList_Append(PyObject *, PyObject *)
    bint PyTuple_Check(PyObject *)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *)
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    ctypedef struct PyTypeObject:
        const char *tp_name
        PyObject *(*tp_alloc)(PyTypeObject *, Py_ssize_t) noexcept
    PyTypeObject *Py_TYPE(PyObject *)
    bint PyObject_TypeCheck(PyObject *, PyTypeObject *)
    ctypedef struct Py_buffer:
        void *buf
        Py_ssize_t len
    int PyBUF_SIMPLE
    int PyObject_GetBuffer(PyObject *, Py_buffer *, int)
    void PyBuffer_Release(Py_buffer *)

cdef extern from *:
    """
    #include <Python.h>
    #include <structmember.h>
    static Py_ssize_t kc_slot_offset(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *) descriptor)->d_member->offset;
    }
    /* A bytes subclass keeps its value where bytes do; the hash is computed on first use. */
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
    Py_ssize_t slot_offset "kc_slot_offset"(object descriptor)
    PyObject *new_uuid "kc_new_uuid"(PyTypeObject *type, const void *value) nogil

cdef enum:
    MAX_VERSIONS = 64
    MAX_MESSAGE = 0x7FFFFFFF    # a frame's size is an int32

cdef object UNKNOWN = "_unknown_tagged_fields"
cdef PyTypeObject *UUID_TYPE = <PyTypeObject *> Uuid
cdef PyObject *UUID_ZERO = <PyObject *> ZERO


# --- classes -----------------------------------------------------------------------------------------------------------

cdef class Plan:
    """How to make one class's instances: a default for each field, NULL for a list or a struct of the instance's own."""
    cdef type cls
    cdef tuple names
    cdef int32_t count
    cdef Py_ssize_t *offsets
    cdef PyObject **defaults
    cdef PyObject **children    # Plan, for a struct that is not null by default
    cdef Py_ssize_t unknown     # offset of the slot for unknown tagged fields; NULL in it means none
    cdef list alive             # owns what the arrays point to
    cdef object message         # tables.Message, of a message
    cdef dict layouts
    cdef const Shape *shapes[MAX_VERSIONS]

    def __cinit__(self, type cls, list fields):
        cdef int32_t i
        self.cls = cls
        self.names = tuple([field.name for field in fields])
        self.count = len(fields)
        self.offsets = <Py_ssize_t *> calloc(self.count + 1, sizeof(Py_ssize_t))
        self.defaults = <PyObject **> calloc(self.count + 1, sizeof(PyObject *))
        self.children = <PyObject **> calloc(self.count + 1, sizeof(PyObject *))
        self.alive = []
        if not self.offsets or not self.defaults or not self.children:
            raise MemoryError()
        for i, field in enumerate(fields):
            self.offsets[i] = slot_offset(cls.__dict__[field.name])
            if field.kind != "array" and field.kind != "struct" or field.default is None:
                value = default_value(field)
                self.alive.append(value)
                self.defaults[i] = <PyObject *> value
        self.unknown = slot_offset(cls.__dict__[UNKNOWN])

    def __dealloc__(self):
        free(self.offsets)
        free(self.defaults)
        free(self.children)

    cdef void adopt(self, list fields, dict plans):
        cdef int32_t i
        for i, field in enumerate(fields):
            if field.kind == "struct" and self.defaults[i] == NULL:
                self.children[i] = <PyObject *> plans[field.struct]

    cdef const Shape *shape(self, int version) except NULL:
        """The program of a version, compiled when first asked for."""
        if not 0 <= version < MAX_VERSIONS or self.shapes[version] == NULL:
            made = compile_message(self.message, version, self.layouts)
            self.shapes[version] = made
        return self.shapes[version]


def default_value(field):
    if field.default is None:
        return None
    if field.kind in ("bytes", "records"):
        return b""
    return ZERO if field.kind == "uuid" else field.default


@cython.auto_pickle(False)
cdef class Struct:
    """A part of a message. Made with keywords for the fields that are not at their default."""

    def __init__(self, **values):
        cdef Plan plan = type(self)._plan
        cdef int32_t i, given = 0
        cdef PyObject *value
        cdef PyObject *owner = <PyObject *> self
        for i in range(plan.count):
            name = plan.names[i]
            if values and name in values:
                taken = values[name]
                Py_INCREF(<PyObject *> taken)
                store(owner, plan.offsets[i], <PyObject *> taken)
                given += 1
                continue
            value = fresh(plan, i)
            if value == NULL:
                raise MemoryError()
            store(owner, plan.offsets[i], value)
        if given != len(values):
            unknown = sorted(set(values) - set(plan.names))
            raise TypeError(f"{type(self).__qualname__} has no field {', '.join(unknown)}")

    @property
    def unknown_tagged_fields(self):
        """Tagged fields that the table does not know, raw, by tag: read, kept, and written back (KIP-482)."""
        cdef Plan plan = type(self)._plan
        cdef PyObject *kept = load(<PyObject *> self, plan.unknown)
        if kept == NULL:
            made = {}
            Py_INCREF(<PyObject *> made)
            store(<PyObject *> self, plan.unknown, <PyObject *> made)
            return made
        return <object> kept

    @unknown_tagged_fields.setter
    def unknown_tagged_fields(self, dict fields not None):
        cdef Plan plan = type(self)._plan
        Py_INCREF(<PyObject *> fields)
        store(<PyObject *> self, plan.unknown, <PyObject *> fields)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        for name in (<Plan> type(self)._plan).names:
            if getattr(self, name) != getattr(other, name):
                return False
        return known_unknown(self) == known_unknown(other)

    __hash__ = None

    def __repr__(self):
        cdef Plan plan = type(self)._plan
        shown = []
        for name, usual in zip(plan.names, type(self)._usual()):
            value = getattr(self, name, None)
            if value != usual:
                shown.append(f"{name}={value!r}")
        extra = known_unknown(self)
        if extra:
            shown.append(f"unknown_tagged_fields={extra!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"

    @classmethod
    def _usual(cls):
        """The defaults, in order of the fields."""
        cdef Struct made = cls()
        return [getattr(made, name) for name in (<Plan> cls._plan).names]


cdef dict known_unknown(Struct struct):
    cdef PyObject *kept = load(<PyObject *> struct, (<Plan> type(struct)._plan).unknown)
    return None if kept == NULL or not <object> kept else <dict> kept


@cython.auto_pickle(False)
cdef class Message(Struct):

    @classmethod
    def decode(cls, data, int version):
        """The message that is the whole of `data`. Raises ProtocolError (with the field), UnsupportedVersionError."""
        made, used = read_object(cls, data, version)
        if used != len(data):
            raise ProtocolError(f"{cls.__qualname__}: {len(data) - used} bytes are left over after version {version}")
        return made

    @classmethod
    def decode_prefix(cls, data, int version):
        """`(message, bytes used)` from the start of `data`: a header before its body. Raises as `decode` does."""
        return read_object(cls, data, version)

    @classmethod
    def decode_parts(cls, data, int version, int64_t elements=1000):
        """As `decode`, in turns: an iterator that gives None after each `elements` structs read, and at last the message."""
        return Decoding(cls, data, version, elements)

    def encode(self, int version, const uint8_t[::1] prefix=None):
        """`prefix` and the message, in one bytes. Raises ProtocolError for a value that its type cannot hold and
        UnsupportedVersionError for one that `version` has no place for, each with the field."""
        cdef const Shape *shape = (<Plan> type(self)._plan).shape(version)
        cdef Walk walk
        cdef Writer writer
        writer_init(&writer, MAX_MESSAGE)
        if prefix is not None and prefix.shape[0]:
            write_raw(&writer, &prefix[0], prefix.shape[0])
        walk.writer = &writer
        walk.budget = -1
        walk.context = NULL
        walk_begin(&walk, &SINK, shape, <void *> self)
        try:
            if walk_write(&walk) == WALK_FAILED:
                raise_fault(&walk)
            return (<const char *> writer.data)[:writer.size] if writer.size else b""
        finally:
            writer_free(&writer)

    def encode_parts(self, int version, int64_t elements=1000):
        """As `encode`, in turns: an iterator over bytes, one for each `elements` structs written. The message must not
        change meanwhile."""
        return Encoding(self, version, elements)


cdef tuple read_object(cls, data, int version):
    cdef const uint8_t[::1] view = data
    cdef const Shape *shape = (<Plan> cls._plan).shape(version)
    cdef Walk walk
    cdef PyObject *made
    reader_init(&walk.reader, &view[0] if view.shape[0] else NULL, view.shape[0])
    walk.budget = -1
    walk.context = NULL
    made = new_instance(shape)
    if made == NULL:
        raise MemoryError()
    owned = <object> made
    Py_XDECREF(made)
    walk_begin(&walk, &SINK, shape, made)
    if walk_read(&walk) == WALK_FAILED:
        raise_fault(&walk)
    return owned, view.shape[0] - <Py_ssize_t> remaining(&walk.reader)


cdef class Decoding:
    """A decode that pauses between elements."""
    cdef const uint8_t[::1] data
    cdef object made
    cdef Walk walk
    cdef int64_t elements

    def __init__(self, cls, data, int version, int64_t elements):
        cdef const Shape *shape = (<Plan> cls._plan).shape(version)
        cdef PyObject *made = new_instance(shape)
        if made == NULL:
            raise MemoryError()
        self.made = <object> made
        Py_XDECREF(made)
        self.data = data
        self.elements = max(1, elements)
        reader_init(&self.walk.reader, &self.data[0] if self.data.shape[0] else NULL, self.data.shape[0])
        walk_begin(&self.walk, &SINK, shape, made)

    def __iter__(self):
        return self

    def __next__(self):
        if self.made is None:
            raise StopIteration
        made = self.made
        self.walk.budget = self.elements
        cdef int outcome = walk_read(&self.walk)
        if outcome == WALK_PAUSED:
            return None
        self.made = None
        if outcome == WALK_FAILED:
            raise_fault(&self.walk)
        if remaining(&self.walk.reader):
            left = remaining(&self.walk.reader)
            raise ProtocolError(f"{type(made).__qualname__}: {left} bytes are left over")
        return made


cdef class Encoding:
    """An encode that pauses between elements. What it has yet to write is kept alive in `held`."""
    cdef Walk walk
    cdef Writer writer
    cdef list held
    cdef int64_t elements
    cdef bint done

    def __cinit__(self, Message message, int version, int64_t elements):
        writer_init(&self.writer, MAX_MESSAGE)
        self.held = [message]
        self.elements = max(1, elements)
        self.walk.writer = &self.writer
        self.walk.context = <void *> self.held
        walk_begin(&self.walk, &SINK, (<Plan> type(message)._plan).shape(version), <void *> message)

    def __dealloc__(self):
        writer_free(&self.writer)

    def __iter__(self):
        return self

    def __next__(self):
        cdef int outcome = WALK_PAUSED
        if self.done:
            raise StopIteration
        while outcome == WALK_PAUSED:
            self.walk.budget = self.elements
            outcome = walk_write(&self.walk)
            if outcome == WALK_FAILED:
                self.done = True
                raise_fault(&self.walk)
            # A tagged field under way has its size still to be put before it.
            if not self.in_tag():
                break
        self.done = outcome == WALK_DONE
        part = (<const char *> self.writer.data)[:self.writer.size] if self.writer.size else b""
        self.writer.size = 0
        return part

    cdef bint in_tag(self):
        cdef int depth
        for depth in range(self.walk.depth + 1):
            if self.walk.frames[depth].tag_at:
                return True
        return False


cdef dict CLASSES = {}


def message_class(str name):
    """The class of a message, with its structs as attributes. Raises KeyError when no table has that name."""
    made = CLASSES.get(name)
    if made is None:
        made = CLASSES[name] = build(tables.message(name))
    return made


cdef object build(message):
    cdef Plan plan, root
    structs = message.structs()
    classes, plans, layouts = {}, {}, {}
    for struct, fields in structs.items():
        base = Message if struct == message.name else Struct
        qualname = struct if struct == message.name else f"{message.name}.{struct}"
        classes[struct] = type(struct, (base,), {
            "__slots__": (*[field.name for field in fields], UNKNOWN),
            "__module__": "kafkacore.protocol.messages",
            "__qualname__": qualname,
            "__match_args__": (),
            "FIELDS": tuple([field.name for field in fields]),
        })
    for struct, fields in structs.items():
        plan = Plan(classes[struct], fields)
        plans[struct] = classes[struct]._plan = plan
        offsets = {field.name: plan.offsets[place] for place, field in enumerate(fields)}
        layouts[struct] = Layout(struct, offsets, owner=plan)
    for struct, fields in structs.items():
        plan = plans[struct]
        plan.adopt(fields, plans)
        if struct != message.name:
            setattr(classes[message.name], struct, classes[struct])
    root = plans[message.name]
    root.message, root.layouts = message, layouts
    table = message.tables[0][1]
    made = classes[message.name]
    made.NAME, made.API_KEY, made.VERSIONS = message.name, table.api_key, tuple(message.versions)
    made.__doc__ = f"{message.name}, versions {message.versions.lowest} to {message.versions.highest}."
    return made


# --- slots -------------------------------------------------------------------------------------------------------------

cdef inline PyObject *load(PyObject *owner, Py_ssize_t offset) noexcept nogil:
    return (<PyObject **> (<char *> owner + offset))[0]


cdef inline void store(PyObject *owner, Py_ssize_t offset, PyObject *value) noexcept nogil:
    """Steals `value`."""
    cdef PyObject **slot = <PyObject **> (<char *> owner + offset)
    cdef PyObject *old = slot[0]
    slot[0] = value
    Py_XDECREF(old)


cdef PyObject *fresh(Plan plan, int32_t field) noexcept:
    """A new reference to a field's default, or NULL."""
    cdef PyObject *value = plan.defaults[field]
    if value != NULL:
        Py_INCREF(value)
        return value
    if plan.children[field] != NULL:
        return fresh_instance(<Plan> plan.children[field])
    return PyList_New(0)


cdef PyObject *fresh_instance(Plan plan) noexcept:
    """An instance with every field at its default, or NULL."""
    cdef PyObject *made = (<PyTypeObject *> plan.cls).tp_alloc(<PyTypeObject *> plan.cls, 0)
    cdef PyObject *value
    cdef int32_t i
    if made == NULL:
        return NULL
    for i in range(plan.count):
        value = fresh(plan, i)
        if value == NULL:
            Py_XDECREF(made)
            return NULL
        store(made, plan.offsets[i], value)
    return made


cdef PyObject *new_instance(const Shape *shape) noexcept:
    """An instance whose fields that the walk will not meet are at their defaults, or NULL."""
    cdef Plan plan = <Plan> shape.owner
    cdef PyObject *made = (<PyTypeObject *> plan.cls).tp_alloc(<PyTypeObject *> plan.cls, 0)
    cdef PyObject *value
    cdef const Op *op
    cdef int32_t i
    if made == NULL:
        return NULL
    for i in range(shape.absent_count + shape.tagged_count):
        op = &shape.absent[i] if i < shape.absent_count else &shape.tagged[i - shape.absent_count]
        value = fresh(plan, op.field)
        if value == NULL:
            Py_XDECREF(made)
            return NULL
        store(made, op.offset, value)
    return made


# --- reading: the walker's callbacks ------------------------------------------------------------------------------------

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


cdef inline int32_t width(int kind) noexcept nogil:
    if kind == INT32:
        return 4
    if kind == UUID:
        return 16
    if kind == INT64 or kind == FLOAT64:
        return 8
    return 2 if kind == INT16 or kind == UINT16 else 1


cdef PyObject *new_list(Walk *walk, int32_t count) noexcept nogil:
    """A list of None, so that it can be looked at while a walk is paused."""
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
    cdef int32_t step = width(op.element)
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


cdef void put_element(Walk *walk, void *items, const Op *op, int32_t index, const uint8_t *data, int32_t size) noexcept nogil:
    set_item(walk, <PyObject *> items, index, box_slice(op.element, data, size))


cdef void *put_struct(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *made = (<NewInstance> <void *> new_instance)(op.child)
    keep(walk, target, op, made)
    return made

# `new_instance` touches a Plan, so it is compiled as code that holds the GIL; so does whoever walks with this sink.
ctypedef PyObject *(*NewInstance)(const Shape *) noexcept nogil


cdef void put_unknown(Walk *walk, void *target, uint32_t tag, const uint8_t *data, int32_t size) noexcept nogil:
    with gil:
        try:
            (<Struct> target).unknown_tagged_fields[tag] = (<const char *> data)[:size]
        except BaseException:
            walk.fault = FAULT_PYTHON
            PyErr_Format(PyExc_TypeError, "an unknown tagged field could not be kept")


# --- writing: the walker's callbacks ------------------------------------------------------------------------------------

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
        # The walker copies before any other Python code runs, and the message owns the object: the view need not last.
        found.data = <const uint8_t *> buffer.buf
        size = buffer.len
        PyBuffer_Release(&buffer)
    elif PyErr_Occurred() != NULL:
        walk.fault = FAULT_PYTHON
    else:
        refuse(walk, "Uuid", value)
    if size > MAX_MESSAGE or (kind == UUID and size != 16):
        refuse(walk, "Uuid" if kind == UUID else "fewer bytes", value)
    found.size = <int32_t> size
    return found


cdef Slice get_slice(Walk *walk, void *target, const Op *op) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    cdef Slice nothing
    nothing.data = NULL
    nothing.size = -1
    return unbox_slice(walk, op.kind, value) if value != NULL else nothing


cdef int32_t get_array(Walk *walk, void *target, const Op *op, void **items) noexcept nogil:
    cdef PyObject *value = field(walk, target, op)
    cdef Py_ssize_t count
    if value == NULL or value == Py_None:
        return -1
    if PyList_Check(value):
        count = PyList_GET_SIZE(value)
    elif PyTuple_Check(value):
        count = PyTuple_GET_SIZE(value)
    else:
        refuse(walk, "list", value)
        return -1
    items[0] = value
    hold(walk, value)
    if count > MAX_MESSAGE:
        refuse(walk, "a shorter list", value)
    return <int32_t> count


cdef inline void hold(Walk *walk, PyObject *value) noexcept nogil:
    """An encode in parts keeps what it is in the midst of, whatever its caller does to the message."""
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
    cdef int32_t step = width(op.element)
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
    """`value` when it is of the shape's class."""
    cdef PyTypeObject *cls = class_of(shape)
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


cdef inline PyTypeObject *class_of(const Shape *shape) noexcept nogil:
    return (<ClassOf> <void *> plan_class)(shape)

ctypedef PyTypeObject *(*ClassOf)(const Shape *) noexcept nogil


cdef PyTypeObject *plan_class(const Shape *shape) noexcept:
    return <PyTypeObject *> (<Plan> shape.owner).cls


ctypedef Py_ssize_t (*UnknownAt)(const Shape *) noexcept nogil


cdef Py_ssize_t unknown_at(const Shape *shape) noexcept:
    return (<Plan> shape.owner).unknown


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
            if not 0 <= tag < 0x80000000 or not isinstance(fields[tag], bytes):
                raise ValueError(f"unknown tagged field {tag!r} is not a tag with bytes")
            for i in range(shape.tagged_count):
                if shape.tagged[i].tag == tag:
                    raise ValueError(f"tag {tag} is known in this version, it is not an unknown tagged field")
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
SINK.get_array = get_array
SINK.get_block = get_block
SINK.get_item = get_item
SINK.get_element = get_element
SINK.get_struct = get_struct
SINK.count_unknown = count_unknown
SINK.get_unknown = get_unknown
