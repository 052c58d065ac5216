"""Addresses of peers: how many connections each has, for max.connections.per.ip, and their text."""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from kafkacore._fast.plane.plane cimport AddressCount, Plane

# 0: the connection has a place, which address_leave gives back. -1: max.connections.per.ip refuses it,
# or memory runs out.
cdef int address_enter(Plane *plane, const uint8_t *address) noexcept nogil
cdef void address_leave(Plane *plane, const uint8_t *address) noexcept nogil
# Under addresses_lock: the entry of the address, made at first use. NULL when memory runs out.
cdef AddressCount *address_entry(Plane *plane, const uint8_t *address) noexcept nogil
cdef void addresses_free(Plane *plane) noexcept nogil

# Writes the host as text. Returns True for an IPv4 address.
cdef bint format_host(char *into, uint32_t size, const uint8_t *address) noexcept nogil
# Writes "host:port", or "[host]:port" for IPv6.
cdef void format_peer(char *into, size_t size, const uint8_t *address, int32_t port) noexcept nogil
