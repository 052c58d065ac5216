"""The order in which threads must take native locks. Debug builds check the order each time a thread takes a lock.

A thread that holds a lock may take only locks of a higher rank. A thread that holds a leaf lock may take no other lock.
No thread may take a native lock while it holds the GIL, because the holder of the lock may be waiting for the GIL.
After a violation, the check prints the names of both locks and aborts the process. docs/design.md has the same order in
words.
"""

# The comment on each rank names a lock and the data that the lock guards.
cdef enum:
    RANK_ACCEPTOR = 1         # Acceptor.lock: the listeners of an acceptor
    RANK_LINKS                # Reactor.links_lock: the planes that a processor serves
    RANK_FETCH_SESSIONS       # FetchSessions.lock: the cache of fetch sessions
    RANK_FETCH_SESSION        # FetchSession.lock: the partitions of one session
    RANK_LOG                  # Log.lock: one partition with its log, high watermark and waiters
    # Locks of this rank and of all higher ranks are leaf locks.
    RANK_ADDRESSES            # Plane.addresses_lock: the number of connections from each IP address
    RANK_CHANGES              # Changes.lock: the changed partitions of one fetch session
    RANK_QUOTA                # Quota.lock: the sizes and times of recent transfers of throttled partitions
    RANK_ISR_EDGES  # IsrEdges.lock: partitions whose ISR may have to change, and the brokers that may join an ISR
    RANK_CREW                 # Crew.lock: the queue of the I/O threads, and the queue of the committers
    RANK_BUDGET               # Budget.lock: request memory, and the connections that wait for memory
    RANK_RING                 # Ring.lock: the processors that wait for room on a ring (wait/ring.pxd)
    RANK_GROUPS               # StableGroups.lock: members of the groups whose heartbeats native code answers
    RANK_SIMULATED_DISK       # SimDisk.lock: the files of a simulated disk
    LOCK_RANKS
    FIRST_LEAF = RANK_ADDRESSES

# base/sync.pxd calls these functions, and only in debug builds.
cdef void lock_order_enter(const void *lock, int rank) noexcept nogil
cdef void lock_order_leave(const void *lock) noexcept nogil
# Call this before the thread waits for a condition, because the wait releases the lock.
cdef void lock_order_wait(const void *lock) noexcept nogil
cdef void lock_order_pause() noexcept nogil  # call it before a fiber lets the other fibers of its thread run
cdef bint lock_is_mine(const void *lock) noexcept nogil
