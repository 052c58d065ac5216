"""Recognizes made ids. A broker in ZooKeeper mode makes such an id from the name of a topic that has no id (see
made_ids.py).
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp


cdef inline bint is_made_id(const uint8_t *topic_id) noexcept nogil:
    return memcmp(topic_id, <const char *> b"byname", 6) == 0 and topic_id[6] >> 4 == 8
