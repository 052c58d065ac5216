"""Each generated class represents a message, or a struct in a message. A `Plan` describes how to create instances of
one such class, and where the slots of an instance are. An `Op` describes one field of a message, a `Shape` describes a
struct, and a walk reads or writes a message (schema.pxd).

The `offset` in a field's `Op` is the offset of the field's slot in the object. The callers of these functions must hold
the GIL. Some of the functions are nevertheless declared nogil, because the callbacks of a walk, which call them, are
declared nogil too (see object_sink.pyx).
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.raw_python cimport Py_XDECREF, PyTypeObject
from kafkacore._fast.schema.schema cimport Shape

cdef enum:
    MAX_VERSIONS = 64

cdef class Plan:
    """Describes how to create instances of one class. An item of `defaults` is the default of a field, or NULL
    if each instance gets its own list or struct for this field."""
    cdef type cls
    cdef tuple names
    cdef int32_t count
    cdef Py_ssize_t *offsets
    cdef PyObject **defaults
    cdef PyObject **children    # by field: the `Plan` of a struct field that is not null by default; else NULL
    cdef Py_ssize_t unknown     # offset of the slot for unknown tagged fields; the slot is NULL if there are none
    cdef list alive             # owns the objects that the arrays point to
    cdef object message         # the `tables.Message`, if the class is a whole message
    cdef int64_t max_elements   # all arrays of one message together have at most this many elements
    cdef dict layouts
    cdef const Shape *shapes[MAX_VERSIONS]

    cdef void adopt(self, list fields, dict plans)
    cdef const Shape *shape(self, int version) except NULL

cdef PyObject *fresh(Plan plan, int32_t field) noexcept
# `shape.owner` must be a `Plan`. `new_instance` returns NULL if no memory is left.
cdef PyObject *new_instance(const Shape *shape) noexcept
cdef PyTypeObject *class_of(const Shape *shape) noexcept
cdef Py_ssize_t unknown_at(const Shape *shape) noexcept


cdef inline PyObject *load(PyObject *owner, Py_ssize_t offset) noexcept nogil:
    return (<PyObject **> (<char *> owner + offset))[0]


cdef inline void store(PyObject *owner, Py_ssize_t offset, PyObject *value) noexcept nogil:
    """Stores `value` in a slot. Takes over the caller's reference to `value`."""
    cdef PyObject **slot = <PyObject **> (<char *> owner + offset)
    cdef PyObject *old = slot[0]
    slot[0] = value
    Py_XDECREF(old)
