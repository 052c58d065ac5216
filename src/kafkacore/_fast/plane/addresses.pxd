"""Addresses of peers. Counts the connections of each address for max.connections.per.ip, and formats addresses as text.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t

from kafkacore._fast.plane.plane cimport AddressCount, Plane

# Counts a new connection from the address and returns 0. `address_leave` undoes this. Returns -1 if the address has
# max.connections.per.ip connections already, or if no memory is left.
cdef int address_enter(Plane *plane, const uint8_t *address) noexcept nogil
cdef void address_leave(Plane *plane, const uint8_t *address) noexcept nogil
# Returns the entry of the address. The first call for an address creates its entry. Returns NULL if no memory is left.
# Call this with `plane.addresses_lock` held.
cdef AddressCount *address_entry(Plane *plane, const uint8_t *address) noexcept nogil
cdef void addresses_free(Plane *plane) noexcept nogil

# Writes the address as text, without a port. Returns True for an IPv4 address.
cdef bint format_host(char *into, uint32_t size, const uint8_t *address) noexcept nogil
# Writes "host:port", or "[host]:port" for IPv6.
cdef void format_peer(char *into, size_t size, const uint8_t *address, int32_t port) noexcept nogil
