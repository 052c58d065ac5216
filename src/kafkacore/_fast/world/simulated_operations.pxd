"""The operations of a simulated disk: a table of functions that work on a store (simulated_store.pxd). The disk has
power cuts, a capacity, a speed, and faults that are random or that a test orders. The disk's seed determines everything
that is random.

A power cut stops everything. The current operation may reach the disk in part, and every later operation fails with EIO
until the restart. After the restart, handles that were opened before the cut stay invalid. In a simulated world, the
environments that were made before the cut stay invalid too.

An operation takes effect when its duration has passed. But a sync covers only what was written before the sync began. A
task of an agenda (agenda.pxd) pauses for the duration of the operation, so that other tasks can run. Any other caller
in a simulated world continues immediately, and the duration is added to `spent_ns`. In the real world, the thread
sleeps.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from kafkacore._fast.base.sync cimport Mutex
from kafkacore._fast.world.environment cimport Disk
from kafkacore._fast.world.fault_kinds cimport FAULTS
from kafkacore._fast.world.simulated_store cimport Inode, Store

ctypedef struct Handle:
    Inode *inode          # holds a reference; NULL if the handle is closed
    int64_t life          # the value of `SimDisk.life` when the handle was opened

ctypedef struct Fault:
    int error             # 0 for no fault
    int64_t after         # the number of operations of this kind that still succeed
    uint64_t below        # each later operation fails if its random number is not above this

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
    int64_t operations    # the number of writes, syncs and changes of names so far
    int64_t cut_at        # the power is cut during the operation with this number; -1 for never
    int64_t life          # the number of times that the disk's power was cut or its process ended
    bint dead
    bint cold             # a file is in the page cache only after its first read
    int64_t capacity_bytes
    int64_t delay_us      # the delay of every operation; atomic
    Pace paces[FAULTS]
    Fault faults[FAULTS]
    uint64_t rot_below    # a read changes a bit of the file if its random number is below this
    uint64_t random       # the state of the random numbers that the seed determines
    int64_t spent_ns

# The disk as one process sees it. The functions of the table get a `Mount` as their `self`.
ctypedef struct Mount:
    SimDisk *disk
    int64_t life          # the `Mount` works while `disk.life` has this value; with ANY_LIFE, it always works
    bint simulated        # whether the process belongs to a simulated world

cdef enum NameChange:
    NAME_RENAME
    NAME_UNLINK
    NAME_MAKE
    NAME_SYNC

cdef void simulated_table(Disk *table, Mount *mount) noexcept nogil
cdef int change_names(Mount *mount, NameChange kind, const char *path, const char *other) noexcept nogil
# Copies the names directly below the directory `prefix`. Each name ends with a null byte. Returns the total size in
# bytes, or -ENOMEM.
cdef int64_t names_below(SimDisk *disk, const char *prefix, size_t size, char **names) noexcept nogil
