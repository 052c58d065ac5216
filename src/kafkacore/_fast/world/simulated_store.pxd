"""Files in memory that remember what a power cut would leave of them.

A file has what its readers see and what its last sync made durable; between the two lie writes that a cut may keep,
lose or tear, each by itself (a later one may survive an earlier one). Names become durable by a sync of their
directory; of changes that no sync covered, a cut keeps a prefix, as a journal does, or any of them, as POSIX allows.
Everything is decided by the seed of the cut. One lock, the caller's.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stddef cimport size_t

# A write that no sync has covered; `size` -1: a truncation to `offset`.
ctypedef struct Pending:
    Pending *next
    int64_t offset
    int64_t size
    uint8_t *data

ctypedef struct Inode:
    int refs              # names (now and durable), open handles, waiting changes
    bint directory
    bint warm             # in the page cache
    uint8_t *data
    int64_t size
    uint8_t *durable
    int64_t durable_size
    Pending *oldest
    Pending *newest

ctypedef struct Name:
    char *path
    Inode *inode

ctypedef struct Names:
    Name *items           # by path
    int count
    int capacity

cdef enum:
    CHANGE_LINK = 0
    CHANGE_UNLINK = 1
    CHANGE_RENAME = 2

ctypedef struct Change:
    Change *next
    int kind
    char *path
    char *other           # rename: the new path
    Inode *inode          # link
    bint kept             # by the cut

ctypedef struct Store:
    Names now
    Names durable
    Change *oldest
    Change *newest
    int64_t bytes         # of all files, as readers see them

# All that may run out of memory say -ENOMEM; otherwise 0 or as named.
cdef void store_free(Store *store) noexcept nogil
cdef Inode *store_find(Store *store, const char *path) noexcept nogil  # not counted
cdef int store_link(Store *store, const char *path, bint directory, Inode **made) noexcept nogil
cdef int store_unlink(Store *store, const char *path) noexcept nogil
cdef int store_rename(Store *store, const char *old, const char *new) noexcept nogil
cdef int store_sync_names(Store *store, const char *directory) noexcept nogil
cdef void inode_release(Inode *inode) noexcept nogil
cdef int inode_write(Store *store, Inode *inode, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil
cdef int inode_truncate(Store *store, Inode *inode, int64_t size) noexcept nogil
cdef int inode_sync(Inode *inode) noexcept nogil
# What is left after a cut becomes what is there, and is durable. `ordered`: of the names as a journal keeps them.
cdef int store_cut(Store *store, uint64_t seed, bint ordered) noexcept nogil
