"""Makes ids for topics that have no id. A broker in ZooKeeper mode needs such ids (see made_ids.py)."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp


cdef inline bint is_made_id(const uint8_t *topic_id) noexcept nogil:
    return memcmp(topic_id, <const char *> b"byname", 6) == 0 and topic_id[6] >> 4 == 8
