"""Writes text to a Writer: numbers, and any bytes as UTF-8, plain or as the inside of a JSON string."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.base.cursor cimport Writer

cdef void put_unsigned(Writer *out, uint64_t value) noexcept nogil
cdef void put_number(Writer *out, int64_t value) noexcept nogil
# Replaces each longest invalid start of a character by one U+FFFD (Unicode 15, section 3.9), as in Java and Python.
# `escaped`: for a JSON string.
cdef void put_text(Writer *out, const uint8_t *data, int32_t size, bint escaped) noexcept nogil
