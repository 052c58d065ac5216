"""Implements files in memory whose unsynced writes a power cut can lose or tear. simulated_store.pxd has the contract.
"""

from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset, strcmp, strdup, strlen, strncmp, strrchr

from kafkacore._fast.world.agenda cimport agenda_draw

cdef enum:
    SECTOR_BYTES = 512    # a torn write is kept or lost in units of this size


# --- inodes ---

cdef void inode_release(Inode *inode) noexcept nogil:
    if inode == NULL:
        return
    inode.refs -= 1
    if inode.refs > 0:
        return
    forget_pending(inode)
    free(inode.now.data)
    free(inode.durable.data)
    free(inode)


cdef void forget_pending(Inode *inode) noexcept nogil:
    cdef Pending *one = inode.oldest
    cdef Pending *rest
    while one != NULL:
        rest = one.next
        free(one.data)
        free(one)
        one = rest
    inode.oldest = inode.newest = NULL


cdef int resize(Content *content, int64_t wanted) noexcept nogil:
    """Makes the content larger or smaller. New bytes are zeros. Returns 0 or -ENOMEM."""
    cdef int64_t room = max(wanted + 1, 2 * content.room)
    cdef uint8_t *moved
    if wanted >= content.room:
        moved = <uint8_t *> realloc(content.data, <size_t> room)
        if moved == NULL:
            return -ENOMEM
        content.data = moved
        content.room = room
    if wanted > content.size:
        memset(content.data + content.size, 0, <size_t> (wanted - content.size))
    content.size = wanted
    return 0


cdef int put_bytes(Content *content, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil:
    if offset + size > content.size and resize(content, offset + size) < 0:
        return -ENOMEM
    memcpy(content.data + offset, data, <size_t> size)
    return 0


cdef int note_pending(Inode *inode, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil:
    cdef Pending *one = <Pending *> calloc(1, sizeof(Pending))
    if one == NULL:
        return -ENOMEM
    inode.changes += 1
    one.number = inode.changes
    one.offset = offset
    one.size = size
    if size > 0:
        one.data = <uint8_t *> malloc(<size_t> size)
        if one.data == NULL:
            free(one)
            return -ENOMEM
        memcpy(one.data, data, <size_t> size)
    if inode.newest != NULL:
        inode.newest.next = one
    else:
        inode.oldest = one
    inode.newest = one
    return 0


cdef int inode_write(Store *store, Inode *inode, const uint8_t *data, int64_t size, int64_t offset) noexcept nogil:
    cdef int64_t before = inode.now.size
    if size == 0:
        return 0
    if note_pending(inode, data, size, offset) < 0 or put_bytes(&inode.now, data, size, offset) < 0:
        return -ENOMEM
    store.bytes += inode.now.size - before
    inode.warm = True
    return 0


cdef int inode_truncate(Store *store, Inode *inode, int64_t size) noexcept nogil:
    cdef int64_t before = inode.now.size
    if note_pending(inode, NULL, -1, size) < 0 or resize(&inode.now, size) < 0:
        return -ENOMEM
    store.bytes += inode.now.size - before
    return 0


cdef Pending *take_pending(Inode *inode, int64_t until) noexcept nogil:
    """Removes and returns the oldest change if its number is at most `until`. Otherwise returns NULL. The caller must
    free the change."""
    cdef Pending *one = inode.oldest
    if one == NULL or one.number > until:
        return NULL
    inode.oldest = one.next
    if one.next == NULL:
        inode.newest = NULL
    return one


cdef void free_pending(Pending *one) noexcept nogil:
    free(one.data)
    free(one)


cdef int inode_sync(Inode *inode, int64_t until) noexcept nogil:
    cdef Pending *one = take_pending(inode, until)
    cdef int result = 0
    while one != NULL:
        if result == 0 and one.size < 0:
            result = resize(&inode.durable, one.offset)
        elif result == 0:
            result = put_bytes(&inode.durable, one.data, one.size, one.offset)
        free_pending(one)
        one = take_pending(inode, until)
    return result


cdef int inode_fail_sync(Inode *inode, int64_t until, uint64_t *state) noexcept nogil:
    cdef Pending *one = take_pending(inode, until)
    cdef int result = 0
    while one != NULL:
        if result == 0:
            result = survive(inode, one, state)
        free_pending(one)
        one = take_pending(inode, until)
    return result


cdef void inode_flip(Inode *inode, int64_t position, int bit) noexcept nogil:
    if position < inode.now.size:
        inode.now.data[position] ^= <uint8_t> (1 << bit)
    if position < inode.durable.size:
        inode.durable.data[position] ^= <uint8_t> (1 << bit)


# --- names, sorted by path ---

cdef int place_of(const Names *names, const char *path, bint *there) noexcept nogil:
    cdef int low = 0
    cdef int high = names.count
    cdef int middle, order
    there[0] = False
    while low < high:
        middle = (low + high) >> 1
        order = strcmp(names.items[middle].path, path)
        if order == 0:
            there[0] = True
            return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return low


cdef int put_name(Names *names, const char *path, Inode *inode) noexcept nogil:
    """Gives the inode this name, and takes a reference to the inode. An inode that had the name before loses it."""
    cdef bint there
    cdef int at = place_of(names, path, &there)
    cdef Name *items
    cdef char *copied
    inode.refs += 1
    if there:
        inode_release(names.items[at].inode)
        names.items[at].inode = inode
        return 0
    copied = strdup(path)
    if names.count == names.capacity:
        items = <Name *> realloc(names.items, (names.capacity * 2 + 8) * sizeof(Name))
        if items != NULL:
            names.items = items
            names.capacity = names.capacity * 2 + 8
    if copied == NULL or names.count == names.capacity:
        free(copied)
        inode_release(inode)
        return -ENOMEM
    memmove(&names.items[at + 1], &names.items[at], (names.count - at) * sizeof(Name))
    names.items[at].path = copied
    names.items[at].inode = inode
    names.count += 1
    return 0


cdef int drop_name(Names *names, const char *path) noexcept nogil:
    cdef bint there
    cdef int at = place_of(names, path, &there)
    if not there:
        return -ENOENT
    free(names.items[at].path)
    inode_release(names.items[at].inode)
    names.count -= 1
    memmove(&names.items[at], &names.items[at + 1], (names.count - at) * sizeof(Name))
    return 0


cdef void clear_names(Names *names) noexcept nogil:
    while names.count:
        drop_name(names, names.items[names.count - 1].path)
    free(names.items)
    memset(names, 0, sizeof(Names))


cdef bint is_below(const char *path, const char *directory) noexcept nogil:
    cdef size_t size = strlen(directory)
    return strncmp(path, directory, size) == 0 and path[size] == c"/"


cdef int rename_in(Names *names, const char *old, const char *new) noexcept nogil:
    """Renames a file or directory. A directory moves with its contents."""
    cdef Inode *inode
    cdef char *moved
    cdef int i = 0
    cdef int result = 0
    while i < names.count and result == 0:
        if strcmp(names.items[i].path, old) != 0 and not is_below(names.items[i].path, old):
            i += 1
            continue
        inode = names.items[i].inode
        moved = <char *> malloc(strlen(new) + strlen(names.items[i].path) - strlen(old) + 1)
        if moved == NULL:
            return -ENOMEM
        memcpy(moved, new, strlen(new))
        memcpy(moved + strlen(new), names.items[i].path + strlen(old), strlen(names.items[i].path) - strlen(old) + 1)
        inode.refs += 1
        drop_name(names, names.items[i].path)
        result = put_name(names, moved, inode)
        inode_release(inode)
        free(moved)
        i = 0
    return result


# --- changes of names ---

cdef int note_change(Store *store, int kind, const char *path, const char *other, Inode *inode) noexcept nogil:
    cdef Change *change = <Change *> calloc(1, sizeof(Change))
    if change == NULL:
        return -ENOMEM
    change.kind = kind
    change.path = strdup(path)
    change.other = strdup(other) if other != NULL else NULL
    change.inode = inode
    if inode != NULL:
        inode.refs += 1
    if change.path == NULL or (other != NULL and change.other == NULL):
        free_change(change)
        return -ENOMEM
    if store.newest != NULL:
        store.newest.next = change
    else:
        store.oldest = change
    store.newest = change
    return 0


cdef void free_change(Change *change) noexcept nogil:
    free(change.path)
    free(change.other)
    inode_release(change.inode)
    free(change)


cdef int apply(Names *names, const Change *change) noexcept nogil:
    if change.kind == CHANGE_LINK:
        return put_name(names, change.path, change.inode)
    if change.kind == CHANGE_RENAME:
        drop_name(names, change.other)
        return rename_in(names, change.path, change.other)
    drop_name(names, change.path)
    return 0


cdef Inode *store_find(Store *store, const char *path) noexcept nogil:
    cdef bint there
    cdef int at = place_of(&store.now, path, &there)
    return store.now.items[at].inode if there else NULL


cdef int store_link(Store *store, const char *path, bint directory, Inode **made) noexcept nogil:
    cdef Inode *inode = <Inode *> calloc(1, sizeof(Inode))
    cdef int result
    if inode == NULL:
        return -ENOMEM
    inode.refs = 1
    inode.directory = directory
    result = note_change(store, CHANGE_LINK, path, NULL, inode)
    if result == 0:
        result = put_name(&store.now, path, inode)
    inode_release(inode)
    made[0] = inode if result == 0 else NULL
    return result


cdef int store_unlink(Store *store, const char *path) noexcept nogil:
    cdef Inode *inode = store_find(store, path)
    cdef int result
    if inode == NULL:
        return -ENOENT
    result = note_change(store, CHANGE_UNLINK, path, NULL, NULL)
    if result == 0:
        store.bytes -= inode.now.size
        result = drop_name(&store.now, path)
    return result


cdef int store_rename(Store *store, const char *old, const char *new) noexcept nogil:
    cdef Inode *replaced = store_find(store, new)
    cdef int result
    if store_find(store, old) == NULL:
        return -ENOENT
    if strcmp(old, new) == 0:
        return 0
    result = note_change(store, CHANGE_RENAME, old, new, NULL)
    if result == 0:
        if replaced != NULL:
            store.bytes -= replaced.now.size
        result = apply(&store.now, store.newest)
    return result


cdef bint is_in(const char *path, const char *directory) noexcept nogil:
    cdef char *last = strrchr(path, c"/")
    cdef size_t size = strlen(directory) if strcmp(directory, b"/") != 0 else 0
    return last != NULL and <size_t> (last - path) == size and strncmp(path, directory, size) == 0


cdef int store_sync_names(Store *store, const char *directory) noexcept nogil:
    cdef Change *kept = NULL
    cdef Change *last = NULL
    cdef Change *change = store.oldest
    cdef Change *rest
    cdef int result = 0
    while change != NULL:
        rest = change.next
        change.next = NULL
        if result == 0 and is_in(change.path, directory):
            result = apply(&store.durable, change)
            free_change(change)
        else:
            if last != NULL:
                last.next = change
            else:
                kept = change
            last = change
        change = rest
    store.oldest = kept
    store.newest = last
    return result


# --- the cut ---

cdef int survive(Inode *inode, const Pending *one, uint64_t *state) noexcept nogil:
    """Decides at random whether a change of a file survives, and in the case of a torn write, which of its sectors
    survive. Applies the surviving part to the durable content."""
    cdef int64_t at = 0
    cdef int64_t size
    cdef uint64_t fate = agenda_draw(state) % 4  # 0: kept; 1: lost; 2 and 3: torn
    if fate == 1:
        return 0
    if one.size < 0:
        return resize(&inode.durable, one.offset)
    while at < one.size:
        size = SECTOR_BYTES - (one.offset + at) % SECTOR_BYTES
        size = size if size < one.size - at else one.size - at
        if fate == 0 or agenda_draw(state) % 2:
            if put_bytes(&inode.durable, one.data + at, size, one.offset + at) < 0:
                return -ENOMEM
        at += size
    return 0


cdef int settle(Inode *inode, uint64_t *state) noexcept nogil:
    cdef Pending *one = inode.oldest
    cdef int result = 0
    while one != NULL and result == 0:
        result = survive(inode, one, state)
        one = one.next
    forget_pending(inode)
    inode.warm = False
    if result == 0:
        result = resize(&inode.now, inode.durable.size)
    if result == 0 and inode.now.size:
        memcpy(inode.now.data, inode.durable.data, <size_t> inode.now.size)
    return result


cdef int drop_orphans(Names *names) noexcept nogil:
    """Removes the names below a directory whose own name is lost. Names are sorted, so a parent is removed before its
    contents are checked."""
    cdef char *parent
    cdef char *last
    cdef bint there
    cdef int i = 0
    while i < names.count:
        parent = strdup(names.items[i].path)
        if parent == NULL:
            return -ENOMEM
        last = strrchr(parent, c"/")
        there = True
        if last != NULL and last != parent:
            last[0] = 0
            place_of(names, parent, &there)
        free(parent)
        if there:
            i += 1
        else:
            drop_name(names, names.items[i].path)
    return 0


cdef bint share_a_name(const Change *one, const Change *other) noexcept nogil:
    return (strcmp(one.path, other.path) == 0 or (one.other != NULL and strcmp(one.other, other.path) == 0)
            or (other.other != NULL and (strcmp(one.path, other.other) == 0
                                         or (one.other != NULL and strcmp(one.other, other.other) == 0))))


cdef void choose_some(Store *store, uint64_t *state) noexcept nogil:
    """Decides for each change at random whether it survives. If a change survives, all earlier changes that share a
    name with it survive too."""
    cdef Change *change = store.oldest
    cdef Change *before
    cdef bint grown = True
    while change != NULL:
        change.kept = agenda_draw(state) % 2 != 0
        change = change.next
    while grown:
        grown = False
        change = store.oldest
        while change != NULL:
            before = store.oldest
            while change.kept and before != change:
                if not before.kept and share_a_name(before, change):
                    before.kept = grown = True
                before = before.next
            change = change.next


cdef void choose_first(Store *store, uint64_t *state) noexcept nogil:
    cdef Change *change = store.oldest
    cdef uint64_t count = 0
    cdef uint64_t keep
    while change != NULL:
        count += 1
        change = change.next
    keep = agenda_draw(state) % (count + 1)
    change = store.oldest
    while change != NULL:
        change.kept = keep > 0
        keep -= change.kept
        change = change.next


cdef int store_cut(Store *store, uint64_t seed, bint ordered) noexcept nogil:
    cdef uint64_t state = seed
    cdef Change *change
    cdef Change *rest
    cdef int i
    cdef int result = 0
    if ordered:
        choose_first(store, &state)
    else:
        choose_some(store, &state)
    change = store.oldest
    while change != NULL:
        rest = change.next
        if change.kept and result == 0:
            result = apply(&store.durable, change)
        free_change(change)
        change = rest
    store.oldest = store.newest = NULL
    if result == 0:
        result = drop_orphans(&store.durable)
    clear_names(&store.now)
    store.bytes = 0
    for i in range(store.durable.count):
        if result == 0:
            result = settle(store.durable.items[i].inode, &state)
        if result == 0:
            result = put_name(&store.now, store.durable.items[i].path, store.durable.items[i].inode)
        store.bytes += store.durable.items[i].inode.now.size
    return result


cdef void store_free(Store *store) noexcept nogil:
    cdef Change *rest
    while store.oldest != NULL:
        rest = store.oldest.next
        free_change(store.oldest)
        store.oldest = rest
    store.newest = NULL
    clear_names(&store.now)
    clear_names(&store.durable)
