"""Files in memory that remember which of their bytes and names would survive a power cut.

A file has the bytes that its readers see and the bytes that its last sync made durable. A cut may keep, lose or tear
each write between the two by itself; a later write may survive an earlier one. Names become durable by a sync of their
directory. A cut keeps a prefix of the changes that no sync covered, as a journal does, or any of them, as POSIX allows.
The seed of the cut decides everything. The caller's lock guards a store.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stddef cimport size_t

# A write that no sync has covered; `size` -1: a truncation to `offset`.
ctypedef struct Pending:
    Pending *next
    int64_t number        # counts the changes of its file
    int64_t offset
    int64_t size
    uint8_t *data

ctypedef struct Content:
    uint8_t *data
    int64_t size
    int64_t room          # bytes that `data` has room for

ctypedef struct Inode:
    int refs              # names (now and durable), open handles, waiting changes
    bint directory
    bint warm             # in the page cache
    Content now
    Content durable
    int64_t changes       # the number of the newest
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

# Functions that allocate return -ENOMEM when memory runs out; otherwise 0 or the value that their name says.
cdef void store_free(Store *store) noexcept nogil
cdef Inode *store_find(Store *store, const char *path) noexcept nogil  # not counted
cdef int store_link(Store *store, const char *path, bint directory, Inode **made) noexcept nogil
cdef int store_unlink(Store *store, const char *path) noexcept nogil
cdef int store_rename(Store *store, const char *old, const char *new) noexcept nogil
cdef int store_sync_names(Store *store, const char *directory) noexcept nogil
cdef void inode_release(Inode *inode) noexcept nogil
cdef int inode_write(Store *store, Inode *inode, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil
cdef int inode_truncate(Store *store, Inode *inode, int64_t size) noexcept nogil
# Makes the changes up to number `until` durable. A sync does not cover the changes that come after it began.
cdef int inode_sync(Inode *inode, int64_t until) noexcept nogil
# A sync that fails may have written any part of them. The kernel marks the rest as clean, so no later sync writes it.
cdef int inode_fail_sync(Inode *inode, int64_t until, uint64_t *state) noexcept nogil
cdef void inode_flip(Inode *inode, int64_t position, int bit) noexcept nogil  # on the disk and in the page cache
# Cuts the power: the surviving bytes and names become the visible and durable state. `ordered`: names survive as a
# journal keeps them.
cdef int store_cut(Store *store, uint64_t seed, bint ordered) noexcept nogil
