"""Plans: how the instances of one generated class are made, and where their slots are.

A field's offset in the object is the `offset` of its Op. Functions here need the GIL; those that are called from the
walk's callbacks are declared nogil, as the callbacks are (see object_sink.pyx).
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kafkacore._fast.base.raw_python cimport Py_XDECREF, PyTypeObject
from kafkacore._fast.schema.schema cimport Shape

cdef enum:
    MAX_VERSIONS = 64

cdef class Plan:
    """How to make instances of one class: the default of each field, or NULL where each instance gets its own list or
    struct."""
    cdef type cls
    cdef tuple names
    cdef int32_t count
    cdef Py_ssize_t *offsets
    cdef PyObject **defaults
    cdef PyObject **children    # Plan, for a struct that is not null by default
    cdef Py_ssize_t unknown     # offset of the slot for unknown tagged fields; NULL in it means none
    cdef list alive             # owns what the arrays point to
    cdef object message         # tables.Message, of a message
    cdef int64_t max_elements   # that one message may have in all its arrays
    cdef dict layouts
    cdef const Shape *shapes[MAX_VERSIONS]

    cdef void adopt(self, list fields, dict plans)
    cdef const Shape *shape(self, int version) except NULL

cdef PyObject *fresh(Plan plan, int32_t field) noexcept
# The plan of a shape: the shape's owner is the plan. NULL when memory runs out.
cdef PyObject *new_instance(const Shape *shape) noexcept
cdef PyTypeObject *class_of(const Shape *shape) noexcept
cdef Py_ssize_t unknown_at(const Shape *shape) noexcept


cdef inline PyObject *load(PyObject *owner, Py_ssize_t offset) noexcept nogil:
    return (<PyObject **> (<char *> owner + offset))[0]


cdef inline void store(PyObject *owner, Py_ssize_t offset, PyObject *value) noexcept nogil:
    """Steals `value`."""
    cdef PyObject **slot = <PyObject **> (<char *> owner + offset)
    cdef PyObject *old = slot[0]
    slot[0] = value
    Py_XDECREF(old)
