"""CRC-32C (Castagnoli), as RFC 3720 and Kafka's record batch v2 use it, and CRC-32 (IEEE 802.3), as gzip does.

`seed` is a finished checksum: `crc32c(crc32c(0, a), b) == crc32c(0, a + b)`. Stateless; any thread may call.
"""

from libc.stdint cimport uint32_t, uint64_t

cdef uint32_t crc32c(uint32_t seed, const void *data, size_t size) noexcept nogil
cdef uint32_t crc32(uint32_t seed, const void *data, size_t size) noexcept nogil
# The checksum of two neighbouring pieces, from the checksums of each: combine(crc(a), crc(b), len(b)) == crc(a + b).
cdef uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_size_bytes) noexcept nogil
