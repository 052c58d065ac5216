"""CRC-32C (Castagnoli), which RFC 3720 and Kafka's record batch v2 use, and CRC-32 (IEEE 802.3), which gzip uses.

`seed` is the checksum of the bytes before `data`, or 0: `crc32c(crc32c(0, a), b) == crc32c(0, a + b)`. The functions
keep no state, so any thread may call them.
"""

from libc.stdint cimport uint32_t, uint64_t

cdef uint32_t crc32c(uint32_t seed, const void *data, size_t size) noexcept nogil
cdef uint32_t crc32(uint32_t seed, const void *data, size_t size) noexcept nogil
# Returns the checksum of two adjacent parts, computed from the checksums of the parts: combine(crc(a), crc(b), len(b))
# == crc(a + b).
cdef uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes) noexcept nogil
