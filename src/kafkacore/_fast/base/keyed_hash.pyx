"""Draws the hash key of the process, and offers the keyed hash to Python."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

import os

cdef uint64_t[2] process_key


cdef const uint64_t *process_hash_key() noexcept nogil:
    return process_key


cdef int draw_key() except -1:
    cdef bytes drawn = os.urandom(16)
    memcpy(process_key, <const char *> drawn, 16)
    return 0


draw_key()


def siphash(bytes key not None, bytes data not None):
    """Returns the SipHash-1-3 of `data` under `key`, which has 16 bytes."""
    cdef uint64_t[2] words
    if len(key) != 16:
        raise ValueError(f"a hash key has 16 bytes, not {len(key)}")
    memcpy(words, <const char *> key, 16)
    return hash_bytes(words, <const uint8_t *> <const char *> data, <size_t> len(data))
