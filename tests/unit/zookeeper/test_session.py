"""The state machine of a session, driven step by step: states, limits, incomplete requests and malformed answers."""

import struct
from random import Random

import pytest

from kafkacore.runtime.sampling import Distribution
from kafkacore.simulation import zookeeper_wire as wire
from kafkacore.zookeeper import jute
from kafkacore.zookeeper.operations import Code, EventType, Exists, GetChildren, GetData, Multi, Result, SetData, Stat
from kafkacore.zookeeper.session import (
    Call,
    ClientSettings,
    Connect,
    Disconnect,
    Finished,
    Send,
    Session,
    SessionState,
    StateChanged,
)

SERVERS = [("one", 1), ("two", 2)]
STAT = Stat(5, 6, 7, 8, 1, 0, 0, 0, 3, 0, 5)
PASSWORD = bytes(range(16))


class Driver:
    """Feeds events to a session and collects its effects."""

    def __init__(self, chroot="", **settings):
        self.latency_ms = Distribution()
        self.session = Session(SERVERS, chroot, ClientSettings(**settings), Random(1), self.latency_ms)
        self.now = 0.0
        self.states, self.connects, self.sent, self.finished, self.events = [], [], [], [], []
        self.drops = 0

    def drain(self):
        effects, self.session.effects = self.session.effects, []
        for effect in effects:
            match effect:
                case StateChanged(state, _):
                    self.states.append(state.name)
                case Connect(host, _):
                    self.connects.append(host)
                case Send(data):
                    self.sent += frames(data)
                case Finished(call):
                    self.finished.append((call.owner, [each.code.name for each in call.results]))
                case Disconnect():
                    self.drops += 1
                case event:
                    self.events.append(event)

    def open(self):
        self.session.open(self.now)
        self.drain()
        return self

    def greeted(self, timeout_ms=6_000, session_id=77):
        self.session.link_made(self.now)
        self.receive(wire.encode_connected(timeout_ms, session_id, PASSWORD))
        return self

    def receive(self, *data):
        self.session.received(b"".join(data), self.now)
        self.drain()

    def submit(self, owner, *operations):
        self.session.submit(Call(operations, owner), self.now)
        self.drain()

    def lose(self):
        self.session.link_lost(self.now)
        self.drain()

    def pass_time(self, ms):
        """Advances the time, and calls the session at each deadline."""
        end = self.now + ms
        while (deadline := self.session.deadline) is not None and deadline <= end:
            self.now = deadline
            self.session.time_passed(self.now)
            self.drain()
        self.now = end

    def numbers(self):
        """Returns the numbers of the requests in the order in which they were sent."""
        return [struct.unpack_from(">i", frame)[0] for frame in self.sent]

    def answer(self, xid, operation, result, zxid=9):
        self.receive(wire.encode_answer(xid, zxid, operation, result))


def frames(data):
    found = []
    while data:
        (length,) = struct.unpack_from(">i", data)
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def test_session_goes_through_the_states_of_the_redesign_when_its_link_breaks_and_it_expires():
    driver = Driver().open().greeted()
    driver.lose()
    driver.session.link_made(driver.now)
    driver.receive(wire.encode_connected(0, 0, bytes(16)))
    assert driver.states == ["CONNECTING", "CONNECTED", "CONNECTING", "CLOSED"]
    assert driver.session.deadline is None


@pytest.mark.parametrize(
    ("start", "target"),
    [
        (SessionState.NOT_CONNECTED, SessionState.CONNECTED),
        (SessionState.CLOSED, SessionState.CONNECTING),
        (SessionState.AUTH_FAILED, SessionState.CONNECTED),
        (SessionState.NOT_CONNECTED, SessionState.CLOSED),
    ],
)
def test_session_refuses_a_transition_when_the_redesign_does_not_name_it(start, target):
    session = Session(SERVERS, "", ClientSettings(), Random(1), Distribution())
    session.state = start
    with pytest.raises(AssertionError):
        session._become(target)


def test_session_tries_every_server_and_then_pauses_when_none_takes_it():
    driver = Driver().open()
    driver.lose()
    assert driver.connects == ["one", "two"]
    driver.lose()
    assert driver.connects == ["one", "two"]
    driver.pass_time(1_000)
    assert driver.connects == ["one", "two", "one"]


def test_session_names_itself_and_the_last_zxid_when_it_connects_again():
    driver = Driver().open().greeted()
    driver.submit("read", Exists("/a"))
    driver.answer(1, Exists("/a"), Result(Code.OK, STAT), zxid=1234)
    driver.lose()
    driver.session.link_made(driver.now)
    driver.drain()
    assert wire.decode_hello(driver.sent[-1]) == (1234, 18_000, 77, PASSWORD)


def test_call_has_an_unknown_outcome_when_the_link_breaks_after_any_of_it_was_sent():
    driver = Driver().open().greeted()
    driver.submit("cut off", SetData("/a", b""), SetData("/b", b""))
    driver.answer(1, SetData("/a", b""), Result(Code.OK, STAT))
    driver.lose()
    driver.submit("waits", SetData("/c", b""))
    assert driver.finished == [("cut off", ["OK", "CONNECTION_LOSS"])]
    assert driver.states[-1] == "CONNECTING"  # the state change is reported before the results
    driver.greeted()
    driver.answer(3, SetData("/c", b""), Result(Code.OK, STAT))
    assert driver.finished[1:] == [("waits", ["OK"])]


def test_latency_of_each_request_is_measured_when_its_answer_comes():
    driver = Driver().open().greeted()
    driver.submit("two", Exists("/a"), Exists("/b"))
    driver.now += 3
    driver.answer(1, Exists("/a"), Result(Code.OK, STAT))
    driver.now += 4
    driver.answer(2, Exists("/b"), Result(Code.NO_NODE))
    driver.submit("cut off", Exists("/c"))
    driver.lose()
    assert driver.latency_ms.total == 3 + 7
    assert sum(driver.latency_ms.counts) == 2, "a request without an answer has no latency"


def test_calls_end_with_session_expired_when_they_were_never_sent():
    driver = Driver().open()
    driver.submit("early", Exists("/a"))
    driver.session.link_made(driver.now)
    driver.receive(wire.encode_connected(0, 0, bytes(16)))
    driver.submit("late", Exists("/a"))
    assert driver.finished == [("early", ["SESSION_EXPIRED"]), ("late", ["SESSION_EXPIRED"])]


def test_session_sends_no_more_than_its_bound_when_the_server_does_not_answer():
    driver = Driver(max_outstanding_bytes=1_000).open().greeted()
    driver.submit("many", *[SetData("/a", bytes(200))] * 100)
    first = len(driver.sent) - 1
    assert 4 <= first <= 6
    assert driver.session.outstanding_bytes <= 1_000 + 250
    for xid in range(1, 101):
        driver.answer(xid, SetData("/a", b""), Result(Code.OK, STAT))
    assert driver.finished == [("many", ["OK"] * 100)]
    assert driver.session.outstanding_bytes == 0


def test_rest_of_a_call_is_cut_off_when_part_of_it_was_not_yet_sent():
    driver = Driver(max_outstanding_bytes=1_000).open().greeted()
    driver.submit("many", *[SetData("/a", bytes(200))] * 10)
    driver.answer(1, SetData("/a", b""), Result(Code.OK, STAT))
    driver.lose()
    assert driver.finished == [("many", ["OK"] + ["CONNECTION_LOSS"] * 9)]
    driver.greeted()
    assert len(driver.numbers()) == driver.numbers().index(0, 1) + 1, "no part of the request may be sent again"


def test_operation_is_refused_unsent_when_it_is_too_large_or_its_path_is_not_absolute():
    driver = Driver(max_request_bytes=1_000).open().greeted()
    driver.submit("odd", SetData("/a", bytes(2_000)), Exists("b"), Exists("/\ud800"), Exists("/a"))
    driver.answer(4, Exists("/a"), Result(Code.NO_NODE))
    assert driver.finished == [("odd", ["MARSHALLING_ERROR", "BAD_ARGUMENTS", "BAD_ARGUMENTS", "NO_NODE"])]
    assert len(driver.sent) == 2


def test_session_pings_and_then_leaves_a_server_when_it_is_silent():
    driver = Driver().open().greeted(timeout_ms=6_000)
    driver.pass_time(3_999)
    assert driver.numbers()[1:] == [jute.PING_XID]
    assert driver.drops == 0
    driver.pass_time(1)
    assert driver.drops == 1
    assert driver.states[-1] == "CONNECTING"
    assert driver.connects == ["one", "two"]


def test_session_stays_when_its_pings_are_answered():
    driver = Driver().open().greeted(timeout_ms=6_000)
    for _ in range(10):
        driver.pass_time(2_000)
        driver.receive(wire.encode_answer(jute.PING_XID, 3, None, Result(Code.OK)))
    assert driver.states == ["CONNECTING", "CONNECTED"]
    assert driver.session.last_zxid == 3


def test_session_leaves_a_server_when_it_is_read_only():
    driver = Driver().open()
    driver.session.link_made(driver.now)
    greeting = wire.encode_connected(6_000, 5, PASSWORD)[:-1] + b"\1"
    driver.receive(greeting)
    assert driver.drops == 1
    assert driver.states == ["CONNECTING"]
    assert driver.session.session_id == 0
    assert driver.connects == ["one", "two"]


def test_session_ends_when_the_server_refuses_its_authentication():
    driver = Driver(digest=("alice", "secret")).open().greeted()
    driver.submit("sent", Exists("/a"))
    driver.receive(wire.encode_answer(jute.AUTH_XID, 0, None, Result(Code.AUTH_FAILED)))
    driver.submit("later", Exists("/a"))
    assert driver.states[-1] == "AUTH_FAILED"
    assert driver.finished == [("sent", ["CONNECTION_LOSS"]), ("later", ["AUTH_FAILED"])]


def watch_everything(driver):
    operations = GetData("/c/data", watch=True), Exists("/c/absent", watch=True), GetChildren("/c/list", watch=True)
    driver.submit("watch", *[each._replace(path=each.path[2:]) for each in operations])
    driver.answer(1, operations[0], Result(Code.OK, (b"", STAT)), zxid=40)
    driver.answer(2, operations[1], Result(Code.NO_NODE), zxid=41)
    driver.answer(3, operations[2], Result(Code.OK, ([], STAT)), zxid=42)


def test_watches_are_set_again_under_the_chroot_when_the_session_reconnects():
    driver = Driver("/c").open().greeted()
    watch_everything(driver)
    driver.lose()
    driver.sent.clear()
    driver.greeted()
    xid, request = wire.decode_request(driver.sent[1])
    assert xid == jute.SET_WATCHES_XID
    assert request == wire.SetWatches(42, ["/c/data"], ["/c/absent"], ["/c/list"])


def test_watches_are_not_set_again_when_they_have_fired():
    driver = Driver("/c").open().greeted()
    watch_everything(driver)
    for kind, path in (
        (EventType.DELETED, "/c/data"),
        (EventType.CREATED, "/c/absent"),
        (EventType.DELETED, "/c/list"),
    ):
        driver.receive(wire.encode_event(jute.WatchEvent(kind, path)))
    assert [(event.type.name, event.path) for event in driver.events] == [
        ("DELETED", "/data"), ("CREATED", "/absent"), ("DELETED", "/list"),
    ]  # fmt: skip
    driver.lose()
    driver.sent.clear()
    driver.greeted()
    assert len(driver.sent) == 1


def test_watches_take_several_requests_when_their_paths_are_long():
    driver = Driver().open().greeted()
    reads = [GetData(f"/{number:06d}" + "x" * 1_000, watch=True) for number in range(300)]
    driver.submit("watch", *reads)
    for xid, read in enumerate(reads, 1):
        driver.answer(xid, read, Result(Code.OK, (b"", STAT)))
    driver.lose()
    driver.sent.clear()
    driver.greeted()
    requests = [wire.decode_request(frame)[1] for frame in driver.sent[1:]]
    assert len(requests) == 3
    assert [path for each in requests for path in each.data] == [read.path for read in reads]


def test_closing_waits_for_requests_under_way_and_refuses_the_rest():
    driver = Driver().open().greeted()
    driver.submit("before", Exists("/a"))
    driver.session.close(driver.now)
    driver.submit("after", Exists("/a"))
    driver.answer(1, Exists("/a"), Result(Code.NO_NODE))
    driver.answer(2, None, Result(Code.OK))
    assert driver.finished == [("after", ["SESSION_EXPIRED"]), ("before", ["NO_NODE"])]
    assert driver.states[-1] == "CLOSED"


@pytest.mark.parametrize("early", [0, 2])
def test_a_call_ends_when_its_session_is_closed_after_part_of_it_was_sent(early):
    """The server answers `early` of the sent operations before the close."""
    driver = Driver(max_outstanding_bytes=1_000).open().greeted()
    driver.submit("many", *[SetData("/a", bytes(200))] * 10)
    driver.submit("unsent", Exists("/a"))
    for xid in range(1, early + 1):
        driver.answer(xid, SetData("/a", b""), Result(Code.OK, STAT))
    sent = len(driver.sent) - 1
    driver.session.close(driver.now)
    for xid in range(early + 1, sent + 1):
        driver.answer(xid, SetData("/a", b""), Result(Code.OK, STAT))
    driver.answer(sent + 1, None, Result(Code.OK))
    rest = ["SESSION_EXPIRED"] * (10 - sent)
    assert sorted(driver.finished) == [("many", ["OK"] * sent + rest), ("unsent", ["SESSION_EXPIRED"])]


def test_session_closes_when_the_server_does_not_confirm_the_end():
    driver = Driver().open().greeted(timeout_ms=60_000)
    driver.session.close(driver.now)
    driver.pass_time(5_000)
    assert driver.states[-1] == "CLOSED"


BAD_FRAMES = {
    "a negative length": struct.pack(">i", -5),
    "a length above jute.maxbuffer": struct.pack(">i", (4 << 20) + 1),
    "a header that is cut short": struct.pack(">iq", 8, 1),
    "an answer to another request": wire.encode_answer(7, 1, None, Result(Code.OK)),
    "an answer without its body": wire.encode_answer(1, 1, None, Result(Code.OK)),
    "data longer than the frame": struct.pack(">iiqii", 20, 1, 1, 0, 1 << 30),
    "an event without a path": struct.pack(">iiqii", 20, -1, -1, 0, 1),
}


@pytest.mark.parametrize("what", BAD_FRAMES)
def test_session_gives_the_connection_up_when_the_server_sends(what):
    driver = Driver().open().greeted()
    driver.submit("read", GetData("/a"))
    driver.receive(BAD_FRAMES[what])
    assert driver.drops == 1
    assert driver.finished == [("read", ["CONNECTION_LOSS"])]
    assert driver.states[-1] == "CONNECTING"


def test_answer_is_read_when_it_arrives_byte_by_byte():
    driver = Driver().open().greeted()
    multi = Multi([SetData("/a", b"1"), SetData("/b", b"2")])
    driver.submit("slow", multi)
    for byte in wire.encode_answer(1, 9, multi, Result(Code.OK, [Result(Code.OK, STAT)] * 2)):
        driver.receive(bytes([byte]))
    assert driver.finished == [("slow", ["OK"])]


def test_session_survives_any_bytes_when_a_server_sends_garbage():
    random = Random(5)
    for _ in range(400):
        driver = Driver().open().greeted()
        driver.submit("a", GetData("/a"), GetChildren("/b"), Multi([SetData("/c", b"")]))
        good = bytearray(
            wire.encode_answer(1, 9, GetData("/a"), Result(Code.OK, (b"data", STAT)))
            + wire.encode_answer(2, 9, GetChildren("/b"), Result(Code.OK, (["x", "y"], STAT)))
            + wire.encode_answer(3, 9, Multi([SetData("/c", b"")]), Result(Code.OK, [Result(Code.OK, STAT)]))
        )
        for _ in range(random.randrange(1, 6)):
            good[random.randrange(len(good))] = random.randrange(256)
        driver.receive(bytes(good))
        driver.lose()
        assert sum(len(codes) for _, codes in driver.finished) == 3
