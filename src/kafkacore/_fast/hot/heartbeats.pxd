"""Answers Heartbeat and SyncGroup requests without the GIL. Keeps the members of stable groups, their assignments, and
the time of each member's last heartbeat.

A group's coordinator, which is Python code, publishes a `StableGroup` when the group is stable, and withdraws it before
the members of the group change. While the group is published, a processor (a thread that serves connections) handles
two kinds of requests itself. A Heartbeat from a member of this generation only means that the member is alive: the
processor answers it and notes the time. A SyncGroup from such a member requests the member's assignment: the
processor sends the assignment and notes that it was sent. Every other request goes to the handler in Python
unchanged. Before the coordinator expires a member's session, it reads the recorded times. Before the coordinator
removes a member that has not fetched its assignment, it reads which assignments were sent.

`StableGroups.lock` guards the hash chains. A thread that holds this lock takes no other lock, and holds it for one
look-up and one copy of at most TOLD_BYTES. The members of a `StableGroup` never change. The heartbeat times, and the
flags of the assignments that were sent, are atomic words. Any processor writes them and any thread reads them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.world.environment cimport Env, Environment
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.base.sync cimport Mutex

cdef enum:
    CHAINS = 4096           # hash chains of groups, by the hash of the group id
    CHAIN_LENGTH = 16       # a chain has at most this many groups; the handler serves all other groups
    TOLD_BYTES = 65536      # the size of the longest assignment; the handler sends longer assignments

ctypedef struct Beat:
    Slice member            # the member id
    Slice instance          # group.instance.id; null for a dynamic member
    Slice assignment        # points into a bytes object that the `PublishedGroup` keeps
    # Atomic: time of the last heartbeat since the group was published, by the environment's clock; 0 if there was none.
    int64_t heard_ns
    int32_t synced          # atomic: 1 after a processor has sent the member's assignment

ctypedef struct StableGroup:
    StableGroup *next              # next in its hash chain
    bint published          # `StableGroups.lock` guards this field too
    Slice group             # the group id; this and all other texts of the group are in `text`
    Slice protocol_type     # may be null
    Slice protocol_name     # may be null
    int32_t generation_id
    uint32_t hash
    uint32_t mask           # the number of `places` minus one
    int32_t count           # the number of `beats`
    int32_t *places         # hash table by member id: 1 + the index of the member's beat; 0 is free
    Beat *beats
    uint8_t *text

ctypedef struct StableGroups:
    Mutex lock
    StableGroup *chains[CHAINS]


cdef class PublishedGroups:
    cdef StableGroups groups
    cdef Environment environment


cdef class PublishedGroup:
    cdef StableGroup stable
    cdef PublishedGroups owner
    cdef list assignments
    cdef int fill(self, list texts, int32_t generation_id, list assignments) except -1
    cdef int check(self, int32_t place) except -1
