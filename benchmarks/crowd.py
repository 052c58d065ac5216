"""A thousand members of one group. One thread drives them all and uses little CPU time, so that the broker determines
the figures.

The client prepares every frame in advance, and later writes only the member's id and generation into it. In an answer,
it reads only the fields that decide the next step. All sockets are in epoll sets, and the client handles events one by
one.
"""

import collections
import select
import socket
import struct
import time

from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)

CLIENT = "crowd"
JOIN, SYNC, HEARTBEAT = (11, 5), (14, 3), (12, 3)
ID_OF_TEMPLATES = CLIENT + "-" + "x" * 36  # as long as the member ids that brokers assign (client id and UUID)
ERROR_AT, GENERATION_AT = 12, 14  # positions in an answer: size, correlation id, throttle time, error, generation
SESSION_MS = 1_800_000  # longer than a run, so that no session expires
AGAIN_S = 0.005  # pause after a heartbeat that arrived before the rebalance began
METADATA, SHARE = b"\0\1" + bytes(20), bytes(30)
EVENTS = 256  # the most events that one call of epoll_wait returns
BURST = 16  # requests that the client sends before it looks for answers
PART_BYTES = 1 << 18  # one read takes at most this many bytes of an answer
# If more than socket.listen.backlog.size (50) connections arrive together, the kernel retries each further connection
# after a second.
ACCEPTED, ACCEPTING_S = 40, 0.005
LIMIT_S = 120.0


def framed(api, message):
    inside = apis.encode_request(api[1], 0, CLIENT, message)
    return struct.pack(">i", len(inside)) + inside


class Template:
    """A prepared request. `of` copies it with a member's id. `set_generation` fills in the generation, which follows
    the group's id."""

    def __init__(self, api, message):
        self._frame = framed(api, message)
        self._id_at = self._frame.index(ID_OF_TEMPLATES.encode())
        self._generation_at = self._id_at - 2 - 4

    def of(self, member_id):
        made = bytearray(self._frame)
        made[self._id_at : self._id_at + len(ID_OF_TEMPLATES)] = member_id
        return made

    def set_generation(self, frame, generation):
        struct.pack_into(">i", frame, self._generation_at, generation)


class Templates:
    def __init__(self, group):
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=METADATA)

        def join(member_id):
            return JoinGroupRequest(
                group_id=group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS, member_id=member_id,
                protocol_type="consumer", protocols=[protocol],
            )  # fmt: skip

        self.first_join = framed(JOIN, join(""))
        self.join = Template(JOIN, join(ID_OF_TEMPLATES))
        self.sync = Template(SYNC, self._sync(group, []))
        self.heartbeat = Template(HEARTBEAT, HeartbeatRequest(group_id=group, member_id=ID_OF_TEMPLATES))
        self._group = group

    @staticmethod
    def _sync(group, assignments):
        return SyncGroupRequest(group_id=group, member_id=ID_OF_TEMPLATES, assignments=assignments)

    def leader_sync(self, member_ids):
        share = SyncGroupRequest.SyncGroupRequestAssignment
        shares = [share(member_id=each.decode(), assignment=SHARE) for each in member_ids]
        return Template(SYNC, self._sync(self._group, shares))


RECEIVED = memoryview(bytearray(PART_BYTES))  # shared by all members: each answer is used before the next is read


class Member:
    """One connection and the requests of its member. The crowd passes the next answer to the function `then`."""

    def __init__(self, address, templates):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.templates = templates
        self.id, self.then, self.sent_ns = b"", None, 0
        self.join = self.sync = self.heartbeat = b""
        self._received = b""

    def named(self, member_id):
        self.id = member_id
        self.join = self.templates.join.of(member_id)
        self.sync = self.templates.sync.of(member_id)
        self.heartbeat = self.templates.heartbeat.of(member_id)

    def in_generation(self, generation):
        self.templates.sync.set_generation(self.sync, generation)
        self.templates.heartbeat.set_generation(self.heartbeat, generation)

    def send(self, frame, then):
        self.then, self.sent_ns = then, time.perf_counter_ns()
        self.socket.sendall(frame)

    def receive(self):
        """Returns one whole answer with its size in front, valid until the next call; None if the answer is incomplete.

        Raises ConnectionError.
        """
        size = self.socket.recv_into(RECEIVED)
        if not size:
            raise ConnectionError("the broker closed a member's connection")
        part = RECEIVED[:size]
        answer = self._received + part if self._received else part
        if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            self._received = bytes(answer)
            return None
        self._received = b""
        return answer


def error_of(answer):
    return int.from_bytes(answer[ERROR_AT : ERROR_AT + 2], "big")


def member_id_of(answer):
    """Returns the member id of a JoinGroup answer. It follows the generation, the protocol's name and the
    leader's id."""
    at = GENERATION_AT + 4
    for _ in range(2):
        at += 2 + int.from_bytes(answer[at : at + 2], "big")
    return answer[at + 2 : at + 2 + int.from_bytes(answer[at : at + 2], "big")]


class Crowd:
    """All members of one group. The crowd calls `meanwhile` between any two events."""

    def __init__(self, address, group, count, meanwhile=lambda: None):
        self.templates = Templates(group)
        self.members = []
        while len(self.members) < count:
            if len(self.members) % ACCEPTED == 0:
                time.sleep(ACCEPTING_S)
            self.members.append(Member(address, self.templates))
        self.meanwhile = meanwhile
        self.leader = self.members[0]
        self.leader_sync = None
        self._named = self._in_sync = 0
        self._early = collections.deque()  # members whose heartbeat came too early, and when they send the next one
        self._by_file = {member.socket.fileno(): member for member in self.members}
        self._epoll = select.epoll(count)
        for file in self._by_file:
            self._epoll.register(file, select.EPOLLIN)

    def close(self):
        self._epoll.close()
        for member in self.members:
            member.socket.close()

    def turn(self, timeout_s):
        for file, _ in self._epoll.poll(timeout_s, EVENTS):
            member = self._by_file[file]
            answer = member.receive()
            if answer is not None:
                member.then(member, answer)
            self.meanwhile()

    def until(self, is_over, timeout_s=0.001):
        deadline = time.perf_counter() + LIMIT_S
        while not is_over():
            self.turn(timeout_s)
            self.meanwhile()
            now = time.perf_counter()
            while self._early and self._early[0][0] <= now:
                member = self._early.popleft()[1]
                member.send(member.heartbeat, self._must_rejoin)
            if now > deadline:
                raise RuntimeError(f"the group is not stable after {LIMIT_S:.0f} s")

    # --- the steps of a member ---

    def _took_id(self, member, answer):
        if error_of(answer) != ErrorCode.MEMBER_ID_REQUIRED:
            raise RuntimeError(f"JoinGroup failed with {ErrorCode(error_of(answer)).name}")
        member.named(bytes(member_id_of(answer)))
        self._named += 1
        member.send(member.join, self._joined)

    def _joined(self, member, answer):
        require_none(answer, "JoinGroup")
        generation = struct.unpack_from(">i", answer, GENERATION_AT)[0]
        member.in_generation(generation)
        if member is not self.leader:
            member.send(member.sync, self._synced)
            return
        if self.leader_sync is None:
            joined = JoinGroupResponse.decode(bytes(answer[8:]), JOIN[1])
            self._template = self.templates.leader_sync([each.member_id.encode() for each in joined.members])
            self.leader_sync = self._template.of(member.id)
        self._template.set_generation(self.leader_sync, generation)
        member.send(self.leader_sync, self._synced)

    def _synced(self, member, answer):
        require_none(answer, "SyncGroup")
        self._in_sync += 1

    def _must_rejoin(self, member, answer):
        if error_of(answer) == ErrorCode.NONE:
            self._early.append((time.perf_counter() + AGAIN_S, member))
            return
        if error_of(answer) != ErrorCode.REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"a heartbeat failed with {ErrorCode(error_of(answer)).name}")
        member.send(member.join, self._joined)

    # --- the steps of all members together ---

    def begin(self):
        """Makes the group stable with the leader as its only member. Otherwise chance would decide how many members
        join the first generation."""
        self._named = self._in_sync = 0
        self.leader.send(self.templates.first_join, self._took_id)
        self.until(lambda: self._in_sync == 1)
        self.leader_sync = None  # the request belonged to the generation that had only the leader

    def join(self):
        """Makes all other members join. As with consumers, each member first gets its id. Then the leader joins again,
        so that all members are in one generation. Returns the seconds until every member has its assignment."""
        self._named = self._in_sync = 0
        began = time.perf_counter()
        self._send_all(lambda member: member.send(self.templates.first_join, self._took_id))
        self.until(lambda: self._named == len(self.members) - 1)
        self.leader.send(self.leader.heartbeat, self._must_rejoin)
        self.until(lambda: self._in_sync == len(self.members))
        return time.perf_counter() - began

    def _send_all(self, send):
        """Calls `send` for every member except the leader."""
        for number, member in enumerate(self.members[1:]):
            send(member)
            if number % BURST == 0:
                self.turn(0)
            self.meanwhile()

    def rebalance(self):
        """Makes the leader join again. Each other member learns of the rebalance from a heartbeat. Returns the seconds
        until every member has its assignment."""
        self._in_sync = 0
        began = time.perf_counter()
        self.leader.send(self.leader.join, self._joined)
        self._send_all(lambda member: member.send(member.heartbeat, self._must_rejoin))
        self.until(lambda: self._in_sync == len(self.members))
        return time.perf_counter() - began


def require_none(answer, what):
    if error_of(answer):
        raise RuntimeError(f"{what} failed with {ErrorCode(error_of(answer)).name}")


class Pulse:
    """Sends the heartbeats of a stable crowd: one per member in `interval_s`, spread evenly. A Pulse has its own epoll
    set, so that `look` can run between any two events of another crowd. Latencies are in ns."""

    def __init__(self, crowd, interval_s):
        self._crowd = crowd
        self._step_s = interval_s / len(crowd.members)
        self._due = time.perf_counter() + self._step_s
        self._next = 0
        self.latencies = []
        self.passed_over = 0  # heartbeats not sent, because the member's previous one was still unanswered
        for member in crowd.members:
            member.then = None  # no request is in flight

    def look(self):
        now = time.perf_counter()
        while self._due <= now:
            self._due += self._step_s
            member = self._crowd.members[self._next]
            self._next = (self._next + 1) % len(self._crowd.members)
            if member.then is None:
                member.send(member.heartbeat, self._answered)
            else:
                self.passed_over += 1
        self._crowd.turn(0)

    def _answered(self, member, answer):
        self.latencies.append(time.perf_counter_ns() - member.sent_ns)
        member.then = None
        require_none(answer, "a heartbeat")

    def wait_s(self):
        return max(self._due - time.perf_counter(), 0)
