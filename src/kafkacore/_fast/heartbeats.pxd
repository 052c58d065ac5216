"""Heartbeats without the GIL: who is in which group, and when each member was last heard of.

A group's owner publishes a Roll of its members when the group is stable, and withdraws it before anything about them
changes: while it is there, a heartbeat that fits it means nothing but "I live", and its processor says so and notes the
time. Whatever does not fit goes to the handler untouched. The owner looks at the times when a session would end.

`Rolls.lock` covers the chains; it is a leaf, held for one look-up. A Roll's members never change; their times are
atomic words that any processor writes and anybody reads.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.env cimport Env, Environment
from kafkacore._fast.sync cimport Mutex

cdef enum:
    CHAINS = 4096           # of groups, by the hash of their ids
    CHAIN_LENGTH = 16       # groups in one; the handler serves the members of more
    NO_INSTANCE = -1

ctypedef struct Beat:
    const uint8_t *member   # its id, and behind it its instance id
    int32_t member_size
    int32_t instance_size   # NO_INSTANCE: it is no static member
    int64_t heard_ns        # atomic, of the environment's clock; 0: not heard of by this roll

ctypedef struct Roll:
    Roll *next              # in its chain
    bint published          # likewise under Rolls.lock
    const uint8_t *group    # its id; it and all that beats point to is in `text`
    int32_t group_size
    int32_t generation_id
    uint32_t hash
    uint32_t mask           # of places
    int32_t count           # of beats
    int32_t *places         # of the members by the hash of their ids: 1 + which beat; 0 is a free place
    Beat *beats
    uint8_t *text

ctypedef struct Rolls:
    Mutex lock
    Roll *chains[CHAINS]


cdef class HeartbeatRolls:
    cdef Rolls rolls
    cdef Environment environment


cdef class HeartbeatRoll:
    cdef Roll roll
    cdef HeartbeatRolls home
    cdef int fill(self, bytes group_id, int32_t generation_id, list members) except -1
