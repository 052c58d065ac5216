"""Text into a Writer: numbers, and bytes as UTF-8 whatever they are, plain or as the inside of a JSON string."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kafkacore._fast.base.cursor cimport Writer

cdef void put_unsigned(Writer *out, uint64_t value) noexcept nogil
cdef void put_number(Writer *out, int64_t value) noexcept nogil
# What is not UTF-8 becomes U+FFFD, one for each longest start of a character (Unicode 15, section 3.9), as Java and
# Python replace it. `escaped`: for a JSON string.
cdef void put_text(Writer *out, const uint8_t *data, int32_t size, bint escaped) noexcept nogil
