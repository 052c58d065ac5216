"""Heartbeats and SyncGroups without the GIL: the members of stable groups, their assignments, and the time of each
member's last heartbeat.

A group's coordinator publishes a StableGroup when the group is stable, and withdraws it before its members change.
While it is published, a heartbeat that matches it says only that its member is alive: the processor answers it and
records the time. A SyncGroup that matches asks for its member's assignment: the processor answers with it and records
the delivery. Every other request goes to the handler untouched. The coordinator reads the recorded times before it ends
a session, and the recorded deliveries before it removes a member that did not fetch its assignment.

`StableGroups.lock` guards the chains. It is a leaf lock, held for one look-up and one copy of at most TOLD_BYTES. The
members of a StableGroup never change; the records about them are atomic words that any processor writes and any thread
reads.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkacore._fast.world.environment cimport Env, Environment
from kafkacore._fast.schema.schema cimport Slice
from kafkacore._fast.base.sync cimport Mutex

cdef enum:
    CHAINS = 4096           # of groups, by the hash of their ids
    CHAIN_LENGTH = 16       # the most groups in a chain; the handler serves the members of others
    TOLD_BYTES = 65536      # the longest assignment; the handler sends longer ones

ctypedef struct Beat:
    Slice member            # its id
    Slice instance          # null: a dynamic member
    Slice assignment        # in a bytes object that the PublishedGroup keeps
    int64_t heard_ns        # atomic, by the environment's clock; 0: not heard since it was published
    int32_t synced          # atomic: 1 when a processor has sent its assignment

ctypedef struct StableGroup:
    StableGroup *next              # in its chain
    bint published          # StableGroups.lock guards it too
    Slice group             # its id; all texts are in `text`
    Slice protocol_type     # may be null
    Slice protocol_name     # may be null
    int32_t generation_id
    uint32_t hash
    uint32_t mask           # of places
    int32_t count           # of beats
    int32_t *places         # by the hash of a member id: 1 + the index of its beat; 0 is free
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
