"""Columns: the buffers of Python objects (numpy arrays, for example) that native code reads and writes. The numbers in
a buffer can have any width.

A `Columns` object holds the buffers into which its `Column` structs point. Each call that reads or writes rows creates
its own `Columns`.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kafkacore._fast.schema.schema cimport Op, Slice

cdef enum Form:
    FORM_DEFAULT = 0    # no column: every row has the field's default
    FORM_SCALAR         # one value for all rows
    FORM_NUMBERS
    FORM_UUIDS
    FORM_OBJECTS        # a list of str, bytes or None; the only form that needs the GIL
    FORM_LISTS          # one array of numbers or uuids for each row; all rows have room for the same number of elements

ctypedef struct Column:
    uint8_t form
    uint8_t is_signed
    int32_t width           # bytes per number
    uint8_t *data
    Py_ssize_t stride       # bytes from one row to the next
    int32_t room            # FORM_LISTS: the number of elements that fit into a row
    Py_ssize_t step         # bytes from one element to the next
    # For FORM_LISTS: for each row, the number of elements that the row uses, or -1 for null. If `counts` is NULL, a row
    # uses the elements before its first negative element.
    uint8_t *counts
    int32_t counts_width
    Py_ssize_t counts_stride
    int64_t number          # FORM_SCALAR
    Slice slice
    void *objects           # FORM_OBJECTS: the list

cdef class Columns:
    """The columns of one call, and the buffers into which they point."""
    cdef Column *columns
    cdef int64_t count      # number of rows; -1 while no column has set it
    cdef bint objects       # whether at least one column needs the GIL
    cdef bint writable
    cdef void *buffers
    cdef int32_t buffer_count
    cdef list alive
    cdef int64_t *bases     # the lengths of the lists before this call fills them

    cdef int add(self, const Op *op, object value) except -1
    cdef int rows(self, str name, int64_t count) except -1
    cdef int add_scalar(self, const Op *op, str name, Column *column, object value) except -1
    cdef int add_numbers(self, const Op *op, str name, Column *column, object value) except -1
    cdef int add_lists(self, const Op *op, str name, Column *column, object value) except -1


cdef inline int32_t int32_at(const uint8_t *at) noexcept nogil:
    """Returns the int32 at `at`, which need not be aligned. The copy has a constant size, so it compiles to one
    load."""
    cdef int32_t value
    memcpy(&value, at, 4)
    return value


cdef inline int64_t number_at(const uint8_t *at, int32_t width, bint is_signed) noexcept nogil:
    cdef int64_t wide
    cdef int16_t narrow
    if width == 4:
        return <int64_t> int32_at(at) if is_signed else <int64_t> <uint32_t> int32_at(at)
    if width == 8:
        memcpy(&wide, at, 8)
        return wide
    if width == 2:
        memcpy(&narrow, at, 2)
        return <int64_t> narrow if is_signed else <int64_t> <uint16_t> narrow
    return <int64_t> (<const int8_t *> at)[0] if is_signed else <int64_t> at[0]


cdef inline bint set_number_at(uint8_t *at, int32_t width, bint is_signed, int64_t value) noexcept nogil:
    """Stores `value` with a width of `width` bytes. Returns False if it does not fit."""
    cdef int32_t middle = <int32_t> value
    cdef int16_t narrow = <int16_t> value
    if width == 4:
        memcpy(at, &middle, 4)
    elif width == 8:
        memcpy(at, &value, 8)
    elif width == 2:
        memcpy(at, &narrow, 2)
    else:
        at[0] = <uint8_t> value
    return number_at(at, width, is_signed) == value
