"""Reads the frames that nodes receive and send. Reports to the checkers: votes, heartbeats, accepted ISRs, the Fetch
requests of followers, and the responses to Produce and OffsetCommit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, RequestHeader
from kafkacore.protocol.uuid import Uuid
from kafkacore.simulation.checkers.observations import (
    CommitAnswered,
    HeartbeatAnswered,
    IsrAccepted,
    MemberKnown,
    PositionsFetched,
    ProduceAnswered,
    VoteGranted,
)
from kafkacore.simulation.cluster import CLIENT_PORT, CONTROLLER_PORT
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.network import End, SimulatedNetwork

WATCHED: Final = {
    CONTROLLER_PORT: frozenset({ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION}),
    CLIENT_PORT: frozenset({ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.FETCH}),
}
OFFSETS: Final = "__consumer_offsets"
ALL: Final = -1  # acks
_PRODUCER: Final = slice(43, 57)  # the id, epoch and sequence number of the producer in the header of a batch
NO_PRODUCER: Final = b"\xff" * 8  # the producer id of a batch without a producer
NOBODY: Final = -1
_SIZE_BYTES: Final = 4
# The (epoch, offset) at which a log ends.
LogEnd = tuple[int, int]


class _Asked(NamedTuple):
    header: RequestHeader
    request: Any
    then: Any  # what `WireTap._then` returned when the request arrived
    arrived_ns: int


class _Led(NamedTuple):
    """A partition of a Produce request: the epoch in which the broker leads the partition, whether the batch has a
    producer id, and whether an earlier request had the same batch of the same producer."""

    epoch: int
    has_id: bool
    is_repeat: bool


class _Stream:
    """One direction of a connection. `asked` holds the requests that wait for an answer in the other direction."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.asked: dict[int, _Asked] = {}

    def frames(self, data: bytes) -> list[bytes]:
        received = self._received
        received += data
        found = []
        while len(received) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(received[:_SIZE_BYTES], "big")
            if len(received) < end:
                break
            found.append(bytes(received[_SIZE_BYTES:end]))
            del received[:end]
        return found


class WireTap:
    """Reads each request when it arrives at a node, and each answer when the node sends it. `log_end` returns the
    present end of a node's metadata log. `leads` returns the leader epoch in which a broker leads a partition according
    to its own metadata, or -1. `offsets_partitions` is the number of partitions of __consumer_offsets. `registered`
    returns the epoch of a broker in a controller's metadata, or -1. `topic_name` returns the name of the topic with an
    id, or None. `epoch_at` returns the leader epoch of the batch at an offset of a broker's log, or -1."""

    def __init__(
        self,
        network: SimulatedNetwork,
        judge: Judge,
        log_end: Callable[[int], LogEnd],
        leads: Callable[[int, str, int], int],
        offsets_partitions: int,
        registered: Callable[[int, int], int],
        topic_name: Callable[[Uuid], str | None],
        epoch_at: Callable[[int, str, int], int],
    ) -> None:
        self._judge, self._log_end, self._leads, self._registered = judge, log_end, leads, registered
        self._offsets_partitions, self._topic_name, self._epoch_at = offsets_partitions, topic_name, epoch_at
        # For each batch in the Produce requests so far: its topic, its partition, and the producer's fields.
        self._batches: set[tuple[str, int, bytes]] = set()
        self._schedule = network.schedule
        # The key is the node's end of the connection.
        self._arriving: WeakKeyDictionary[End, _Stream] = WeakKeyDictionary()
        self._leaving: WeakKeyDictionary[End, _Stream] = WeakKeyDictionary()
        self._have_written: set[str] = set()
        network.on_arrival, network.on_write = self._arrived, self._written

    def take_written(self, machine: str) -> bool:
        """Returns whether a machine has sent anything since the last call."""
        if machine in self._have_written:
            self._have_written.discard(machine)
            return True
        return False

    def _arrived(self, source: End, data: bytes) -> None:
        end = source.peer
        watched = WATCHED.get(end.here[1])
        if watched is None:
            return
        stream = self._arriving.setdefault(end, _Stream())
        for frame in stream.frames(data):
            if int.from_bytes(frame[:2], "big") not in watched:
                continue
            header = apis.decode_request_header(frame)
            request = apis.decode_request(header, frame)
            if header.api_key == ApiKey.FETCH:
                self._fetched(_node(end), request)
                continue
            stream.asked[header.correlation_id] = _Asked(
                header, request, self._then(_node(end), header.api_key, request), self._schedule.now_ns
            )

    def _then(self, node: int, api_key: int, request: Any) -> Any:
        if api_key == ApiKey.PRODUCE:
            return self._led(node, request)
        if api_key == ApiKey.OFFSET_COMMIT:
            return self._leads(node, OFFSETS, self._partition_of(request.group_id))
        if api_key == ApiKey.BROKER_HEARTBEAT:
            return self._registered(node, request.broker_id)
        if api_key == ApiKey.ALTER_PARTITION:
            return {
                (str(topic.topic_id), partition.partition_index): tuple(
                    MemberKnown(each.broker_id, each.broker_epoch, self._registered(node, each.broker_id))
                    for each in partition.new_isr_with_epochs
                )
                for topic in request.topics
                for partition in topic.partitions
            }
        return self._log_end(node)

    def _fetched(self, node: int, request: Any) -> None:
        follower = request.replica_state.replica_id
        if follower < 0:
            return
        named = ((topic.topic or self._topic_name(topic.topic_id), topic.partitions) for topic in request.topics)
        epochs = tuple(
            (f"{name}-{each.partition}", each.current_leader_epoch) for name, parts in named for each in parts
        )
        self._judge.see(PositionsFetched(node, follower, epochs))

    def _partition_of(self, group: str) -> int:
        """Returns the partition of __consumer_offsets that holds the group. Hashes the group's name as Java does."""
        value = 0
        for character in group:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % self._offsets_partitions

    def _led(self, node: int, request: Any) -> dict[tuple[str, int], _Led]:
        found = {}
        for topic in request.topic_data:
            for each in topic.partition_data:
                producer = bytes(each.records or b"")[_PRODUCER]
                batch = topic.name, each.index, producer
                has_id = not producer.startswith(NO_PRODUCER)
                epoch = self._leads(node, topic.name, each.index)
                found[topic.name, each.index] = _Led(epoch, has_id, has_id and batch in self._batches)
                self._batches.add(batch)
        return found

    def _written(self, end: End, data: bytes) -> None:
        self._have_written.add(end.machine.name)
        if end.here[1] not in WATCHED:
            return
        stream = self._leaving.setdefault(end, _Stream())
        for frame in stream.frames(data):
            arriving = self._arriving.get(end)
            asked = None if arriving is None else arriving.asked.pop(int.from_bytes(frame[:4], "big"), None)
            if asked is not None:
                self._answered(_node(end), asked, frame)

    def _answered(self, node: int, asked: _Asked, frame: bytes) -> None:
        header, request, then, _ = asked
        # The header of a response contains the correlation id. In some versions, an empty list of tagged fields
        # follows.
        size = len(apis.response_header(header.api_key, header.api_version, header.correlation_id))
        response = apis.response_class(header.api_key).decode(frame[size:], header.api_version)
        if header.api_key == ApiKey.BROKER_HEARTBEAT:
            self._judge.see(
                HeartbeatAnswered(
                    node, request.broker_id, request.broker_epoch, not response.error_code,
                    request.current_metadata_offset, bool(response.is_fenced), then,
                )
            )  # fmt: skip
            return
        if header.api_key == ApiKey.PRODUCE:
            self._produce_answered(node, asked, response)
            return
        if header.api_key == ApiKey.ALTER_PARTITION:
            self._isrs_answered(node, asked, response)
            return
        if header.api_key == ApiKey.OFFSET_COMMIT:
            self._commit_answered(node, asked, response)
            return
        if response.error_code or not response.topics or not request.topics:
            return
        vote = request.topics[0].partitions[0]
        if response.topics[0].partitions[0].vote_granted and not vote.pre_vote:
            # The voter may have truncated its log between the request and the answer. So compare with the shorter log.
            voter_end = min(then, self._log_end(node))
            candidate_end = (vote.last_offset_epoch, vote.last_offset)
            self._judge.see(VoteGranted(node, vote.replica_epoch, vote.replica_id, candidate_end, voter_end))

    def _produce_answered(self, node: int, asked: _Asked, response: Any) -> None:
        if asked.request.acks != ALL:
            return  # without acks=all, a deposed leader may acknowledge the request
        for topic in response.responses:
            for each in topic.partition_responses:
                key = (topic.name, each.index)
                led, log = asked.then[key], f"{topic.name}-{each.index}"
                is_told = not each.error_code and not led.is_repeat
                self._judge.see(
                    ProduceAnswered(
                        node, log, led.epoch != NOBODY, self._leads(node, *key) != NOBODY, not each.error_code,
                        led.epoch, asked.arrived_ns, self._schedule.now_ns, led.has_id,
                        self._epoch_at(node, log, each.base_offset) if is_told else NOBODY,
                    )
                )  # fmt: skip

    def _isrs_answered(self, node: int, asked: _Asked, response: Any) -> None:
        if response.error_code:
            return
        for topic in response.topics:
            for each in topic.partitions:
                if not each.error_code:
                    members = asked.then[str(topic.topic_id), each.partition_index]
                    self._judge.see(IsrAccepted(node, asked.request.broker_id, members))

    def _commit_answered(self, node: int, asked: _Asked, response: Any) -> None:
        group = asked.request.group_id
        index = self._partition_of(group)
        accepted = any(not each.error_code for topic in response.topics for each in topic.partitions)
        self._judge.see(
            CommitAnswered(
                node, group, f"{OFFSETS}-{index}", asked.then, self._leads(node, OFFSETS, index) != NOBODY, accepted,
                asked.arrived_ns, self._schedule.now_ns,
            )
        )  # fmt: skip


def _node(end: End) -> int:
    return int(end.machine.name.removeprefix("node-"))
