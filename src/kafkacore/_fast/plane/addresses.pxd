"""Addresses of peers: how many connections each has, for max.connections.per.ip, and their text."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from kafkacore._fast.plane.plane cimport AddressCount, Plane

# 0 when the address has a place left, which address_leave gives back; -1 when max.connections.per.ip refuses it.
cdef int address_enter(Plane *plane, const uint8_t *address) noexcept nogil
cdef void address_leave(Plane *plane, const uint8_t *address) noexcept nogil
# Under addresses_lock: the entry of the address, made at first use. NULL when memory is out.
cdef AddressCount *address_entry(Plane *plane, const uint8_t *address) noexcept nogil
cdef void addresses_free(Plane *plane) noexcept nogil

# The host as text. True: it is an address of version 4.
cdef bint format_host(char *into, uint32_t size, const uint8_t *address) noexcept nogil
# "host:port", or "[host]:port" for version 6
cdef void format_peer(char *into, size_t size, const uint8_t *address, int32_t port) noexcept nogil
