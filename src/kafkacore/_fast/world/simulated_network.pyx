"""Implements the transport that misbehaves. simulated_network.pxd has the contract."""

from libc.errno cimport EAGAIN, ECONNRESET
from libc.stdint cimport int64_t, uint64_t

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.world.environment cimport Disk, Environment, IoVec

cdef enum:
    PARTS = 8                  # a shortened send has at most this many parts


cdef inline uint64_t draw(Trouble *trouble) noexcept nogil:
    """Returns splitmix64 of a counter that all threads share."""
    cdef uint64_t z = <uint64_t> add64(<int64_t *> &trouble.state, <int64_t> 0x9E3779B97F4A7C15u)
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9u
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBu
    return z ^ (z >> 31)


cdef int64_t strike(Trouble *trouble) noexcept nogil:
    """Decides whether this call fails. Returns 0, or -errno if it fails."""
    cdef uint64_t number = draw(trouble)
    add64(&trouble.calls, 1)
    if number < trouble.break_below:
        add64(&trouble.troubled, 1)
        return -ECONNRESET
    if draw(trouble) < trouble.again_below:
        add64(&trouble.troubled, 1)
        return -EAGAIN
    return 0


cdef inline size_t shorten(Trouble *trouble, size_t size) noexcept nogil:
    cdef size_t most = <size_t> (draw(trouble) % <uint64_t> trouble.most_bytes) + 1
    return size if size < most else most


cdef int64_t troubled_recv(void *self, int handle, void *into, size_t size) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    cdef int64_t error = strike(trouble)
    return error if error else trouble.real.recv(trouble.real.self, handle, into, shorten(trouble, size))


cdef int64_t troubled_send(void *self, int handle, const IoVec *parts, int count, bint more) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    cdef IoVec cut[PARTS]
    cdef int64_t error = strike(trouble)
    cdef size_t left
    cdef int i = 0
    if error:
        return error
    left = shorten(trouble, trouble.most_bytes)
    while i < count and i < PARTS and left:
        cut[i] = parts[i]
        if cut[i].iov_len > left:
            cut[i].iov_len = left
        left -= cut[i].iov_len
        i += 1
    return trouble.real.send(trouble.real.self, handle, cut, i, False)


cdef int64_t troubled_send_file(
    void *self, int handle, const Disk *disk, int file, int64_t offset, size_t size
) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    cdef int64_t error = strike(trouble)
    if error:
        return error
    return trouble.real.send_file(trouble.real.self, handle, disk, file, offset, shorten(trouble, size))


cdef int64_t troubled_pending(void *self, int handle) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    return trouble.real.pending(trouble.real.self, handle)


cdef int troubled_want(void *self, int handle) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    return trouble.real.want(trouble.real.self, handle)


cdef void troubled_close(void *self, int handle) noexcept nogil:
    cdef Trouble *trouble = <Trouble *> self
    trouble.real.close(trouble.real.self, handle)


cdef class TroubledNetwork:
    """A transport that misbehaves as a seed determines. A read or write moves at most `most_bytes`. `again_share` (0 to
    1) is the share of calls that fail with EAGAIN, as if the socket were empty or full. `break_share` is the share of
    calls that fail as if the connection were broken.
    """

    def __cinit__(self, uint64_t seed, *, int64_t most_bytes=1 << 20, double again_share=0.0, double break_share=0.0):
        cdef Environment real = Environment()
        if most_bytes < 1:
            raise ValueError("at least one byte must get through")
        self.trouble.real = real.env.transport
        self.trouble.state = seed
        self.trouble.most_bytes = most_bytes
        self.trouble.again_below = <uint64_t> (again_share * 18446744073709549568.0)
        self.trouble.break_below = <uint64_t> (break_share * 18446744073709549568.0)

    def install(self, Environment environment not None) -> Environment:
        """Makes this object the transport of the environment. Call this method before the environment is used. Returns
        the environment."""
        environment.env.transport.self = &self.trouble
        environment.env.transport.recv = troubled_recv
        environment.env.transport.send = troubled_send
        environment.env.transport.send_file = troubled_send_file
        environment.env.transport.pending = troubled_pending
        environment.env.transport.want = troubled_want
        environment.env.transport.close = troubled_close
        environment.keep = (environment.keep, self)
        return environment

    @property
    def calls(self) -> int:
        return load64(&self.trouble.calls)

    @property
    def troubled(self) -> int:
        """The number of calls that failed on purpose."""
        return load64(&self.trouble.troubled)
