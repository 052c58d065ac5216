"""The order of native locks, which debug builds check at each lock.

A thread that holds a lock may take only locks of a higher rank, and none while it holds a leaf. No thread may take a
lock while it holds the GIL, because the holder of the lock may wait for the GIL. A violation prints both names and
aborts. docs/design.md has the same order in words.
"""

cdef enum:
    RANK_ACCEPTOR = 1         # Acceptor.lock: the listeners of an acceptor
    RANK_LINKS                # Reactor.links_lock: the planes that a processor serves
    RANK_FETCH_SESSIONS       # FetchSessions.lock: the cache of fetch sessions
    RANK_FETCH_SESSION        # FetchSession.lock: the partitions of one session
    RANK_LOG                  # Log.lock: one partition with its log, high watermark and waiters
    RANK_ADDRESSES            # from here on leaves. Plane.addresses_lock: connections by IP address
    RANK_CHANGES              # Changes.lock: the partitions that changed for one fetch session
    RANK_QUOTA                # Quota.lock: the bytes of throttled partitions, by time
    RANK_ISR_EDGES            # IsrEdges.lock: partitions whose ISR may have to change; the brokers that may join one
    RANK_CREW                 # Crew.lock: the queue of the I/O pool, and that of the committers
    RANK_BUDGET               # Budget.lock: request memory, and who waits for it
    RANK_RING                 # Ring.lock: who waits for room on the ring
    RANK_GROUPS               # StableGroups.lock: members of groups that heartbeat natively
    RANK_SIMULATED_DISK       # SimDisk.lock: the files of a simulated disk
    LOCK_RANKS
    FIRST_LEAF = RANK_ADDRESSES

# For base/sync.pxd. A release build never calls them.
cdef void lock_order_enter(const void *lock, int rank) noexcept nogil
cdef void lock_order_leave(const void *lock) noexcept nogil
cdef void lock_order_wait(const void *lock) noexcept nogil      # before a wait for a condition, which releases the lock
cdef void lock_order_pause() noexcept nogil                     # before a fiber lets others of its thread run
cdef bint lock_is_mine(const void *lock) noexcept nogil
