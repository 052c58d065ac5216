"""Requests that Python handles. A handler takes them from the plane's ring and answers each of them once."""

cimport cython

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kafkacore._fast.base.atomics cimport add64, load64
from kafkacore._fast.base.cursor cimport put32
from kafkacore._fast.plane.addresses cimport format_host, format_peer
from kafkacore._fast.plane.answer cimport answer_add_memory
from kafkacore._fast.plane.plane cimport request_post_answer, request_release_frame
from kafkacore._fast.wait.memory cimport Frame, frame_drop, frame_hold, frame_return
from kafkacore._fast.wait.ring cimport ring_is_awaited, ring_take, ring_wake

cdef extern from *:
    """
    #include <Python.h>
    """
    int PyBuffer_FillInfo(
        Py_buffer *view, object owner, void *data, Py_ssize_t size, int read_only, int flags
    ) except -1

cdef enum:
    ANSWER_LIMIT = 0x7FFFFFFF  # the largest value of a size prefix, which is a signed 32-bit integer
    BIG_PART = 32768           # a part of an answer that is larger than this is copied without the GIL
    BATCH = 64                 # one call takes at most this many requests from the ring

cdef int64_t live_inbound = 0  # atomic


def pop(NativePlane plane not None, int most=BATCH) -> list[InboundRequest]:
    """Removes and returns at most `most` requests, but never more than 64, from the plane's ring."""
    plane.check()
    cdef void *items[BATCH]
    cdef int64_t now_ns = plane.plane.env.clock.monotonic_ns(plane.plane.env.clock.self)
    cdef int count = ring_take(plane.plane.ring, items, most if most < BATCH else BATCH)
    cdef int i
    cdef InboundRequest inbound
    cdef list found = []
    if count and ring_is_awaited(plane.plane.ring):
        with nogil:
            ring_wake(plane.plane.ring)
    for i in range(count):
        inbound = InboundRequest.__new__(InboundRequest)
        inbound.request = <Request *> items[i]
        inbound.request.dequeued_ns = now_ns
        inbound.plane = plane
        add64(&live_inbound, 1)
        found.append(inbound)
    return found


def live() -> int:
    """Returns the number of requests that Python has not answered."""
    return load64(&live_inbound)


@cython.no_gc  # the collector must not clear `plane`: a memoryview may later return bytes to the plane's budget
cdef class InboundRequest:
    """One request for a handler. `memoryview(request)` gives access to the request's frame without a copy.

    A handler ends the request with exactly one call of `answer`, `answer_nothing` or `close`. If the object is freed
    without such a call, the connection closes.
    """

    def __dealloc__(self):
        if self.request != NULL:
            self.request.close_after = True
            self.finish()

    cdef void finish(self) noexcept:
        cdef Request *request = self.request
        self.request = NULL
        add64(&live_inbound, -1)
        request.remote_done_ns = request.plane.env.clock.monotonic_ns(request.plane.env.clock.self)
        if request.local_done_ns == 0:
            request.local_done_ns = request.remote_done_ns
        request_post_answer(request)

    cdef int pending(self) except -1:
        if self.request == NULL:
            raise RuntimeError("this request has already been answered")
        return 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.pending()
        if self.request.frame == NULL:
            raise BufferError("this request's frame was released")
        PyBuffer_FillInfo(view, self, self.request.frame.data, self.request.frame.size, 1, flags)
        # The view may exist longer than the request, so it holds a reference to the frame.
        frame_hold(self.request.frame)
        view.internal = self.request.frame

    def __releasebuffer__(self, Py_buffer *view):
        if frame_drop(<Frame *> view.internal):
            with nogil:
                frame_return(<Frame *> view.internal)

    def let_go(self) -> None:
        """Gives the frame's memory back to the plane before the request is answered. If the work of a handler may take
        long, the handler calls this method after it has read the request. Existing views keep the memory until they are
        released."""
        self.pending()
        with nogil:
            request_release_frame(self.request)

    def answer(self, parts, *, bint close=False, int32_t mute_ms=0, int64_t torn_bytes=-1) -> None:
        """Answers the request with the bytes of `parts` (a bytes-like object or a sequence of such objects): header and
        body, without the size prefix. With `torn_bytes`, sends at most this number of bytes, including the size prefix,
        and then closes the connection."""
        self.pending()
        cdef const uint8_t[::1] view
        cdef uint8_t *memory
        cdef int64_t size
        cdef int64_t total = 0
        cdef list all = [parts] if isinstance(parts, (bytes, bytearray, memoryview)) else list(parts)
        for part in all:
            total += len(part)
        if total > ANSWER_LIMIT - 4:
            raise ValueError(f"an answer of {total} bytes is longer than a frame can be ({ANSWER_LIMIT - 4})")
        memory = <uint8_t *> malloc(total + 4)
        if memory == NULL:
            raise MemoryError
        put32(memory, <uint32_t> total)
        total = 4
        for part in all:
            view = part
            size = view.shape[0]
            if size > BIG_PART:
                with nogil:  # this can take long, because the kernel must first supply new pages
                    memcpy(memory + total, &view[0], size)
            elif size:
                memcpy(memory + total, &view[0], size)
            total += size
        self.request.answer.memory = memory
        if torn_bytes >= 0:
            total = min(total, torn_bytes)
            close = True
        answer_add_memory(&self.request.answer, memory, total)  # the first extent always fits
        self.request.close_after = close
        self.request.mute_ms = mute_ms
        self.finish()

    def answer_nothing(self) -> None:
        """Ends the request without an answer, for example for a Produce with acks=0."""
        self.pending()
        self.request.no_answer = True
        self.finish()

    def close(self) -> None:
        """Ends the request and closes its connection."""
        self.pending()
        self.request.close_after = True
        self.request.no_answer = True
        self.finish()

    def local_done(self) -> None:
        """Marks the end of the local work. The time from now until the answer counts as remote time."""
        self.pending()
        self.request.local_done_ns = self.request.plane.env.clock.monotonic_ns(self.request.plane.env.clock.self)

    @property
    def answered(self) -> bool:
        return self.request == NULL

    @property
    def api_key(self) -> int:
        self.pending()
        return self.request.api_key

    @property
    def api_version(self) -> int:
        self.pending()
        return self.request.api_version

    @property
    def correlation_id(self) -> int:
        self.pending()
        return self.request.correlation_id

    @property
    def client_id(self) -> str | None:
        self.pending()
        if self.request.client_id == NULL:
            return None
        return (<const char *> self.request.client_id)[:self.request.client_id_size].decode("utf-8", "replace")

    def head(self, tuple listeners) -> tuple:
        """Returns these fields together: API key, version, correlation id, client id, the element of `listeners` for
        the request's listener, the peer's address without the port, and the time of receipt in ns by the plane's clock.
        The request must still have its frame."""
        self.pending()
        cdef Request *request = self.request
        cdef char host[64]
        cdef object client_id = None
        if request.client_id != NULL:
            client_id = (<const char *> request.client_id)[:request.client_id_size].decode("utf-8", "replace")
        format_host(host, 64, request.address)
        return (
            request.api_key, request.api_version, request.correlation_id, client_id, listeners[request.listener],
            (<bytes> host).decode("ascii"), request.received_ns,
        )

    @property
    def header_size(self) -> int:
        """The offset of the body in the frame."""
        self.pending()
        return self.request.header_size

    @property
    def frame_size(self) -> int:
        self.pending()
        return self.request.frame_bytes

    @property
    def listener(self) -> int:
        """The number of the listener that accepted the connection."""
        self.pending()
        return self.request.listener

    @property
    def peer(self) -> str:
        """The address of the peer as "host:port"."""
        self.pending()
        cdef char text[80]
        format_peer(text, 80, self.request.address, self.request.port)
        return (<bytes> text).decode()

    @property
    def received_ns(self) -> int:
        self.pending()
        return self.request.received_ns
