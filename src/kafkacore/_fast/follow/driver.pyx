"""Implements driver.pxd: drives a fetcher on a processor."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kafkacore._fast.base.api_keys cimport FETCH, LIST_OFFSETS
from kafkacore._fast.base.atomics cimport add32, load32, store32
from kafkacore._fast.base.cursor cimport (
    Reader, Writer, read_i32, read_uvarint, reader_init, remaining, take, write_i8, write_i16, write_i32, write_raw,
)
from kafkacore._fast.follow.absorb cimport absorb_begin, absorb_more
from kafkacore._fast.follow.ask cimport fetcher_ask, fetcher_choose_version, fetcher_would_ask
from kafkacore._fast.follow.fetcher cimport (
    fetcher_advance, fetcher_connected, fetcher_count, fetcher_due_ms, fetcher_failed, fetcher_new, fetcher_stop_all,
)
from kafkacore._fast.follow.followed cimport ASK_FETCH, ASK_NOTHING, fetcher_release
from kafkacore._fast.log.partition cimport partition_release
from kafkacore._fast.plane.driven cimport Driven, driven_join, driven_leave, driven_make_ready
from kafkacore._fast.plane.outbound cimport (
    LOST_MALFORMED, LOST_NO_MEMORY, LOST_TIMED_OUT, outbound_answer, outbound_attach, outbound_begin,
    outbound_done, outbound_drop, outbound_free, outbound_init, outbound_send,
)
from kafkacore._fast.wait.mail cimport inbox_close, inbox_init, inbox_post
from kafkacore._fast.wait.timer cimport wheel_add, wheel_cancel

cdef enum:
    LIST_OFFSETS_FLEXIBLE = 6       # Fetch is flexible in every version that a follower sends
    END_LOOK_MS = 1                 # the time between two checks whether mail or jobs still use a shut driver

cdef int32_t live_drivers = 0       # atomic


def live() -> int:
    """Returns the number of drivers that have not been freed."""
    return load32(&live_drivers)


# --- life ---

cdef Driver *driver_new(Reactor *reactor, Plane *plane, const FetcherLimits *limits, int64_t most_answer_bytes,
                        int *error) noexcept nogil:
    cdef Driver *d = <Driver *> calloc(1, sizeof(Driver))
    error[0] = -ENOMEM
    if d == NULL:
        return NULL
    error[0] = inbox_init(&d.bell)
    if error[0] == 0:
        error[0] = outbound_init(&d.out, reactor, plane, most_answer_bytes)
        if error[0] == 0:
            d.fetcher = fetcher_new(limits, &reactor.inbox, NULL, error)
            if d.fetcher != NULL:
                prepare(d)
                return d
            outbound_free(&d.out)
        inbox_close(&d.bell)
    free(d)
    return NULL


cdef void prepare(Driver *d) noexcept nogil:
    d.refs = 1
    d.fetcher.driver = d
    d.fetcher.on_mail = on_mail
    d.out.driven.go_on = go_on
    d.out.driven.shut = on_shut
    d.out.answered = on_answer
    d.out.lost = on_lost
    d.timer.fire = on_time
    d.news.deliver = news_read
    add32(&live_drivers, 1)


cdef void driver_release(Driver *d) noexcept nogil:
    cdef int32_t i
    if add32(&d.refs, -1) != 0:
        return
    for i in range(d.event_count):
        partition_release(d.events[i].partition)
    if load32(&d.link) != LINK_ENDED:
        outbound_free(&d.out)
    fetcher_release(d.fetcher)
    inbox_close(&d.bell)
    free(d)
    add32(&live_drivers, -1)


cdef void driver_begin(Driver *d) noexcept nogil:
    if d.out.driven.has_joined or d.is_shut:
        return
    add32(&d.refs, 1)
    driven_join(&d.out.reactor.driven, &d.out.driven)


cdef void driver_shut(Driver *d) noexcept nogil:
    if d.is_shut:
        return
    d.is_shut = True
    wheel_cancel(&d.out.reactor.wheel, &d.timer)
    fetcher_failed(d.fetcher)
    fetcher_stop_all(d.fetcher)
    outbound_drop(&d.out)
    if d.out.driven.has_joined:
        driver_look(d)
    else:
        end(d)


cdef void on_shut(Driven *driven) noexcept nogil:
    driver_shut(<Driver *> driven)


cdef void end_when_free(Driver *d) noexcept nogil:
    """Frees the driver when no mail and no job of an I/O pool points to a partition of the fetcher any longer."""
    if load32(&d.fetcher.refs) > 1:
        wheel_add(&d.out.reactor.wheel, &d.timer, d.out.reactor.wheel.now_ms + END_LOOK_MS)
        return
    driven_leave(&d.out.reactor.driven, &d.out.driven)
    end(d)
    driver_release(d)


cdef void end(Driver *d) noexcept nogil:
    outbound_free(&d.out)
    tell(d, LINK_ENDED)


# --- news for Python ---

cdef void news_read(Mail *mail) noexcept nogil:
    """Runs on Python's thread, which reads the counters afterwards."""


cdef void tell(Driver *d, int32_t link) noexcept nogil:
    store32(&d.link, link)
    inbox_post(&d.bell, &d.news)


cdef void pass_events(Driver *d) noexcept nogil:
    cdef Fetcher *f = d.fetcher
    if f.event_count == 0 or load32(&d.event_count) != 0:
        return
    memcpy(d.events, f.events, <size_t> f.event_count * sizeof(Event))
    store32(&d.event_count, f.event_count)
    f.event_count = 0
    inbox_post(&d.bell, &d.news)


# --- the connection ---

cdef void driver_attach(Driver *d, int handle, int16_t fetch_version, int16_t offsets_version,
                        int64_t broker_epoch) noexcept nogil:
    cdef int error
    if d.is_shut or d.out.driven.handle >= 0:
        d.out.plane.env.transport.close(d.out.plane.env.transport.self, handle)
        return
    d.fetcher.broker_epoch = broker_epoch
    fetcher_connected(d.fetcher, fetch_version, offsets_version)
    error = outbound_attach(&d.out, handle)
    if error < 0:
        on_lost(&d.out, -error)
        return
    d.has_answered = False
    tell(d, LINK_UP)
    driver_look(d)


cdef void driver_lose(Driver *d, int why) noexcept nogil:
    if d.out.driven.handle >= 0:
        fetcher_failed(d.fetcher)  # must precede the release of the answer's bytes
        outbound_drop(&d.out)
        on_lost(&d.out, why)


cdef void on_lost(Outbound *out, int why) noexcept nogil:
    cdef Driver *d = <Driver *> out
    if d.is_shut:
        return
    fetcher_failed(d.fetcher)
    store32(&d.lost_why, why)
    add32(&d.losses, 1)
    tell(d, LINK_IDLE)
    driver_look(d)


# --- turns of the processor ---

cdef void driver_look(Driver *d) noexcept nogil:
    driven_make_ready(&d.out.reactor.driven, &d.out.driven)


cdef void on_mail(Fetcher *f) noexcept nogil:
    driver_look(<Driver *> f.driver)


cdef void on_time(Timer *timer) noexcept nogil:
    cdef Driver layout  # used only to compute the offset of the `timer` field
    cdef Driver *d = <Driver *> (<char *> timer - (<char *> &layout.timer - <char *> &layout))
    cdef int64_t now_ms = d.out.reactor.wheel.now_ms
    if d.out.awaits and now_ms >= d.asked_ms + d.timeout_ms:
        driver_lose(d, LOST_TIMED_OUT)
    driver_look(d)


cdef void go_on(Driven *driven) noexcept nogil:
    """Applies a part of the answer. When the whole answer has been applied, sends the next request."""
    cdef Driver *d = <Driver *> driven
    cdef Fetcher *f = d.fetcher
    cdef int64_t now_ms = d.out.reactor.wheel.now_ms
    if d.is_shut:
        end_when_free(d)
        return
    f.now_ms = now_ms
    if d.out.is_whole:
        if not absorb_more(f, d.out.plane.turn_bytes):
            driver_look(d)
            return
        outbound_done(&d.out)
    fetcher_advance(f, now_ms)
    if now_ms >= d.counted_ms + COUNTED_EVERY_MS:
        d.counted_ms = now_ms
        fetcher_count(f)
    if d.out.driven.handle >= 0:
        ask(d, now_ms)
    elif f.count and load32(&d.link) == LINK_IDLE:
        tell(d, LINK_WANTED)
    pass_events(d)
    set_timer(d, fetcher_due_ms(f), now_ms)  # `fetcher_ask` may have delayed some partitions


cdef void set_timer(Driver *d, int64_t due_ms, int64_t now_ms) noexcept nogil:
    if d.out.awaits and (due_ms < 0 or due_ms > d.asked_ms + d.timeout_ms):
        due_ms = d.asked_ms + d.timeout_ms
    if d.rests_until_ms > now_ms and (due_ms < 0 or due_ms > d.rests_until_ms):
        due_ms = d.rests_until_ms
    if due_ms < 0:
        wheel_cancel(&d.out.reactor.wheel, &d.timer)
    else:
        wheel_add(&d.out.reactor.wheel, &d.timer, due_ms)


# --- requests and answers ---

cdef void ask(Driver *d, int64_t now_ms) noexcept nogil:
    cdef Fetcher *f = d.fetcher
    cdef Writer *out
    cdef int asked
    if f.under_way != ASK_NOTHING or now_ms < d.rests_until_ms:
        return
    out = outbound_begin(&d.out)
    write_header(d, out)
    asked = fetcher_ask(f, out)
    if asked == ASK_NOTHING:
        out.size = 0
        if f.count == 0:
            outbound_drop(&d.out)
            tell(d, LINK_IDLE)
        return
    if asked < 0 or out.bad:
        driver_lose(d, LOST_NO_MEMORY)
        return
    d.asked_ms = now_ms
    outbound_send(&d.out)


cdef void write_header(Driver *d, Writer *out) noexcept nogil:
    cdef Fetcher *f = d.fetcher
    cdef bint fetches = fetcher_would_ask(f) == ASK_FETCH
    if fetches:
        fetcher_choose_version(f)
    d.correlation_id = (d.correlation_id + 1) & 0x7FFFFFFF
    write_i16(out, FETCH if fetches else LIST_OFFSETS)
    write_i16(out, f.fetch_version if fetches else f.offsets_version)
    write_i32(out, d.correlation_id)
    write_i16(out, d.client_id_size)
    write_raw(out, d.client_id, <size_t> d.client_id_size)
    if fetches or f.offsets_version >= LIST_OFFSETS_FLEXIBLE:
        write_i8(out, 0)  # no tagged fields


cdef void on_answer(Outbound *out) noexcept nogil:
    cdef Driver *d = <Driver *> out
    cdef Fetcher *f = d.fetcher
    cdef Reader reader
    cdef size_t size
    cdef uint8_t *frame = outbound_answer(out, &size)
    cdef int16_t error = 0
    reader_init(&reader, frame, size)
    if read_i32(&reader) != d.correlation_id:
        driver_lose(d, LOST_MALFORMED)
        return
    if f.under_way == ASK_FETCH or f.offsets_version >= LIST_OFFSETS_FLEXIBLE:
        skip_tags(&reader)
    f.now_ms = d.out.reactor.wheel.now_ms
    if reader.bad or absorb_begin(f, reader.pos, remaining(&reader), &error) != 0:
        driver_lose(d, LOST_MALFORMED)
        return
    note_refusal(d, error)
    go_on(&out.driven)


cdef void note_refusal(Driver *d, int16_t error) noexcept nogil:
    """Counts an answer with a top-level error. After the first one, the next request begins a new session at once,
    because leaders may drop sessions at any time. A second consecutive answer of this kind causes a pause."""
    if error == 0:
        store32(&d.refusals, 0)
        if not d.has_answered:
            d.has_answered = True
            add32(&d.answered, 1)
            inbox_post(&d.bell, &d.news)
        return
    store32(&d.refusal, error)
    if add32(&d.refusals, 1) > 1:
        d.rests_until_ms = d.out.reactor.wheel.now_ms + d.fetcher.limits.backoff_ms
        inbox_post(&d.bell, &d.news)


cdef void skip_tags(Reader *reader) noexcept nogil:
    cdef uint32_t count = read_uvarint(reader)
    while count and not reader.bad:
        read_uvarint(reader)
        take(reader, read_uvarint(reader))
        count -= 1
