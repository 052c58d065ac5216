"""Files in memory that remember which of their bytes and names would survive a power cut.

A file has two contents: the bytes that its readers see, and the bytes that its last sync made durable. At a power cut,
the store decides for each unsynced write separately whether it is kept, lost or torn. A later write can survive
although an earlier write is lost. Names become durable when their directory is synced. At a power cut, either a prefix
of the unsynced changes of names survives, as in a journal, or any subset of them, as POSIX allows. The seed of the cut
determines all of this. The caller must guard a store with a lock.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stddef cimport size_t

# A write that no sync has covered; or, if `size` is -1, a truncation to `offset`.
ctypedef struct Pending:
    Pending *next
    int64_t number        # the number of this change; the changes of a file are numbered in order
    int64_t offset
    int64_t size
    uint8_t *data

ctypedef struct Content:
    uint8_t *data
    int64_t size
    int64_t room          # capacity of `data` in bytes

ctypedef struct Inode:
    int refs              # references: names (visible and durable), open handles, pending changes
    bint directory
    bint warm             # whether the file is in the page cache
    Content now
    Content durable
    int64_t changes       # the number of the newest change
    Pending *oldest
    Pending *newest

ctypedef struct Name:
    char *path
    Inode *inode

ctypedef struct Names:
    Name *items           # sorted by path
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
    char *other           # for a rename, the new path
    Inode *inode          # for a link
    bint kept             # whether this change survives the power cut

ctypedef struct Store:
    Names now
    Names durable
    Change *oldest
    Change *newest
    int64_t bytes         # total size of all files, as readers see them

# Functions that allocate memory return -ENOMEM if no memory is left. `store_unlink` and `store_rename` return -ENOENT
# if the name does not exist. On success, a function returns 0, or the value that its name describes.
cdef void store_free(Store *store) noexcept nogil
cdef Inode *store_find(Store *store, const char *path) noexcept nogil  # takes no reference
cdef int store_link(Store *store, const char *path, bint directory, Inode **made) noexcept nogil
cdef int store_unlink(Store *store, const char *path) noexcept nogil
cdef int store_rename(Store *store, const char *old, const char *new) noexcept nogil
cdef int store_sync_names(Store *store, const char *directory) noexcept nogil
cdef void inode_release(Inode *inode) noexcept nogil
cdef int inode_write(Store *store, Inode *inode, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil
cdef int inode_truncate(Store *store, Inode *inode, int64_t size) noexcept nogil
# Makes the changes up to number `until` durable. A sync does not cover changes that were made after it began.
cdef int inode_sync(Inode *inode, int64_t until) noexcept nogil
# Makes a sync fail. Any part of the changes may have been written by then. No later sync writes the rest, because the
# kernel marks the rest as clean.
cdef int inode_fail_sync(Inode *inode, int64_t until, uint64_t *state) noexcept nogil
# Changes a bit both on the disk and in the page cache.
cdef void inode_flip(Inode *inode, int64_t position, int bit) noexcept nogil
# Cuts the power. Afterwards, the visible and the durable state consist of the surviving bytes and names. With
# `ordered`, changes of names survive as in a journal.
cdef int store_cut(Store *store, uint64_t seed, bint ordered) noexcept nogil
