"""Implements the plans of generated classes. class_plan.pxd has the contract."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.raw_python cimport Py_INCREF, Py_XDECREF, PyList_New, PyTypeObject
from kafkacore._fast.schema.schema cimport Op, Shape, compile_message
from kafkacore._fast.schema.slot_offset cimport slot_offset

from kafkacore._fast.base.uuid import ZERO

UNKNOWN = "_unknown_tagged_fields"


cdef class Plan:
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
        """Returns the `Shape` of a version. The first call for a version compiles the `Shape`."""
        if not 0 <= version < MAX_VERSIONS or self.shapes[version] == NULL:
            made = compile_message(self.message, version, self.layouts)
            # Another thread may have compiled this version in the meantime. Shapes are compared by identity, so the
            # `Plan` must keep only one `Shape` for each version.
            if self.shapes[version] == NULL:
                self.shapes[version] = made
        return self.shapes[version]


def default_value(field):
    if field.default is None:
        return None
    if field.kind in ("bytes", "records"):
        return b""
    return ZERO if field.kind == "uuid" else field.default


cdef PyObject *fresh(Plan plan, int32_t field) noexcept:
    """Returns a new reference to a field's default, or NULL after an error."""
    cdef PyObject *value = plan.defaults[field]
    if value != NULL:
        Py_INCREF(value)
        return value
    if plan.children[field] != NULL:
        return fresh_instance(<Plan> plan.children[field])
    return PyList_New(0)


cdef PyObject *fresh_instance(Plan plan) noexcept:
    """Returns an instance with every field at its default, or NULL after an error."""
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
    """Returns an instance in which each field that the walk does not visit has its default. Returns NULL after an
    error."""
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


cdef PyTypeObject *class_of(const Shape *shape) noexcept:
    return <PyTypeObject *> (<Plan> shape.owner).cls


cdef Py_ssize_t unknown_at(const Shape *shape) noexcept:
    return (<Plan> shape.owner).unknown
