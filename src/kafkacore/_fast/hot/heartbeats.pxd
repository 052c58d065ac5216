"""Heartbeats and SyncGroups without the GIL: who is in which group with which assignment, and when each member was last
heard of.

A group's owner publishes a Roll of its members when the group is stable, and withdraws it before anything about them
changes: while it is there, a heartbeat that fits it means nothing but "I live", and its processor says so and notes the
time; a SyncGroup that fits it asks for the member's assignment, and its processor gives that and notes that it did.
Whatever does not fit goes to the handler untouched. The owner looks at the times when a session would end, and at who
has its assignment when somebody would be late.

`Rolls.lock` covers the chains; it is a leaf, held for one look-up and one copy of at most TOLD_BYTES. A Roll's members
never change; what is noted of them are atomic words that any processor writes and anybody reads.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.world.environment cimport Env, Environment
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.base.sync cimport Mutex

cdef enum:
    CHAINS = 4096           # of groups, by the hash of their ids
    CHAIN_LENGTH = 16       # groups in one; the handler serves the members of more
    TOLD_BYTES = 65536      # of one assignment; the handler gives longer ones

ctypedef struct Beat:
    Slice member            # its id
    Slice instance          # null: it is no static member
    Slice assignment        # in a bytes object that the HeartbeatRoll keeps
    int64_t heard_ns        # atomic, of the environment's clock; 0: not heard of by this roll
    int32_t synced          # atomic: 1 when it was given its assignment by this roll

ctypedef struct Roll:
    Roll *next              # in its chain
    bint published          # likewise under Rolls.lock
    Slice group             # its id; it and all texts are in `text`
    Slice protocol_type     # may be null
    Slice protocol_name     # likewise
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
    cdef list assignments
    cdef int fill(self, list texts, int32_t generation_id, list assignments) except -1
    cdef int check(self, int32_t place) except -1
