"""Native processors answer the heartbeats of members whose group is published to them. They pass all other heartbeats
to the Python handler."""

import itertools

import pytest

from kafkacore._fast.hot.heartbeats import PublishedGroups
from kafkacore._fast.plane import inbound
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.world.environment import ManualClock
from kafkacore.protocol import messages as m
from processes import wait_until

HEARTBEAT = 12
CHAINS, CHAIN_LENGTH = 4096, 16  # heartbeats.pxd
PATIENCE_S = 10


class Heartbeats:
    def __init__(self, data_plane, clock):
        self.data_plane, self.clock = data_plane, clock
        self.groups = PublishedGroups(data_plane.environment)
        data_plane.plane.install(HEARTBEAT, self.groups.api())
        data_plane.plane.set_apis([(HEARTBEAT, 0, 4, 4)])
        self.client = data_plane.client()

    def send(self, version=3, **fields):
        asked = {"group_id": "g", "generation_id": 5, "member_id": "one", **fields}
        self.client.send(m.HeartbeatRequest(**asked), version)

    def answered(self, version=3, **fields):
        """Sends a heartbeat. Returns the error code of the processor's answer, or "handler" if the request was passed
        to the handler."""
        self.send(version, **fields)
        plane, handled = self.data_plane.plane, []

        def is_over():
            handled.extend(inbound.pop(plane))
            return handled or self.readable()

        wait_until(is_over, PATIENCE_S)
        if handled:
            asked = m.HeartbeatRequest.decode(bytes(memoryview(handled[0]))[handled[0].header_size :], version)
            assert asked.generation_id == fields.get("generation_id", 5)
            handled[0].answer(
                handled[0].correlation_id.to_bytes(4, "big")
                + bytes(version >= 4)
                + m.HeartbeatResponse(error_code=25).encode(version)
            )
        size = int.from_bytes(self.client.read(4), "big")
        frame = self.client.read(size)
        assert int.from_bytes(frame[:4], "big") == self.client.correlation_id
        response = m.HeartbeatResponse.decode(frame[5 if version >= 4 else 4 :], version)
        return "handler" if handled else response.error_code

    def readable(self):
        self.client.socket.setblocking(False)
        try:
            return bool(self.client.socket.recv(1, 2))  # MSG_PEEK
        except BlockingIOError:
            return False
        finally:
            self.client.socket.settimeout(PATIENCE_S)


@pytest.fixture
def heartbeats(open_plane):
    clock = ManualClock()
    return Heartbeats(open_plane(clock=clock), clock)


@pytest.mark.parametrize("version", range(5))
def test_processor_answers_a_heartbeat_of_a_published_group_and_records_its_time(heartbeats, version):
    group = heartbeats.groups.publish("g", 5, [("two", None, b""), ("one", None, b"")])
    assert group.silence_ms(1) is None
    assert heartbeats.answered(version) == 0
    heartbeats.clock.advance_ms(1500)
    assert (group.silence_ms(0), group.silence_ms(1)) == (None, 1500)
    assert heartbeats.answered(version) == 0
    assert group.silence_ms(1) == 0
    with pytest.raises(IndexError):
        group.silence_ms(2)


def test_handler_gets_heartbeats_that_match_no_member(heartbeats):
    group = heartbeats.groups.publish("g", 5, [("one", None, b""), ("static", "i-1", b""), ("", "", b"")])
    assert heartbeats.answered(group_id="h") == "handler"
    assert heartbeats.answered(group_id="") == "handler"
    assert heartbeats.answered(generation_id=4) == "handler"
    assert heartbeats.answered(member_id="on") == "handler"
    assert heartbeats.answered(member_id="onex") == "handler"
    assert heartbeats.answered(group_instance_id="i-1") == "handler"
    assert heartbeats.answered(member_id="static", group_instance_id="i-2") == "handler"
    assert heartbeats.answered(member_id="static", group_instance_id="") == "handler"
    assert [group.silence_ms(place) for place in range(3)] == [None] * 3
    assert heartbeats.answered(member_id="static", group_instance_id="i-1") == 0
    assert heartbeats.answered(member_id="static") == 0
    assert heartbeats.answered(member_id="", group_instance_id="") == 0
    group.withdraw()
    group.withdraw()
    assert heartbeats.answered() == "handler"
    assert group.silence_ms(1) == 0


def test_published_group_is_withdrawn_when_it_is_freed(heartbeats):
    group = heartbeats.groups.publish("g", 5, [("one", None, b"")])
    assert heartbeats.answered() == 0
    del group
    assert heartbeats.answered() == "handler"


def test_processor_answers_every_member_of_a_group_of_ten_thousand(heartbeats):
    group = heartbeats.groups.publish("g", 5, [(f"member-{number}", None, b"") for number in range(10_000)])
    for number in (0, 4_321, 9_999):
        assert heartbeats.answered(member_id=f"member-{number}") == 0
        assert group.silence_ms(number) == 0
    assert heartbeats.answered(member_id="member-10000") == "handler"


def test_processors_serve_groups_whose_ids_collide_under_fnv(heartbeats):
    """The hash table of groups uses a secret key. So even a client that knows the source code cannot fill one of its
    chains, which would push a group to the slow path."""
    ids = list(itertools.islice(ids_that_meet_under_fnv(), CHAIN_LENGTH + 8))
    groups = [heartbeats.groups.publish(each, 5, [("one", None, b"")]) for each in ids]
    assert [heartbeats.answered(group_id=each) for each in ids] == [0] * len(groups)


def test_withdrawing_a_group_keeps_the_others_of_its_chain(heartbeats):
    ids = [f"group-{number}" for number in range(3 * CHAINS)]
    groups = {each: heartbeats.groups.publish(each, 5, [("one", None, b"")]) for each in ids}
    for each in ids[::3]:
        groups[each].withdraw()
    assert [heartbeats.groups.note(each, 5, "one") for each in ids] == [False, True, True] * CHAINS


def ids_that_meet_under_fnv():
    for number in itertools.count():
        text, hashed = f"{number:x}", 2166136261
        for byte in text.encode():
            hashed = (hashed ^ byte) * 16777619 & 0xFFFFFFFF
        if (hashed ^ hashed >> 15) % CHAINS == 7:
            yield text


def test_gate_answers_an_error_or_punts(heartbeats):
    group = heartbeats.groups.publish("g", 5, [("one", None, b"")])
    plane = heartbeats.data_plane.plane
    plane.publish_gate(GatePolicy("serve", [{"action": "error", "api_key": HEARTBEAT, "error": 16, "times": 1}]))
    assert [heartbeats.answered(), heartbeats.answered()] == [16, 0]
    plane.publish_gate(GatePolicy("punt"))
    assert heartbeats.answered() == "handler"
    assert group.silence_ms(0) == 0


def test_handler_gets_a_heartbeat_that_is_cut_off(heartbeats):
    heartbeats.groups.publish("g", 5, [("one", None, b"")])
    whole = m.HeartbeatRequest(group_id="g", generation_id=5, member_id="one").encode(3)
    heartbeats.client.send_frame(b"\0\x0c\0\3" + bytes(4) + b"\xff\xff" + whole[:-3])
    found = []
    wait_until(lambda: found.extend(inbound.pop(heartbeats.data_plane.plane)) or found, PATIENCE_S)
    assert found[0].api_key == HEARTBEAT
    found[0].close()


def test_plane_refuses_to_install_an_api_twice(heartbeats):
    with pytest.raises(ValueError, match="has a hot handler already"):
        heartbeats.data_plane.plane.install(HEARTBEAT, heartbeats.groups.api())
