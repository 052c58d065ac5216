"""Counts the connections of each address, and formats addresses as text. addresses.pxd has the contract."""

from libc.stdint cimport int32_t, uint32_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kafkacore._fast.base.atomics cimport load32
from kafkacore._fast.base.sync cimport mutex_lock, mutex_unlock

cdef extern from "<arpa/inet.h>" nogil:
    const char *inet_ntop(int family, const void *address, char *into, uint32_t size)
    int inet_pton(int family, const char *text, void *into)
    int AF_INET
    int AF_INET6


cdef inline AddressCount **address_slot(Plane *plane, const uint8_t *address) noexcept nogil:
    cdef uint32_t hash = 2166136261u
    cdef AddressCount **at
    cdef int i
    for i in range(16):
        hash = (hash ^ address[i]) * 16777619u
    at = &plane.addresses[(hash >> 24) ^ (hash & 0xFF)]
    while at[0] != NULL and memcmp(at[0].address, address, 16) != 0:
        at = &at[0].next
    return at


cdef AddressCount *address_entry(Plane *plane, const uint8_t *address) noexcept nogil:
    cdef AddressCount **at = address_slot(plane, address)
    if at[0] == NULL:
        at[0] = <AddressCount *> calloc(1, sizeof(AddressCount))
        if at[0] != NULL:
            memcpy(at[0].address, address, 16)
            at[0].limit = -1
    return at[0]


cdef int address_enter(Plane *plane, const uint8_t *address) noexcept nogil:
    cdef AddressCount *entry
    cdef int result = -1
    mutex_lock(&plane.addresses_lock)
    entry = address_entry(plane, address)
    if entry != NULL and entry.count < (entry.limit if entry.limit >= 0 else load32(&plane.max_connections_per_ip)):
        entry.count += 1
        result = 0
    mutex_unlock(&plane.addresses_lock)
    return result


cdef void address_leave(Plane *plane, const uint8_t *address) noexcept nogil:
    cdef AddressCount **at
    cdef AddressCount *entry
    mutex_lock(&plane.addresses_lock)
    at = address_slot(plane, address)
    entry = at[0]
    if entry != NULL:
        entry.count -= 1
        if entry.count <= 0 and entry.limit < 0:
            at[0] = entry.next
            free(entry)
    mutex_unlock(&plane.addresses_lock)


cdef void addresses_free(Plane *plane) noexcept nogil:
    cdef AddressCount *entry
    cdef int i
    for i in range(256):
        while plane.addresses[i] != NULL:
            entry = plane.addresses[i]
            plane.addresses[i] = entry.next
            free(entry)


cdef bint format_host(char *into, uint32_t size, const uint8_t *address) noexcept nogil:
    cdef const uint8_t *mapped = <const uint8_t *> b"\0\0\0\0\0\0\0\0\0\0\xff\xff"
    if memcmp(address, mapped, 12) == 0:
        inet_ntop(AF_INET, address + 12, into, size)
        return True
    inet_ntop(AF_INET6, address, into, size)
    return False


cdef void format_peer(char *into, size_t size, const uint8_t *address, int32_t port) noexcept nogil:
    cdef char host[64]
    if format_host(host, 64, address):
        snprintf(into, size, "%s:%d", host, port)
    else:
        snprintf(into, size, "[%s]:%d", host, port)


def pack_address(host: str) -> bytes:
    """Returns the 16 bytes of an IP address. An IPv4 address is mapped into IPv6. Raises ValueError for any other
    text."""
    cdef uint8_t address[16]
    cdef bytes text = host.encode()
    memcpy(address, <const char *> b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12)
    if inet_pton(AF_INET, text, &address[12]) != 1 and inet_pton(AF_INET6, text, address) != 1:
        raise ValueError(f"{host!r} is not an IP address")
    return (<char *> address)[:16]
