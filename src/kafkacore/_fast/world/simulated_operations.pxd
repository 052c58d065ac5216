"""The operations of a simulated disk: the table of functions over a store (simulated_store.pxd), with a power switch, a
capacity, a pace, and ordered and random faults. The disk's seed decides everything that is random.

A power cut stops everything. The operation under way may reach the disk in part, and every later one fails with EIO
until the restart. Handles from before a cut stay dead after it, and so do the environments of a simulated world.

Time passes before an operation takes effect; a sync covers what was written before it began. A task of an agenda pauses
for that time, so that other tasks run meanwhile. Any other caller in a simulated world goes on at once, and the time is
added to `spent_ns`; in the real world a thread sleeps.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS
from kafkacore._fast.world.simulated_store cimport Inode, Store

ctypedef struct Handle:
    Inode *inode          # counted; NULL when closed
    int64_t life          # of the disk when it was opened

ctypedef struct Fault:
    int error             # 0: none
    int64_t after         # number of operations of this kind that still succeed
    uint64_t below        # ... and then each fails whose random number is below this

ctypedef struct Pace:
    int64_t least_ns
    int64_t most_ns

cdef enum:
    ANY_LIFE = -1

ctypedef struct SimDisk:
    Mutex lock
    Store store
    Handle *handles
    int32_t handle_count
    int64_t operations    # that change something, since the start
    int64_t cut_at        # the power is cut at the operation with this number; -1: never
    int64_t life          # how often its power was cut or its process died
    bint dead
    bint cold             # a file is not in the page cache before its first read
    int64_t capacity_bytes
    int64_t delay_us      # of every operation; atomic
    Pace paces[FAULTS]
    Fault faults[FAULTS]
    uint64_t rot_below    # a read whose random number is below this finds a bit changed
    uint64_t random       # the state of the seed's numbers
    int64_t spent_ns

# A disk as one process sees it: `self` of the table.
ctypedef struct Mount:
    SimDisk *disk
    int64_t life          # works while disk.life has this value; ANY_LIFE: always
    bint simulated        # whether its process lives in a simulated world

cdef enum NameChange:
    NAME_RENAME
    NAME_UNLINK
    NAME_MAKE
    NAME_SYNC

cdef void simulated_table(Disk *table, Mount *mount) noexcept nogil
cdef int change_names(Mount *mount, NameChange kind, const char *path, const char *other) noexcept nogil
# Copies the names directly below `prefix`, each with a null byte at its end. Returns their bytes, or -ENOMEM.
cdef int64_t names_below(SimDisk *disk, const char *prefix, size_t size, char **names) noexcept nogil
