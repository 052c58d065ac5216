"""Handles texts as Java does, in UTF-16 code units. java_text.pyi has the contract."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

cdef extern from "Python.h":
    int PyUnicode_KIND(object text) noexcept
    const void *PyUnicode_DATA(object text) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept

cdef enum:
    ONE = 31
    TWO = 31 * 31
    THREE = 31 * 31 * 31
    FOUR = 31 * 31 * 31 * 31
    FIRST_BEYOND = 0x10000      # the first character that needs two units
    HIGH_SURROGATES = 0xD800
    LOW_SURROGATES = 0xDC00
    SURROGATE_MASK = 0x3FF

ctypedef fused Unit:
    uint8_t
    uint16_t


cdef uint32_t hash_of_units(const Unit *unit, Py_ssize_t count) noexcept nogil:
    """Hashes four units at a time. With one unit at a time, each multiplication would wait for the previous one."""
    cdef uint32_t value = 0
    cdef const Unit *end = unit + count
    while end - unit >= 4:
        value = (
            value * <uint32_t> FOUR + <uint32_t> unit[0] * THREE + <uint32_t> unit[1] * TWO + <uint32_t> unit[2] * ONE
            + unit[3]
        )
        unit += 4
    while unit < end:
        value = value * ONE + unit[0]
        unit += 1
    return value


cdef uint32_t hash_of_characters(const uint32_t *character, Py_ssize_t count) noexcept nogil:
    cdef uint32_t value = 0
    cdef uint32_t beyond
    cdef Py_ssize_t i
    for i in range(count):
        if character[i] < FIRST_BEYOND:
            value = value * ONE + character[i]
            continue
        beyond = character[i] - FIRST_BEYOND
        value = value * ONE + (HIGH_SURROGATES | beyond >> 10)
        value = value * ONE + (LOW_SURROGATES | beyond & SURROGATE_MASK)
    return value


def hash_code(str text not None):
    cdef Py_ssize_t count = PyUnicode_GET_LENGTH(text)
    cdef const void *data = PyUnicode_DATA(text)
    cdef int kind = PyUnicode_KIND(text)
    if kind == 1:
        return <int32_t> hash_of_units[uint8_t](<const uint8_t *> data, count)
    if kind == 2:
        return <int32_t> hash_of_units[uint16_t](<const uint16_t *> data, count)
    return <int32_t> hash_of_characters(<const uint32_t *> data, count)
