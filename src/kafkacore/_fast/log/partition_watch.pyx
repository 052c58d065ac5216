"""Implements partition_watch.pxd: waits on an event loop for events in partitions."""

cimport cython

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kafkacore._fast.base.atomics cimport add32, load32
from kafkacore._fast.wait.mail cimport (
    Inbox, inbox_awake, inbox_close, inbox_deliver, inbox_init_in, inbox_may_sleep, inbox_silence,
)
from kafkacore._fast.wait.park cimport Parked, Waiter, park_hold, park_init, park_release
from kafkacore._fast.log.partition cimport (
    WAIT_ACKS, WAIT_ACKS_SYNCED, WAIT_COMMITTED, WAIT_DELETED, WAIT_FETCH, WAIT_FOLLOWER, WAIT_SYNCED, Acknowledgement,
    Partition, partition_hold, partition_release, partition_unwait, partition_wait, partition_wait_for_ack,
)
from kafkacore._fast.log.partition_handle cimport PartitionHandle
from kafkacore._fast.world.environment cimport Environment

FETCH = WAIT_FETCH
FOLLOWER = WAIT_FOLLOWER
ACKS = WAIT_ACKS
COMMITTED = WAIT_COMMITTED
SYNCED = WAIT_SYNCED
ACKS_SYNCED = WAIT_ACKS_SYNCED
DELETED = WAIT_DELETED

cdef int32_t live_watches = 0    # atomic


# A `Watch` lets one request wait for an event in one partition. `parked` is reference-counted; releasing the last
# reference frees the `Watch`.
ctypedef struct Watch:
    Parked parked                # must be the first field, so that its address is the address of the `Watch`
    Waiter waiter
    Partition *partition         # holds a reference
    Post *post
    Watch *next                  # the next one in the list `woken` of its Post
    bint woken

# The part of a `PartitionWatch` that must exist until the last pending wake-up is released.
ctypedef struct Post:
    Inbox inbox
    Watch *woken                 # each `Watch` that was woken and not taken yet, with a reference; oldest first
    Watch *last_woken
    int32_t refs                 # atomic; the `PartitionWatch` and each `Watch` hold a reference


cdef void post_release(Post *post) noexcept nogil:
    if add32(&post.refs, -1) == 0:
        inbox_close(&post.inbox)
        free(post)


cdef void resume_watch(Parked *parked, int why) noexcept nogil:
    cdef Watch *watch = <Watch *> parked
    if watch.woken:
        return
    watch.woken = True
    park_hold(parked)
    watch.next = NULL
    if watch.post.woken != NULL:
        watch.post.last_woken.next = watch
    else:
        watch.post.woken = watch
    watch.post.last_woken = watch


cdef void destroy_watch(Parked *parked) noexcept nogil:
    cdef Watch *watch = <Watch *> parked
    cdef Post *post = watch.post
    partition_release(watch.partition)
    free(watch)
    add32(&live_watches, -1)
    post_release(post)


@cython.no_gc  # `close` needs the members of this object, and disarms tokens that refer back to it
cdef class PartitionWatch:
    """Any number of waits for events in partitions. Each wait belongs to a token. `environment` is the environment of
    the partitions, by default the real one. `fileno` becomes readable when `take` has tokens to return."""
    cdef Post *post
    cdef Environment environment  # kept alive because the inbox belongs to it
    cdef dict armed              # maps each token to the addresses of its Watches
    cdef dict tokens             # maps the address of a `Watch` to its token
    # The directories of all partitions armed so far, because a native reference does not keep the Python objects alive.
    cdef set directories

    def __cinit__(self, Environment environment=None):
        cdef int error
        self.environment = environment
        self.armed = {}
        self.tokens = {}
        self.directories = set()
        self.post = <Post *> calloc(1, sizeof(Post))
        if self.post == NULL:
            raise MemoryError
        error = -inbox_init_in(&self.post.inbox, environment.env.agenda if environment is not None else NULL)
        if error:
            free(self.post)
            self.post = NULL
            raise OSError(error, "no file descriptor is left for an inbox; raise the limit of open files")
        self.post.refs = 1
        inbox_may_sleep(&self.post.inbox)

    def __dealloc__(self):
        self.close()

    def close(self):
        """Disarms all tokens."""
        if self.post == NULL:
            return
        for token in list(self.armed):
            self.disarm(token)
        self.take()
        with nogil:
            post_release(self.post)
        self.post = NULL

    def __len__(self):
        return len(self.armed)

    def fileno(self):
        return self.post.inbox.eventfd

    def arm(self, token, PartitionHandle partition not None, int kind, int64_t at, int64_t generation=-1):
        """Makes `token` wait for a partition. The kinds FETCH (high watermark), COMMITTED (last stable offset) and
        FOLLOWER (log end) wake the token when their offset passes `at`. ACKS (high watermark), SYNCED (synced offset)
        and DELETED (low watermark) wake it when their offset reaches `at`. A new role of the partition wakes it too.
        Returns False and arms nothing if the condition is already satisfied, or if the leadership of `generation` (for
        an acknowledgement) has ended. A token can wait for many partitions."""
        cdef Acknowledgement ack
        cdef Watch *watch = <Watch *> calloc(1, sizeof(Watch))
        cdef bint waits
        if watch == NULL:
            raise MemoryError
        add32(&live_watches, 1)
        add32(&self.post.refs, 1)
        park_init(&watch.parked, &self.post.inbox)
        watch.parked.resume = resume_watch
        watch.parked.destroy = destroy_watch
        self.directories.add(partition.directory)
        watch.post = self.post
        watch.partition = partition.partition
        watch.waiter.parked = &watch.parked
        watch.waiter.kind = kind
        watch.waiter.at = at
        with nogil:
            partition_hold(watch.partition)
            if generation < 0:
                waits = partition_wait(watch.partition, &watch.waiter)
            else:
                ack = Acknowledgement(at, generation, kind)
                waits = partition_wait_for_ack(watch.partition, &ack, &watch.waiter)
            if not waits:
                park_release(&watch.parked)
        if not waits:
            return False
        self.armed.setdefault(token, []).append(<size_t> watch)
        self.tokens[<size_t> watch] = token
        return True

    def disarm(self, token):
        """Ends all waits of `token`, so that nothing wakes it."""
        cdef Watch *watch
        for address in self.armed.pop(token, ()):
            watch = <Watch *> <size_t> address
            del self.tokens[address]
            with nogil:
                partition_unwait(watch.partition, &watch.waiter)
                park_release(&watch.parked)

    def take(self):
        """Returns the tokens that were woken, in the order of their wake-ups, and disarms them. After this, `fileno`
        signals the next wake-up."""
        cdef Watch *watch
        cdef dict found = {}
        with nogil:
            inbox_awake(&self.post.inbox)
            inbox_silence(&self.post.inbox)
            while True:
                inbox_deliver(&self.post.inbox)
                if inbox_may_sleep(&self.post.inbox):
                    break
        while self.post.woken != NULL:
            watch = self.post.woken
            self.post.woken = watch.next
            if <size_t> watch in self.tokens:
                found[self.tokens[<size_t> watch]] = None
            # Releasing the `Watch` may release the last reference to a partition. Then this thread closes the
            # partition's files and takes the lock of their disk. So this thread first releases the GIL.
            with nogil:
                park_release(&watch.parked)
        for token in found:
            self.disarm(token)
        return list(found)


def live():
    """Returns the number of Watches in this process that have not been freed."""
    return load32(&live_watches)
