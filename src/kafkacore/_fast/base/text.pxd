"""Writes numbers, and arbitrary bytes as valid UTF-8, to a `Writer` (cursor.pxd). The text is either plain or the
content of a JSON string.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.base.cursor cimport Writer

cdef void put_unsigned(Writer *out, uint64_t value) noexcept nogil
cdef void put_number(Writer *out, int64_t value) noexcept nogil
# Writes `data` as UTF-8. Replaces invalid bytes by U+FFFD as Java and Python do: one U+FFFD for each maximal subpart of
# an ill-formed sequence (Unicode 15, section 3.9). With `escaped`, the text is the content of a JSON string.
cdef void put_text(Writer *out, const uint8_t *data, int32_t size, bint escaped) noexcept nogil
