"""Native processors answer SyncGroup requests for a group that is published to them. Their answers are the same as the
Python handler's. They pass all other SyncGroup requests to the handler.
"""

import pytest

from kafkacore._fast.hot.heartbeats import PublishedGroups
from kafkacore._fast.plane import inbound
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.protocol import messages as m
from processes import wait_until

SYNC_GROUP = 14
TOLD_BYTES = 65536  # heartbeats.pxd
PATIENCE_S = 10
TYPE, NAME = "consumer", "range"


class SyncGroups:
    def __init__(self, data_plane):
        self.data_plane = data_plane
        self.groups = PublishedGroups(data_plane.environment)
        data_plane.plane.install(SYNC_GROUP, self.groups.sync_group_api())
        data_plane.plane.set_apis([(SYNC_GROUP, 0, 5, 4)])
        self.client = data_plane.client()

    def publish(self, *members, protocol_type=TYPE, protocol_name=NAME):
        return self.groups.publish("g", 5, members, protocol_type, protocol_name)

    def answered(self, version=3, **fields):
        """Sends a SyncGroup. Returns the body of the processor's response, or None if the request was passed to the
        handler."""
        asked = {"group_id": "g", "generation_id": 5, "member_id": "one", **fields}
        if version >= 5:
            asked = {"protocol_type": TYPE, "protocol_name": NAME, **asked}
        request = m.SyncGroupRequest(**asked)
        self.client.send(request, version)
        handled = []
        wait_until(lambda: handled.extend(inbound.pop(self.data_plane.plane)) or handled or self.readable(), PATIENCE_S)
        if handled:
            body = bytes(memoryview(handled[0]))[handled[0].header_size :]
            assert body == request.encode(version)
            handled[0].answer(handled[0].correlation_id.to_bytes(4, "big"))
        frame = self.client.read(int.from_bytes(self.client.read(4), "big"))
        assert int.from_bytes(frame[:4], "big") == self.client.correlation_id
        if handled:
            return None
        assert version < 4 or frame[4] == 0  # without tagged fields
        return frame[5 if version >= 4 else 4 :]

    def readable(self):
        self.client.socket.setblocking(False)
        try:
            return bool(self.client.socket.recv(1, 2))  # MSG_PEEK
        except BlockingIOError:
            return False
        finally:
            self.client.socket.settimeout(PATIENCE_S)


@pytest.fixture
def syncs(open_plane):
    return SyncGroups(open_plane())


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("assignment", [b"", b"x", bytes(range(256)) * 64])
def test_processor_answers_a_sync_group_with_the_assignment(syncs, version, assignment):
    group = syncs.publish(("two", None, b"other"), ("one", None, assignment))
    told = m.SyncGroupResponse(protocol_type=TYPE, protocol_name=NAME, assignment=assignment)
    assert syncs.answered(version) == told.encode(version)
    assert [group.is_synced(0), group.is_synced(1)] == [False, True]
    assert syncs.answered(version) == told.encode(version)
    # As in the coordinator, a SyncGroup of a stable group does not count as a heartbeat.
    assert group.silence_ms(1) is None
    with pytest.raises(IndexError):
        group.is_synced(2)


def test_handler_gets_sync_groups_that_match_no_member(syncs):
    group = syncs.publish(("one", None, b"1"), ("static", "i-1", b"2"))
    for fields in (
        {"group_id": "h"}, {"group_id": ""}, {"generation_id": 4}, {"member_id": "on"}, {"member_id": ""},
        {"group_instance_id": "i-1"}, {"member_id": "static", "group_instance_id": "i-2"},
        {"member_id": "static", "group_instance_id": ""},
    ):  # fmt: skip
        assert syncs.answered(**fields) is None, fields
    for fields in (
        {"protocol_type": "connect"}, {"protocol_name": "sticky"}, {"protocol_type": ""}, {"protocol_name": ""},
        {"protocol_type": None}, {"protocol_name": None},
    ):  # fmt: skip
        assert syncs.answered(5, **fields) is None, fields
    assert [group.is_synced(place) for place in range(2)] == [False, False]
    for fields in ({"group_instance_id": "i-1"}, {}):
        assert syncs.answered(member_id="static", **fields) == m.SyncGroupResponse(assignment=b"2").encode(3)
    group.withdraw()
    assert syncs.answered() is None
    assert [group.is_synced(place) for place in range(2)] == [False, True]


def test_sync_group_names_and_compares_no_protocol_when_the_group_has_none(syncs):
    group = syncs.publish(("one", None, b"1"), protocol_type=None, protocol_name=None)
    assert syncs.answered(5) == m.SyncGroupResponse(assignment=b"1").encode(5)
    assert group.is_synced(0)


def test_processor_ignores_the_leader_assignments_and_hands_many_to_the_handler(syncs):
    """The group is already stable, so the assignments in this request no longer have an effect. If there are many of
    them, the processor passes the request to the handler."""
    group = syncs.publish(("one", None, b"1"))
    given = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id="one", assignment=b"new")
    assert syncs.answered(assignments=[given]) == m.SyncGroupResponse(assignment=b"1").encode(3)
    assert syncs.answered(assignments=[given] * 1000) is None
    assert group.is_synced(0)


@pytest.mark.parametrize("over", [0, 1])
def test_handler_gives_a_long_assignment(syncs, over):
    assignment = bytes(TOLD_BYTES + over)
    texts = {"protocol_type": "t" * 0x7FFF, "protocol_name": "n" * 0x7FFF}
    group = syncs.publish(("one", None, assignment), **texts)
    told = m.SyncGroupResponse(assignment=assignment, **texts).encode(5)
    assert syncs.answered(5, **texts) == (None if over else told)
    assert group.is_synced(0) == (not over)


def test_assignment_lives_as_long_as_its_published_group(syncs):
    group = syncs.publish(*((str(number), None, bytes([number]) * 1000) for number in range(200)))
    for number in (0, 99, 199):
        told = m.SyncGroupResponse(assignment=bytes([number]) * 1000).encode(3)
        assert syncs.answered(member_id=str(number)) == told
    del group
    assert syncs.answered(member_id="0") is None


def test_gate_answers_an_error_or_punts(syncs):
    group = syncs.publish(("one", None, b"1"))
    plane = syncs.data_plane.plane
    rule = {"action": "error", "api_key": SYNC_GROUP, "error": 27, "times": 1}
    for version in range(6):
        plane.publish_gate(GatePolicy("serve", [rule]))
        assert syncs.answered(version) == m.SyncGroupResponse(error_code=27).encode(version)
    assert not group.is_synced(0)
    plane.publish_gate(GatePolicy("punt"))
    assert syncs.answered() is None


def test_handler_gets_a_sync_group_that_is_cut_off(syncs):
    group = syncs.publish(("one", None, b"1"))
    whole = m.SyncGroupRequest(group_id="g", generation_id=5, member_id="one").encode(3)
    syncs.client.send_frame(b"\0\x0e\0\3" + bytes(4) + b"\xff\xff" + whole[:-3])
    found = []
    wait_until(lambda: found.extend(inbound.pop(syncs.data_plane.plane)) or found, PATIENCE_S)
    assert found[0].api_key == SYNC_GROUP
    found[0].close()
    assert not group.is_synced(0)


def test_publish_refuses_an_assignment_that_is_not_bytes(syncs):
    with pytest.raises(TypeError):
        syncs.publish(("one", None, None))
    assert syncs.answered() is None
